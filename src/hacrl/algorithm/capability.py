"""Each agent's current capability, and the ratio omega between agents (paper, Section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hacrl.algorithm.checks import (
    LARGEST_REWARD,
    as_mask,
    check_count,
    check_finite,
    check_number,
    check_shapes,
)
from hacrl.defaults import CAPABILITY_FLOOR, CAPABILITY_WINDOW, OMEGA_CLAMP


class Capability:
    """Rolling mean of every agent's last batch means, and `omega[k, j] = P_hat[k] / P_hat[j]`.

    The caller chooses what a batch mean is: the mean reward of the batch (the paper), or the share of
    rewards above zero. An agent that was never scored counts as capability 0.
    """

    def __init__(
        self,
        agents: int,
        window: int = CAPABILITY_WINDOW,
        floor: float = CAPABILITY_FLOOR,
        clamp: tuple[float, float] = OMEGA_CLAMP,
    ) -> None:
        check_count("agents", agents, low=1)
        check_count("window", window, low=1)
        check_number("floor", floor, low=1e-30)
        check_number("clamp[0]", clamp[0], low=1e-30, high=1.0)
        check_number("clamp[1]", clamp[1], low=1.0)
        self.agents = agents
        self.window = window
        self.floor = floor
        self.clamp = clamp
        self._history: list[list[float]] = [[] for _ in range(agents)]

    def update(self, batch_means: Tensor | Sequence[float], scored: Tensor | None = None) -> None:
        """Take in one batch: the mean reward of every agent.

        `scored[n]` marks the agents that had a scored response; the others keep their window as it is.
        """
        means = torch.as_tensor(batch_means, dtype=torch.float64)
        scored = torch.ones_like(means, dtype=torch.bool) if scored is None else scored
        check_shapes(batch_means=(means, "n"), scored=(scored, "n"))
        scored = as_mask("scored", scored)
        if len(means) != self.agents:
            raise ValueError(f"batch_means: expected {self.agents} agents, got {len(means)}")
        check_finite("batch_means", torch.where(scored, means, 0.0), LARGEST_REWARD)
        for history, mean, is_scored in zip(self._history, means.tolist(), scored.tolist(), strict=True):
            if is_scored:
                history.append(mean)
                del history[: -self.window]

    @property
    def estimates(self) -> Tensor:
        """P_hat[n]: mean over the window, the current batch included."""
        means = [sum(history) / max(1, len(history)) for history in self._history]
        return torch.tensor(means, dtype=torch.float64)

    @property
    def omega(self) -> Tensor:
        """omega[k, j], floored and clamped; 1 on the diagonal."""
        floored = self.estimates.clamp(min=self.floor)
        return (floored[:, None] / floored[None, :]).clamp(*self.clamp)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume, as plain JSON values."""
        return {"window": self.window, "history": [list(history) for history in self._history]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state_dict`."""
        if state["window"] != self.window:
            raise ValueError(f"window: expected {self.window}, got {state['window']!r}")
        history = [[float(mean) for mean in means] for means in state["history"]]
        if len(history) != self.agents:
            raise ValueError(f"history: expected {self.agents} agents, got {len(history)}")
        for means in history:
            if len(means) > self.window:
                raise ValueError(f"history: expected at most {self.window} batches, got {len(means)}")
            check_finite("history", torch.tensor(means, dtype=torch.float64), LARGEST_REWARD)
        self._history = history
