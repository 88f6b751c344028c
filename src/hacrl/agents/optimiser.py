"""AdamW with clipping and a learning-rate schedule; its state is a flat mapping of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import TypeVar
from weakref import WeakMethod

import torch
from torch import Tensor, nn

from hacrl.agents.errors import AgentError
from hacrl.agents.ranks import whole
from hacrl.recipe.settings import OptimiserSettings

T = TypeVar("T")

WEIGHT, MOMENT = "weight/", "exp_avg/"
"""Prefixes of weights and of first moments in `Optimiser.tensors`; the parameter's name follows."""

ADDED_AT_ONCE = 1 << 22
"""Numbers of a gradient in half precision that are turned into fp32 together."""


def learning_rate_factor(settings: OptimiserSettings, steps_done: float, total_steps: int | None) -> float:
    """Share of the peak learning rate after so many steps of the run: linear warm-up, then the schedule.

    It follows the run's steps and not the updates: methods that make more updates in a step would otherwise
    warm up and decay earlier than others. A schedule that decays reaches 0 after `total_steps`.
    """
    if steps_done < settings.warmup_steps:
        return steps_done / settings.warmup_steps
    if settings.schedule == "constant":
        return 1.0
    assert total_steps is not None
    done = (steps_done - settings.warmup_steps) / (total_steps - settings.warmup_steps)
    if settings.schedule == "linear":
        return max(0.0, 1.0 - done)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * min(1.0, done))))


def _check_schedule(settings: OptimiserSettings, total_steps: int | None) -> None:
    """Refuse a schedule that decays without knowing when it ends."""
    if settings.schedule == "constant":
        return
    if total_steps is None or total_steps <= settings.warmup_steps:
        raise AgentError(
            f"total_steps is {total_steps}: a {settings.schedule} schedule needs the number of steps "
            f"of the whole run, more than its warmup_steps ({settings.warmup_steps})"
        )


def peak_learning_rate(settings: OptimiserSettings) -> float:
    """The learning rate after the warm-up; a `Policy` has set the usual one if the recipe has none."""
    if settings.learning_rate is None:
        raise AgentError("learning_rate is null: the optimiser does not know the size of the model")
    return settings.learning_rate


MAIN_GRADIENT = "main_gradient"
"""Attribute of a weight in half precision: a function to the place where its gradient is added up."""


def main_gradient(weight: Tensor) -> Tensor | None:
    """Where a backward pass may add a weight's gradient itself, in fp32, instead of returning it.

    None if the weight has its gradient in its own precision or none. A large gradient is then never held
    in half precision as well (Megatron's `main_grad` serves the same end).
    """
    find = getattr(weight, MAIN_GRADIENT, None)
    found: Tensor | None = None if find is None else find()
    return found


def add_in_parts(total: Tensor, summand: Tensor) -> None:
    """Add in place; on a CPU torch would first make a copy of the summand in the total's precision."""
    if summand.is_sparse:
        total.add_(summand.float())
        return
    if type(total) is not Tensor or summand.numel() <= ADDED_AT_ONCE:  # a sharded one is small
        total.add_(summand)
        return
    rows = max(1, ADDED_AT_ONCE * len(summand) // summand.numel())
    for part, added in zip(torch.split(total, rows), torch.split(summand, rows), strict=True):
        part.add_(added)


def _after_its_gradient(parameter: nn.Parameter, hook: Callable[[Tensor], None]) -> None:
    """Call the hook as soon as a backward pass has set the weight's gradient.

    torch never lets go of what a hook refers to, so it must not be the weight.
    """
    parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]


def _call(method: WeakMethod[Callable[[str], T]], name: str, *_: Tensor) -> T | None:
    """What the method finds for a weight; None if its optimiser is gone."""
    return None if (alive := method()) is None else alive(name)


