"""Every agent answers prompts of its own."""

from __future__ import annotations

from collections.abc import Sequence

from hacrl.methods.base import Method
from hacrl.types import Prompt


class Divided(Method):
    """Agents answer as many prompts as otherwise, but no two of them the same."""

    def prompts_drawn(self, prompts_per_step: int, agents: int) -> int:
        """A share for every agent."""
        return prompts_per_step * agents

    def assign(self, prompts: Sequence[Prompt], agents: Sequence[str]) -> dict[str, list[Prompt]]:
        """Equal shares; the prompts of a step are in random order."""
        share = len(prompts) // len(agents)
        return {
            agent: list(prompts[place * share : (place + 1) * share])
            for place, agent in enumerate(sorted(agents))
        }
