"""`make demo`: one simulated HACPO step, number by number. No model is trained here."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from hacrl.algorithm import Capability, HacpoParams, advantages, hacpo_loss, window_lower

AGENTS = ("small", "medium", "large")
SKILL = torch.tensor([0.2, 0.4, 0.7])
PROMPTS, SAMPLES = 64, 8


def main() -> None:
    """Simulate the rewards and ratios of one step and print what HACPO makes of them."""
    console = Console()
    random = torch.Generator().manual_seed(0)
    console.print("[bold]One simulated HACPO step[/bold]: random rewards and ratios, no model is trained.\n")
    rewards = (torch.rand(3, PROMPTS, SAMPLES, generator=random) < SKILL[:, None, None]).double()
    capability = Capability(len(AGENTS))
    capability.update(rewards.mean((1, 2)))
    console.print(_capability_table(capability))
    _, baseline = advantages(rewards, capability.omega)
    own_mean = rewards.mean(-1)
    console.print(_baseline_table(baseline, own_mean))
    console.print(_window_table(random))


def _capability_table(capability: Capability) -> Table:
    table = Table(title="Capability, and omega of learner over source", title_justify="left")
    table.add_column("learner")
    table.add_column("P_hat", justify="right")
    for source in AGENTS:
        table.add_column(f"/ {source}", justify="right")
    for name, estimate, row in zip(AGENTS, capability.estimates, capability.omega, strict=True):
        table.add_row(name, f"{estimate:.3f}", *(f"{value:.2f}" for value in row))
    return table


def _baseline_table(baseline: Tensor, own_mean: Tensor) -> Table:
    """How far each baseline is, prompt by prompt, from the reward the agent really expects."""
    table = Table(
        title=f"Root-mean-square error of the baseline over {PROMPTS} prompts", title_justify="left"
    )
    for heading in ("learner", "own group's mean", "capability-aware"):
        table.add_column(heading, justify="left" if heading == "learner" else "right")
    for name, skill, own, together in zip(AGENTS, SKILL, own_mean, baseline, strict=True):
        errors = ((values - skill).square().mean().sqrt() for values in (own, together))
        table.add_row(name, *(f"{error:.3f}" for error in errors))
    return table


def _window_table(random: torch.Generator) -> Table:
    """The gradient peers' responses give as the stepwise window closes."""
    params = HacpoParams()
    table = Table(title="Peers' responses within one step (stepwise clipping)", title_justify="left")
    for heading in ("update", "window", "inside", "mean |gradient|"):
        table.add_column(heading, justify="right")
    logps = (-0.1 + 0.05 * torch.randn(512, 1, generator=random)).requires_grad_()
    ones = torch.ones(len(logps))
    for update in range(0, 10, 2):
        loss = hacpo_loss(logps, ones[:, None], 0 * ones, ones, 0 * ones, ones, update, params)
        (gradient,) = torch.autograd.grad(loss.sum(), logps)
        inside = (gradient != 0).double().mean()
        lower = window_lower(update, params)
        table.add_row(str(update), f"[{lower:.3f}, 1]", f"{inside:.0%}", f"{gradient.abs().mean():.3f}")
    return table


if __name__ == "__main__":
    main()