class Optimiser:
    """One agent's optimiser.

    Weights in half precision get a master copy in fp32: updates of 1e-6 would be lost to rounding. Their
    gradients are turned into fp32 one by one during a backward pass, so that there are never two of all.
    Weights that are sharded over ranks stay sharded, and so do their gradients and moments.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        settings: OptimiserSettings,
        total_steps: int | None = None,
    ) -> None:
        """`total_steps` of the whole run: a linear or cosine schedule has to know them."""
        _check_schedule(settings, total_steps)
        self._settings = settings
        self._peak = peak_learning_rate(settings)
        self._total_steps = total_steps
        self.parameters = dict(parameters)
        self._masters = {
            name: parameter if parameter.dtype == torch.float32 else nn.Parameter(parameter.detach().float())
            for name, parameter in self.parameters.items()
        }
        for name, parameter in self.parameters.items():
            if self._masters[name] is not parameter:
                _after_its_gradient(parameter, partial(_call, WeakMethod(self._collect), name))
                setattr(parameter, MAIN_GRADIENT, partial(_call, WeakMethod(self._main_gradient), name))
        masters = list(self._masters.values())
        fused = bool(masters) and masters[0].device.type in ("cpu", "cuda")
        self._adamw = torch.optim.AdamW(
            masters, self._peak, settings.betas, weight_decay=settings.weight_decay, fused=fused
        )
        self._updates = torch.tensor(0)

    @property
    def updates(self) -> int:
        """Number of updates made so far."""
        return int(self._updates)

    def learning_rate(self, steps_done: float | None) -> float:
        """Of an update after so many steps of the run; None will do if it is always the same."""
        settings = self._settings
        if settings.schedule == "constant" and not settings.warmup_steps:
            return self._peak
        if steps_done is None:
            raise AgentError("a learning rate with warm-up or decay follows the steps: pass steps_done")
        return self._peak * learning_rate_factor(settings, steps_done, self._total_steps)

    def gradients(self) -> dict[str, Tensor]:
        """The sum since the last step, in fp32, of every weight that has a gradient."""
        self.collect_gradients()
        return {name: m.grad for name, m in self._masters.items() if m.grad is not None}

    def collect_gradients(self) -> None:
        """Add gradients in half precision to those of the master copies; call it after every backward pass.

        Added up in half precision, small contributions of many micro-batches would be lost. Most have been
        added during the pass; those of sharded weights come later.
        """
        for name in self.parameters:
            self._collect(name)

    @torch.no_grad()
    def _collect(self, name: str) -> None:
        parameter, master = self.parameters[name], self._masters[name]
        if master is parameter or parameter.grad is None:
            return
        gradient, parameter.grad = parameter.grad, None
        if master.grad is None and not gradient.is_sparse:
            master.grad = gradient.float()
        else:
            add_in_parts(self._main_gradient(name), gradient)

    def _main_gradient(self, name: str) -> Tensor:
        master = self._masters[name]
        if master.grad is None:
            master.grad = torch.zeros_like(master)
        return master.grad

    def gradient_norm(self) -> Tensor:
        """Norm over all gradients, before clipping."""
        return whole(nn.utils.get_total_norm(list(self.gradients().values())))

    def step(self, gradient_norm: Tensor, steps_done: float | None = None) -> bool:
        """Clip the gradients to the maximum norm and update the weights -> whether that was done.

        Without any gradient AdamW would still follow its momentum and decay the weights. Such an update is
        skipped, so that not even the moments change, unless the settings want it as it is.
        """
        learning_rate = self.learning_rate(steps_done)
        self.collect_gradients()
        if not bool(gradient_norm):
            self.discard_gradients()  # there may be none or zeros, which is the same for a skipped update
            if self._settings.skip_empty_updates:
                return False
            for master in self._masters.values():
                master.grad = torch.zeros_like(master)
        with_gradient = [master for master in self._masters.values() if master.grad is not None]
        nn.utils.clip_grads_with_norm_(with_gradient, self._settings.max_grad_norm, gradient_norm)
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate
        self._adamw.step()
        self.refresh()
        self.discard_gradients()
        self._updates += 1
        return True

    def discard_gradients(self) -> None:
        """Forget all gradients."""
        for parameter in (*self.parameters.values(), *self._masters.values()):
            parameter.grad = None

    def move(self, device: torch.device) -> None:
        """Move the master copies and the moments to another device; the weights move with the model."""
        for name, master in self._masters.items():
            if master is not self.parameters[name]:
                # AdamW identifies it by object identity, and the data of a sharded one cannot be set.
                moved = nn.Parameter(master.detach().to(device))
                torch.utils.swap_tensors(master, moved)  # type: ignore[no-untyped-call]
            moments = self._adamw.state.get(master, {})
            moments.update({key: value.to(device) for key, value in moments.items()})

    def tensors(self) -> dict[str, Tensor]:
        """Weights, moments and the number of updates: not copied, this rank's part if sharded."""
        tensors = {"updates": self._updates}
        for name, master in self._masters.items():
            tensors[f"{WEIGHT}{name}"] = master.detach()
            for key, value in self._adamw.state.get(master, {}).items():
                tensors[f"{key}/{name}"] = value
        return tensors

    def keep_moments(self, names: Container[str]) -> None:
        """Keep moments of these weights only; those AdamW has not made yet, at its first update, are 0."""
        for name, master in self._masters.items():
            if name not in names:
                self._adamw.state.pop(master, None)
            elif master not in self._adamw.state:
                self._adamw.state[master] = {
                    "step": torch.zeros((), device=master.device),
                    "exp_avg": torch.zeros_like(master),
                    "exp_avg_sq": torch.zeros_like(master),
                }

    @torch.no_grad()
    def refresh(self) -> None:
        """Bring weights in half precision up to date with their master copies."""
        for name, parameter in self.parameters.items():
            if self._masters[name] is not parameter:
                parameter.copy_(self._masters[name])
