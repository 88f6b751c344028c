"""TRL trainers with a pool: what travels, what is refused, and that both sides compute the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="trl is not installed")

from hacrl.agents.policy import Policy
from hacrl.algorithm import ImitationObjective
from hacrl.integrations.trl import PoolCallback
from hacrl.integrations.trl_model import TrlModel
from hacrl.pool import POOL, open_place
from hacrl.recipe.settings import OptimiserSettings
from hacrl.sharing import LearnerBatch, UpdateGroup
from hacrl.tasks import load
from hacrl.types import Prompt, TrainingRow
from helpers_pool import entry, lines
from helpers_train import make_agent, short_answers

KEY = "the key of these trainers"
TASK = load("digits", train=12, test=3)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HACRL_POOL_KEY", KEY)


def rows(prompts: Any = TASK.train) -> list[dict[str, Any]]:
    return [{"prompt": p.text, "kind": p.kind, "answer": p.columns["answer"]} for p in prompts]


def train(folder: Path, name: str, *, mixing: bool = False, steps: int = 2, **options: Any) -> PoolCallback:
    """A trainer of a tiny model for some generations of four prompts with four samples."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    seed = sum(map(ord, name))
    cut = "characters" if seed % 2 else "digit-pairs"
    model = make_agent(folder / f"model-{name}", seed, cut=cut)  # type: ignore[arg-type]
    callback = PoolCallback(
        str(folder / "pool"), name, short_answers, rows(), eval_dataset=rows(TASK.test), **options
    )
    args = GRPOConfig(
        output_dir=str(folder / "out"),
        num_generations=4,
        per_device_train_batch_size=16,
        steps_per_generation=1,
        max_completion_length=6,
        max_steps=steps,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = GRPOTrainer(
            str(model),
            callback.reward_funcs,
            args,
            Dataset.from_list(rows()),
            callbacks=[callback],
            rollout_func=callback.rollout_func if mixing else None,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return callback


def entries(pool: Path) -> list[dict[str, Any]]:
    files = sorted(pool.glob("*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_two_trainers_imitate_each_others_completions(tmp_path: Path):
    first = train(tmp_path, "ada")
    assert first.imitated[POOL] == 0
    sent = entries(tmp_path / "pool")
    assert len(sent) == 32
    assert {each["source"] for each in sent} == {"ada"}
    assert {each["prompt"] for each in sent} <= {row["prompt"] for row in rows()}
    second = train(tmp_path, "eve", steps=1)
    assert second.imitated[POOL] > 0
    assert not second.refused


def test_what_a_trainer_cannot_confirm_is_refused(tmp_path: Path):
    key = KEY.encode()
    prompt, test = TASK.train[0].text, TASK.test[0].text
    hostile = lines(
        entry(writer="mallory", prompt=prompt, response="1", reward=0.5),
        entry(writer="mallory", prompt=test, response="11", reward=1.0),
        entry(writer="mallory", prompt="who are you", response="11", reward=1.0),
        key=key,  # type: ignore[arg-type]
    )
    open_place(str(tmp_path / "pool")).append("mallory", [*hostile, b"{}", hostile[0]])
    callback = train(tmp_path, "ada", steps=1)
    causes = ("reward_differs", "test_prompt", "unknown_prompt", "schema", "replayed")
    assert callback.refused == dict.fromkeys(causes, 1)
    assert callback.imitated[POOL] == 0


def test_others_right_completions_come_into_the_group_once(tmp_path: Path):
    key = KEY.encode()
    right = [entry(n, writer="them", prompt=p.text, response="11") for n, p in enumerate(TASK.train)]
    open_place(str(tmp_path / "pool")).append("them", lines(*right, key=key))  # type: ignore[arg-type]
    callback = train(tmp_path, "ada", mixing=True, imitate=False, steps=3)
    sent = [each for each in entries(tmp_path / "pool") if each["source"] == "ada"]
    # The first generation has none of them yet. In each later one, a completion of every prompt is another's,
    # which is not sent again as this trainer's own.
    assert [sum(each["version"] == n for each in sent) for n in (1, 2, 3)] == [16, 12, 12]
    assert not callback.imitated


async def later(**columns: Any) -> list[float]:
    return []


@pytest.mark.parametrize("function", [later, "a/reward-model", torch.nn.Linear(1, 1)])
def test_reward_functions_are_plain_functions(tmp_path: Path, function: Any):
    with pytest.raises(ValueError, match="reward_funcs: expected plain functions"):
        PoolCallback(str(tmp_path), "ada", [function], rows())


@pytest.mark.slow
def test_the_example_trains_two_processes_with_and_without_a_pool():
    example = Path(__file__).parents[3] / "examples" / "trl_pool.py"
    assert len(example.read_text().splitlines()) < 60
    words = [sys.executable, "-W", "ignore", str(example), "3", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^seed 0 (pool |alone) (0\.\d{3}) (0\.\d{3})$", done.stdout, re.MULTILINE)
    assert [way for way, *_ in found] == ["alone", "pool "]
    alone, pooled = ([float(accuracy) for accuracy in accuracies] for _, *accuracies in found)
    assert sum(pooled) > sum(alone)


def test_log_probs_and_updates_are_those_of_hacrl(tmp_path: Path):
    directory = make_agent(tmp_path / "model", 5)
    policy = Policy.load("ada", str(directory), optimiser=OptimiserSettings(learning_rate=1e-3, kl=0.0))
    other = Policy.load("ada", str(directory))

    class Args:
        bf16, max_grad_norm, chat_template_kwargs = False, 1.0, None

    from transformers import AutoTokenizer

    theirs = TrlModel("ada", other._model, AutoTokenizer.from_pretrained(directory), Args)
    prompts = [Prompt("a", "sort 31="), Prompt("b", "add3 12=")]
    texts = ["13", "3412"]
    encoded = [
        (policy.encoder.encode_prompt(prompt), (*policy.encoder.encode_response(text), policy.encoder.eos_id))
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    assert [theirs.encoder.encode_prompt(prompt) for prompt in prompts] == [row[0] for row in encoded]
    for mine, other_logps in zip(policy.score(encoded), theirs.score(encoded), strict=True):
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(other_logps), atol=1e-5, rtol=1e-5)
    rows_ = tuple(
        TrainingRow(p.id, ids, response, POOL, False, 0.0, (), weight, 1.0)
        for p, (ids, response), weight in zip(prompts, encoded, (1.0, 0.5), strict=True)
    )
    optimiser = torch.optim.AdamW(other._model.parameters(), lr=1e-3, weight_decay=0.01)
    group = UpdateGroup(ImitationObjective(), (rows_,), passes=2)
    theirs.update(LearnerBatch((group,), {}), optimiser)  # type: ignore[arg-type]
    policy.update([rows_, rows_], ImitationObjective())
    for name, weight in policy._model.state_dict().items():
        torch.testing.assert_close(weight, other._model.state_dict()[name], atol=2e-5, rtol=1e-3)
