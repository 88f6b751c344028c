"""A forecast for people."""

from __future__ import annotations

from collections.abc import Sequence

from hacrl.analysis.doctor import AgentPlan
from hacrl.analysis.doctor.memory import in_units
from hacrl.analysis.simulate.forecast import StepCost
from hacrl.bench.tables import Table
from hacrl.recipe import Recipe


def forecast_tables(recipe: Recipe, plans: Sequence[AgentPlan], cost: StepCost) -> list[Table]:
    """Every agent, then the step as a whole."""
    agents = [
        (
            plan.name,
            str(plan.ranks),
            *(f"{seconds:.3g}" for seconds in (agent.sample, agent.gather, agent.update, agent.shard)),
            in_units(agent.rank_bytes),
            in_units(agent.loop_bytes),
            in_units(plan.memory.kept + plan.memory.passing) if plan.memory else "?",
        )
        for plan, agent in ((plan, cost.agents[plan.name]) for plan in plans)
    ]
    seconds = {
        "sample": cost.sample,
        "verify": cost.verify,
        "exchange": cost.exchange,
        "update": cost.update,
        "step": cost.total,
    }
    step = [(name, f"{value:.3g}", f"{value / cost.total:.0%}") for name, value in seconds.items()]
    hours = recipe.steps * cost.total / 3600
    order = "at the same time" if cost.together else "in turns"
    header = ("agent", "ranks", "sample", "gather", "update", "shard", "to a rank", "to the loop", "memory")
    return [
        Table("Seconds of one step; bytes moved in it; memory of each device", header, agents),
        Table(
            f"The step, agents {order}; {recipe.steps} steps take {hours:.3g} hours",
            ("phase", "seconds", "share"),
            step,
        ),
    ]
