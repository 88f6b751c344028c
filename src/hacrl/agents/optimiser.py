"""AdamW with clipping and a learning-rate schedule; its state is a flat mapping of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hacrl.agents.ranks import spread_like, whole, whole_copy
from hacrl.agents.settings import Optimisation


def learning_rate_factor(settings: Optimisation, update: int) -> float:
    """Share of the peak learning rate at an update counted from 0: linear warm-up, then the schedule."""
    if update < settings.warmup_updates:
        return update / settings.warmup_updates
    if settings.schedule == "constant":
        return 1.0
    assert settings.total_updates is not None
    done = (update - settings.warmup_updates) / (settings.total_updates - settings.warmup_updates)
    if settings.schedule == "linear":
        return max(0.0, 1.0 - done)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * min(1.0, done))))


class Optimiser:
    """One agent's optimiser.

    Weights in half precision get a master copy in fp32: their rounding would swallow a learning rate of 1e-6.
    Weights that are sharded over ranks stay so, with their gradients and moments; the state is always whole.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], settings: Optimisation) -> None:
        self._settings = settings
        self._parameters = dict(parameters)
        self._masters = {
            name: parameter if parameter.dtype == torch.float32 else nn.Parameter(parameter.detach().float())
            for name, parameter in self._parameters.items()
        }
        masters = list(self._masters.values())
        fused = bool(masters) and masters[0].device.type in ("cpu", "cuda")
        self._adamw = torch.optim.AdamW(
            masters, settings.learning_rate, settings.betas, weight_decay=settings.weight_decay, fused=fused
        )
        self.updates = 0

    @property
    def learning_rate(self) -> float:
        """What the next update uses."""
        return self._settings.learning_rate * learning_rate_factor(self._settings, self.updates)

    def gradient_norm(self) -> Tensor:
        """Norm over all gradients, before clipping."""
        gradients = [p.grad for p in self._parameters.values() if p.grad is not None]
        return whole(nn.utils.get_total_norm(gradients))

    def step(self, gradient_norm: Tensor) -> None:
        """Clip the gradients to the maximal norm and update the weights."""
        with_gradient = [p for p in self._parameters.values() if p.grad is not None]
        nn.utils.clip_grads_with_norm_(with_gradient, self._settings.max_grad_norm, gradient_norm)
        for name, parameter in self._parameters.items():
            if self._masters[name] is not parameter and parameter.grad is not None:
                self._masters[name].grad = parameter.grad.float()
        for group in self._adamw.param_groups:
            group["lr"] = self.learning_rate
        self._adamw.step()
        self._copy_masters()
        self.discard_gradients()
        self.updates += 1

    def discard_gradients(self) -> None:
        """Forget all gradients."""
        for parameter in (*self._parameters.values(), *self._masters.values()):
            parameter.grad = None

    @torch.no_grad()
    def _copy_masters(self) -> None:
        for name, parameter in self._parameters.items():
            if self._masters[name] is not parameter:
                parameter.copy_(self._masters[name])

    def move(self, device: torch.device) -> None:
        """Keep the master copies and the moments on another device; the weights are the model's."""
        for name, master in self._masters.items():
            if master is not self._parameters[name]:
                master.data = master.data.to(device)
            moments = self._adamw.state.get(master, {})
            moments.update({key: value.to(device) for key, value in moments.items()})

    def state(self) -> dict[str, Tensor]:
        """A copy on the CPU of the weights, the moments and the position in the schedule.

        Of several ranks only the first gets it, but all have to ask.
        """
        tensors = {"updates": torch.tensor(self.updates)}
        for name, master in self._masters.items():
            tensors[f"weight/{name}"] = master.detach()
            for key, value in self._adamw.state.get(master, {}).items():
                tensors[f"{key}/{name}"] = value
        copies = {key: whole_copy(value) for key, value in tensors.items()}
        return {key: copied for key, copied in copies.items() if copied is not None}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on exactly where `state` was taken."""
        weights = {name for key, _, name in (entry.partition("/") for entry in tensors) if key == "weight"}
        if weights != set(self._masters):
            odd = sorted(weights ^ set(self._masters))
            raise ValueError(
                "the training state belongs to another model or to other LoRA settings: "
                f"{len(odd)} weights are in one of the two only, {odd[0]!r} for example"
            )
        for name, master in self._masters.items():
            with torch.no_grad():
                master.copy_(spread_like(tensors[f"weight/{name}"].to(master.device), master))
            moments = {
                key: spread_like(tensors[f"{key}/{name}"].to(master.device), master)
                for key in ("exp_avg", "exp_avg_sq")
                if f"{key}/{name}" in tensors
            }
            if moments:
                moments["step"] = tensors[f"step/{name}"].clone().to(master.device)
            self._adamw.state[master] = moments
        self._copy_masters()
        self.updates = int(tensors["updates"])
