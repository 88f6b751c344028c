"""What differs between two recipes, for a run that is to be resumed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hacrl.config.problems import shown

MAY_CHANGE = re.compile(
    r"logging\b|checkpoint\b|evaluation\b"  # look at the run, do not touch it
    r"|sampling\.max_rows$|updates\.(tokens_per_micro_batch|gradient_checkpointing)$|agents\..*\.device$"
    r"|reward\.(deadline_seconds|max_unscorable)$"
)
"""Keys that do not change what a run computes (up to rounding): a resumed run may set them anew."""

ABSENT = "not set"


def recipe_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line for every key that must not change between `resolved()` recipes of one run, but does.

    Agents are matched by name: their order means nothing. `steps` may change while the schedule is constant.
    """
    before, after = dict(_flat(old)), dict(_flat(new))
    keys = [key for key in {**before, **after} if not MAY_CHANGE.match(key)]
    if {flat.get("optimiser.schedule") for flat in (before, after)} == {"constant"}:
        keys.remove("steps")
    return [
        f"{key}: {before.get(key, ABSENT)} before, {after.get(key, ABSENT)} now"
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _flat(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Dotted key and shown value of every leaf; lists of plain values are leaves."""
    if path == "agents" and isinstance(value, list):
        value = {agent["name"]: agent for agent in value}
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else key)
    else:
        yield path, shown(value)
