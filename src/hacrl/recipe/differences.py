"""What differs between two recipes, for a run that is to be resumed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hacrl.recipe.problems import shown

MAY_CHANGE = re.compile(
    r"logging\b|checkpoint\b|evaluation\b|audit\b"  # look at the run, do not touch it
    r"|runtime\b|agents\..*\.resources\b"  # where it is computed
    r"|agents\..*\.source\.(url|key_env|concurrency|requests_per_minute|timeout_seconds|retries)$"
    r"|agents\..*\.engine\.(url|key_env|weights_folder|concurrency|timeout_seconds|retries)$"
    r"|sampling\.max_rows$|updates\.(tokens_per_micro_batch|gradient_checkpointing)$|agents\..*\.device$"
    r"|reward\.(deadline_seconds|max_unscorable)$"
    r"|exchange\.pool\.(url|key_env|password_env|wait_seconds|wait_for|start_seconds)$"  # the same pool
)
"""Keys that do not change what a run computes (up to rounding): a resumed run may set them anew."""


def recipe_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line for every key that must not change between `resolved()` recipes of one run, but does.

    Agents are matched by name: their order means nothing. `steps` may change while the schedule is constant.
    A key that is not there is off or `auto` (null, false, 0, empty): older versions did not know all keys.
    """
    before, after = dict(_flat(old)), dict(_flat(new))
    may_extend = {flat.get("optimiser.schedule") for flat in (before, after)} == {"constant"}
    return [
        f"{key}: {_shown(before, key)} before, {_shown(after, key)} now"
        for key in {**before, **after}
        if not _same(before, after, key) and not MAY_CHANGE.match(key) and not (key == "steps" and may_extend)
    ]


def _same(before: Mapping[str, object], after: Mapping[str, object], key: str) -> bool:
    if key in before and key in after:
        return before[key] == after[key]
    known, other = (before, after) if key in before else (after, before)
    section = key.rpartition(".")[0]
    same_section = any(there.rpartition(".")[0] == section for there in other)
    return known[key] in (None, "auto") or (same_section and not known[key])


def _shown(flat: Mapping[str, object], key: str) -> str:
    return shown(flat[key]) if key in flat else "not set"


def _flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Dotted key and value of every leaf; lists are leaves, but for the agents."""
    if path == "agents" and isinstance(value, list):
        value = {agent["name"]: agent for agent in value}
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value
