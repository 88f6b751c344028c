"""What every method's section of a recipe has."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from hacrl.recipe.settings import AtLeast0, Settings

Share = Annotated[float, Field(ge=0, le=1)]


class MethodSettings(Settings):
    """What every method has. The paper's clip of the sequence ratio is everybody's default."""

    name: str
    clip_low: Share = 3e-4
    """Clip of the ratio of own responses below 1."""
    clip_high: AtLeast0 = 4e-4
    """Clip of the ratio of own responses above 1."""

    def settings(self) -> dict[str, Any]:
        """Everything but the name."""
        return self.model_dump(exclude={"name"})

    @property
    def shares(self) -> bool:
        """Whether agents learn from their peers' responses."""
        return True

    def rollout_factor(self, agents: int) -> int:
        """How many times the recipe's samples per prompt are drawn by each of so many agents."""
        return 2 if self.name.endswith("_x2") else 1

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """Optimiser updates of an agent in one step that hears so many of the others."""
        return mini_batches * (1 + peers)
