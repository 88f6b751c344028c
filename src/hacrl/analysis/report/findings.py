"""What a reader should look at first: signs of trouble in the numbers, each with its meaning and a remedy.

What looks wrong is data: `AGENT_CHECKS` and `PAIR_CHECKS`, applied to a run's last steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hacrl.analysis.report.series import Column

LATELY = 10
"""Steps at the end of a run that a finding is about."""
CLOSED = 0.05
"""Accepted share of a peer's responses below which the learner hardly learns from it."""
FLAT = 0.8
"""Share of prompts with equal rewards above which most sampling is wasted."""
CUT = 0.1
"""Share of responses cut at the token limit that deserves a word."""

Finding = dict[str, str]
_PAIR = re.compile(r"cross/(.+)->(.+?)/(.+)")


@dataclass(frozen=True, slots=True)
class Check:
    """A metric whose mean over the last steps looks wrong when `wrong` says so."""

    metric: str
    """Without `agent/NAME/` or `cross/SOURCE->LEARNER/`."""
    wrong: Callable[[float], bool]
    title: str
    """Of an agent: with {agent} and {share}. Of pairs: with {learner} and {sources}."""
    text: str
    """What it means and what to do."""
    needs_window: bool = False
    """Only where updates had a window for peers' ratios."""


AGENT_CHECKS = (
    Check(
        "frac_reward_zero_std",
        lambda value: value > FLAT,
        "{agent}: {share} of its prompts had equal rewards",
        "When all responses of a group get the same reward, every advantage is 0 and nothing is learned from "
        "the prompt. The task is too easy or too hard at this point, or samples_per_prompt is too small.",
    ),
    Check(
        "capability",
        lambda value: value <= 0,
        "{agent} has capability 0",
        "It had no success in the last steps: it can only learn from its peers' responses, and omega is at "
        "the end of its range. Easier prompts can give it a first success.",
    ),
    Check(
        "completions/clipped_ratio",
        lambda value: value > CUT,
        "{agent}: {share} of its responses were cut at the token limit",
        "A response that was cut is usually scored as wrong. Raise sampling.max_new_tokens, or look in the "
        "browser of responses whether the agent no longer ends its responses.",
    ),
    Check(
        "unscored",
        lambda value: value >= 1,
        "{agent}: some of its responses could not be scored",
        "They are left out of training, never counted as wrong. The metrics unscorable/... name the causes.",
    ),
)
PAIR_CHECKS = (
    Check(
        "inside",
        lambda value: value < CLOSED,
        "{learner} hardly learns from {sources}",
        f"In the last steps less than {CLOSED:.0%} of these responses had a ratio inside the window; the "
        "others give no gradient. Widen the method's window, or make fewer updates per step "
        "(updates.mini_batches). Agents that have drifted far apart may have little to learn from each "
        "other.",
        needs_window=True,
    ),
)


def findings(agents: Sequence[str], series: Mapping[str, Column], *, windowed: bool) -> list[Finding]:
    """Findings about the last steps of a run; `windowed`: its update log has windows for peers' ratios."""
    pairs = [check for check in PAIR_CHECKS if windowed or not check.needs_window]
    found = [finding for check in pairs for finding in _pair_findings(check, series)]
    return found + [
        finding for agent in agents for check in AGENT_CHECKS for finding in _of_agent(check, agent, series)
    ]


def losses(outcomes: Mapping[str, Any] | None) -> list[Finding]:
    """Measures that are lower after the run than before by more than their 95% intervals."""
    return [
        {
            "title": f"{agent} got worse: {name} on {task} {before['mean']:.3f} to {after['mean']:.3f}",
            "text": "The 95% intervals before and after do not overlap. A lower learning rate, a KL term "
            "(optimiser.kl) or a checkpoint from before the fall may help.",
        }
        for agent, outcome in (outcomes or {}).items()
        for task, values in outcome["tasks"].items()
        for name, before, after in _measured_twice(values)
        if after["high"] < before["low"]
    ]


def _measured_twice(values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for measure, after in values["after"].items():
        before = (values["before"] or {}).get(measure)
        if before:
            yield measure.replace("_at_k", f"@{values['samples']}"), before, after


def _of_agent(check: Check, agent: str, series: Mapping[str, Column]) -> Iterator[Finding]:
    value = _lately(series.get(f"agent/{agent}/{check.metric}", []))
    if value is not None and check.wrong(value):
        yield {"title": check.title.format(agent=agent, share=f"{value:.0%}"), "text": check.text}


def _pair_findings(check: Check, series: Mapping[str, Column]) -> Iterator[Finding]:
    """One finding for each learner, with all sources for which the check fails."""
    failed: dict[str, list[str]] = {}
    for key, column in series.items():
        match = _PAIR.fullmatch(key)
        value = _lately(column)
        if match and match[3] == check.metric and value is not None and check.wrong(value):
            failed.setdefault(match[2], []).append(f"{match[1]} ({value:.1%})")
    for learner, sources in sorted(failed.items()):
        title = check.title.format(learner=learner, sources=", ".join(sources))
        yield {"title": title, "text": check.text}


def _lately(column: Column) -> float | None:
    values = [value for value in column if value is not None][-LATELY:]
    return sum(values) / len(values) if values else None
