"""TRL's side: GRPOTrainer in GSPO mode, tuned for a CPU, run by its own training loop."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback

from benchmarks.flops import step_flops
from benchmarks.real_models import RealModel
from benchmarks.timing import StepTiming
from benchmarks.workload import Workload
from hacrl.analysis.simulate.synthetic import rewards
from hacrl.types import Rollout


@dataclass
class TrlUpdate:
    """What one update of TRL consumed and produced, kept for the comparison."""

    prompt_ids: Tensor
    prompt_mask: Tensor
    completion_ids: Tensor
    completion_mask: Tensor
    advantages: Tensor
    old_logps: Tensor
    loss: float
    gradient_norm: float


@dataclass
class TrlRun:
    """Timings of the measured steps, and the updates if they were recorded."""

    timings: list[StepTiming] = field(default_factory=list)
    updates: list[TrlUpdate] = field(default_factory=list)


def run_trl(
    work: Workload,
    model: PreTrainedModel,
    steps: int,
    *,
    replayed: Sequence[Rollout] | None = None,
    after_step: Callable[[], None] = lambda: None,
    record: bool = False,
    run: TrlRun | None = None,
) -> TrlRun:
    """Train `model` for `steps` steps with TRL; `after_step` runs between them, outside the timing.

    With `replayed` (prompt by prompt, sample by sample) TRL trains on those responses and generates none.
    What is measured goes into `run`, if one is given, at once.
    """
    trainer_class = _instrumented_trainer()
    run = run or TrlRun()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rollout_func.*experimental")
        trainer = trainer_class(
            model=model,
            reward_funcs=rewards,
            args=_tuned_arguments(work, steps, folder),
            train_dataset=_dataset(work),
            processing_class=work.make_tokenizer(),
            rollout_func=None if replayed is None else _rollout_function(work, replayed),
        )
        trainer.recorded = run.updates if record else None
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_StepClock(work, trainer.clock, run, after_step))
        trainer.train()
    return run


def _rollout_function(work: Workload, replayed: Sequence[Rollout]) -> Callable[..., dict[str, Any]]:
    tokenizer = work.make_tokenizer()

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [tokenizer(text)["input_ids"] for text in prompts],
            "completion_ids": [list(response.token_ids) for response in replayed],
            "logprobs": [list(response.token_logps) for response in replayed],
        }

    return rollout


def _dataset(work: Workload) -> Any:
    from datasets import Dataset

    prompts = [prompt.text for prompt in work.make_prompts()]
    return Dataset.from_list([{"prompt": text if isinstance(text, str) else list(text)} for text in prompts])


def _tuned_arguments(work: Workload, steps: int, folder: str) -> Any:
    """GSPO as TRL documents it, and the settings that make it fast on a CPU.

    TRL's defaults (bf16 and gradient checkpointing) are made for GPUs and would be no fair comparison; with
    bf16, the weights and the optimiser stay in fp32.
    """
    from trl import GRPOConfig

    gspo = {
        "importance_sampling_level": "sequence",
        "loss_type": "grpo",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "beta": 0.0,
    }
    tuned_for_cpu = {
        "use_cpu": True,
        "bf16": isinstance(work.size, RealModel) and work.size.dtype == "bfloat16",
        "gradient_checkpointing": False,
        "optim": "adamw_torch_fused",
    }
    quiet = {"report_to": "none", "logging_strategy": "no", "save_strategy": "no", "disable_tqdm": True}
    of_an_update = work.responses // work.updates
    rows = work.trl_rows or of_an_update
    return GRPOConfig(
        output_dir=folder,
        num_generations=work.samples,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=of_an_update // rows,
        steps_per_generation=work.responses // rows,
        max_completion_length=work.max_new,
        max_steps=steps * work.updates,
        learning_rate=work.learning_rate,
        lr_scheduler_type="constant",
        shuffle_dataset=False,
        dataloader_pin_memory=False,
        seed=work.seed,
        **gspo,
        **tuned_for_cpu,
        **quiet,
    )


@dataclass
class _Clock:
    """Seconds spent in the parts of a step."""

    prepare: float = 0.0
    """Generation, scoring with the old policy, rewards, advantages."""
    generate: float = 0.0
    prompts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """Tokens of the step's prompts and responses, one of each per response."""


class _StepClock(TrainerCallback):  # type: ignore[misc]
    """Times a step of `work.updates` optimiser updates from the outside."""

    def __init__(self, work: Workload, clock: _Clock, run: TrlRun, after_step: Callable[[], None]) -> None:
        self.work, self.clock, self.run, self.after_step = work, clock, run, after_step
        self.begun = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before each optimiser update."""
        if state.global_step % self.work.updates == 0:
            self.clock.prepare = self.clock.generate = 0.0
            self.begun = perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After each optimiser update."""
        if state.global_step % self.work.updates == 0:
            total, clock = perf_counter() - self.begun, self.clock
            self._check_prompts()
            self.run.timings.append(
                StepTiming(
                    generate=clock.generate,
                    update=total - clock.prepare,
                    other=clock.prepare - clock.generate,
                    tokens=sum(clock.lengths),
                    flops=step_flops(self.work, clock.lengths),
                )
            )
            self.after_step()

    def _check_prompts(self) -> None:
        wanted = [length for length in self.work.prompt_lengths() for _ in range(self.work.samples)]
        if self.clock.prompts != wanted:
            raise RuntimeError(f"TRL's prompts have {self.clock.prompts} tokens instead of {wanted}")


def _instrumented_trainer() -> Any:
    try:
        from trl import GRPOTrainer
    except ImportError as error:
        raise ModuleNotFoundError('this comparison needs TRL: pip install --editable ".[bench]"') from error

    class InstrumentedTrainer(GRPOTrainer):  # type: ignore[misc]
        """Does what GRPOTrainer does, and notes how long its parts take."""

        def __init__(self, **arguments: Any) -> None:
            self.clock = _Clock()
            self.recorded: list[TrlUpdate] | None = None
            super().__init__(**arguments)

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            begun = perf_counter()
            inputs = super()._prepare_inputs(generation_batch)
            self.clock.prepare += perf_counter() - begun
            return inputs

        def _generate(self, prompts: list[Any]) -> Any:
            begun = perf_counter()
            generated = super()._generate(prompts)
            self.clock.generate += perf_counter() - begun
            self.clock.prompts = [len(ids) for ids in generated[0]]
            self.clock.lengths = [len(ids) for ids in generated[1]]
            return generated

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any) -> Tensor:
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
            if self.recorded is not None:
                batch = self._buffered_inputs[len(self.recorded) % self.args.steps_per_generation]
                self.recorded.append(_recorded_update(batch, loss, model))
            return loss

    return InstrumentedTrainer


def _recorded_update(batch: dict[str, Tensor], loss: Tensor, model: torch.nn.Module) -> TrlUpdate:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return TrlUpdate(
        prompt_ids=batch["prompt_ids"],
        prompt_mask=batch["prompt_mask"],
        completion_ids=batch["completion_ids"],
        completion_mask=batch["completion_mask"],
        advantages=batch["advantages"],
        old_logps=batch["old_per_token_logps"],
        loss=loss.item(),
        gradient_norm=torch.nn.utils.get_total_norm(gradients).item(),
    )
