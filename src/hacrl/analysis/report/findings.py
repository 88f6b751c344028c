"""What a reader should look at first: signs of trouble in the numbers, each with its meaning and a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hacrl.analysis.report.series import Column

LATELY = 10
"""Steps at the end of a run that a finding is about."""
CLOSED = 0.05
"""Accepted share of a peer's responses below which it hardly teaches."""
FLAT = 0.8
"""Share of prompts with equal rewards above which most sampling is wasted."""
CUT = 0.1
"""Share of responses cut at the token limit that deserves a word."""

Finding = dict[str, str]
_PAIR = re.compile(r"cross/(.+)->(.+)/inside")


def findings(agents: Sequence[str], series: Mapping[str, Column], *, windowed: bool) -> list[Finding]:
    """Findings about the last steps of a run, from its metrics; `windowed`: its method has a window."""
    found = [*_pairs(series)] if windowed else []
    for agent in agents:
        for metric, holds, title, text in _AGENT:
            value = _lately(series.get(f"agent/{agent}/{metric}", []))
            if value is not None and holds(value):
                found.append({"title": title.format(agent=agent, share=f"{value:.0%}"), "text": text})
    return found


def losses(outcomes: Mapping[str, Any] | None) -> list[Finding]:
    """Measures that are lower after the run than before by more than their 95% intervals."""
    found = []
    for agent, outcome in (outcomes or {}).items():
        for task, values in outcome["tasks"].items():
            for measure, after in values["after"].items():
                before = (values["before"] or {}).get(measure)
                if before and after["high"] < before["low"]:
                    name = measure.replace("_at_k", f"@{values['samples']}")
                    found.append(
                        {
                            "title": f"{agent} got worse: {name} on {task} {before['mean']:.3f} to "
                            f"{after['mean']:.3f}",
                            "text": "The 95% intervals before and after do not overlap. A lower learning "
                            "rate, a KL term (optimiser.kl) or a checkpoint from before the fall may help.",
                        }
                    )
    return found


def _pairs(series: Mapping[str, Column]) -> Iterator[Finding]:
    """One finding for each learner that hardly hears some of its peers."""
    closed: dict[str, list[str]] = {}
    for key, column in series.items():
        match = _PAIR.fullmatch(key)
        value = _lately(column)
        if match and value is not None and value < CLOSED:
            closed.setdefault(match[2], []).append(f"{match[1]} ({value:.1%})")
    for learner, sources in sorted(closed.items()):
        yield {
            "title": f"{learner} hardly learns from {', '.join(sources)}",
            "text": f"In the last steps less than {CLOSED:.0%} of these answers had a ratio inside the "
            "window; the others give no gradient. A larger method.delta or a smaller method.delta_step opens "
            "the window; fewer updates.mini_batches keep it open longer. Agents that have drifted far apart "
            "may have little to teach each other.",
        }


_AGENT: tuple[tuple[str, Callable[[float], bool], str, str], ...] = (
    (
        "frac_reward_zero_std",
        lambda value: value > FLAT,
        "{agent}: {share} of its prompts had equal rewards",
        "When all answers of a group get the same reward, every advantage is 0 and the prompt teaches "
        "nothing. The task is too easy or too hard at this point, or samples_per_prompt is too small.",
    ),
    (
        "capability",
        lambda value: value <= 0,
        "{agent} has capability 0",
        "It had no success in the last steps. Its peers' answers are its only lessons, and omega stands at "
        "the end of its range. Easier prompts, or a larger method.delta, can give it a first success.",
    ),
    (
        "completions/clipped_ratio",
        lambda value: value > CUT,
        "{agent}: {share} of its answers were cut at the token limit",
        "A cut answer is usually scored as wrong. Raise sampling.max_new_tokens, or look in the browser of "
        "responses whether the agent no longer ends its answers.",
    ),
    (
        "unscored",
        lambda value: value >= 1,
        "{agent}: some of its answers could not be scored",
        "They are left out of training, never counted as wrong. The metrics unscorable/... name the causes.",
    ),
)


def _lately(column: Column) -> float | None:
    values = [value for value in column if value is not None][-LATELY:]
    return sum(values) / len(values) if values else None
