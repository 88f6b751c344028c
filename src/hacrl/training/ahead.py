"""Responses that are drawn one step ahead, kept until their step comes.

Those of the next step are drawn by the weights before this step's updates. So they do not depend on when they
are drawn: before the updates, or by an engine with devices of its own while the updates run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hacrl.types import EngineCheck, Rollout


@dataclass(frozen=True, slots=True)
class DrawnAhead:
    """One agent's responses to the prompts of a later step."""

    step: int
    fingerprint: str
    """Of the weights that drew them."""
    rollouts: tuple[Rollout, ...]


class SampledAhead:
    """All agents' responses to the next step's prompts; a checkpoint holds them."""

    def __init__(self) -> None:
        self._drawn: dict[str, DrawnAhead] = {}
        self.started: set[str] = set()
        """Agents whose responses are being drawn; none between two steps."""

    def keep(self, agent: str, drawn: DrawnAhead) -> None:
        """Until the agent's next step."""
        self._drawn[agent] = drawn

    def take(self, agent: str, step: int) -> DrawnAhead | None:
        """The agent's responses of this step; None: they have not been drawn."""
        drawn = self._drawn.pop(agent, None)
        return drawn if drawn is not None and drawn.step == step else None

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; plain JSON values."""
        return {agent: asdict(drawn) for agent, drawn in sorted(self._drawn.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What `state_dict` returned."""
        self._drawn = {
            agent: DrawnAhead(found["step"], found["fingerprint"], tuple(map(_rollout, found["rollouts"])))
            for agent, found in state.items()
        }


def _rollout(found: Mapping[str, Any]) -> Rollout:
    engine = found["engine"] and EngineCheck(**found["engine"])
    tokens = {key: tuple(found[key]) for key in ("token_ids", "token_logps")}
    return Rollout(**{**found, **tokens, "engine": engine})
