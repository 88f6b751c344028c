"""The outcomes of a run in few bytes: a character per problem, readable with zcat.

A run's summary repeats the ids of the problems for every agent, method and seed. Here they are kept once in a
file; what is left of an evaluation are strings like `0110-`: one problem a character, `-` where nothing could
be scored. Sampled accuracy is kept as the number of right samples, so no outcome is rounded.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""Counts up to 61."""
UNSCORED = "-"
COUNTED = {"greedy": 1, "mean_at_k": None, "pass_at_k": 1, "pass_at_many": 1}
"""Columns of shares by the largest count behind one; None: the evaluation's samples."""
EXACT = 1e-9

Column = str | list[float | None]
Values = dict[str, Any]


def pack_column(values: Sequence[float | None], most: int) -> Column:
    """Shares of `most` as one digit each; as they are if they are no such shares."""
    counts = [None if value is None else value * most for value in values]
    whole = all(count is None or abs(count - round(count)) < EXACT for count in counts)
    if not whole or not 0 < most < len(DIGITS):
        return list(values)
    return "".join(UNSCORED if count is None else DIGITS[round(count)] for count in counts)


def unpack_column(packed: Column, most: int) -> list[float | None]:
    """Back from `pack_column`."""
    if not isinstance(packed, str):
        return packed
    return [None if digit == UNSCORED else DIGITS.index(digit) / most for digit in packed]


def pack_evaluations(agents: Mapping[str, Values]) -> Values:
    """Task -> agent -> what was found, from agent -> task -> evaluation (as `Evaluation.as_dict`)."""
    return {
        task: {
            "groups": _groups([_responses(agents[name][task]["problems"]) for name in agents]),
            "agents": {name: _pack(agents[name][task]) for name in agents},
        }
        for task in next(iter(agents.values()), {})
    }


def unpack_evaluations(packed: Values, ids: Mapping[str, list[str]]) -> dict[str, Values]:
    """Back from `pack_evaluations`, with what comparisons read; `ids` are the problems of each task."""
    found: dict[str, Values] = {}
    for task, kept in packed.items():
        for name, groups in zip(kept["agents"], kept["groups"], strict=True):
            found.setdefault(name, {})[task] = _unpack(kept["agents"][name], groups, ids[task])
    return found


def _pack(evaluation: Values) -> Values:
    """Without shares and their intervals, which follow from the columns."""
    problems, samples = evaluation["problems"], evaluation["samples"]
    columns = {
        key: pack_column(problems[key], most or samples)
        for key, most in COUNTED.items()
        if problems.get(key) is not None
    }
    kinds = {kind: round(share["mean"], 6) for kind, share in evaluation["greedy_by_kind"].items()}
    if problems.get("entropy") is not None:
        columns["entropy"] = problems["entropy"]
    return {"samples": samples, "many": evaluation.get("many", 0), "kinds": kinds, **columns}


def _unpack(packed: Values, groups: str, ids: list[str]) -> Values:
    samples = packed["samples"]
    columns = {
        key: unpack_column(packed[key], most or samples) if key in packed else None
        for key, most in COUNTED.items()
    }
    entropy = packed.get("entropy")
    whole = (groups, entropy, *(columns[key] for key in columns if key != "pass_at_many"))
    if any(values is not None and len(values) != len(ids) for values in whole):
        raise ValueError("outcomes and problems differ in number")
    shares = {key: None if values is None else _mean(values) for key, values in columns.items()}
    return {
        **shares,
        "greedy_by_kind": {kind: {"mean": mean} for kind, mean in packed["kinds"].items()},
        "samples": samples,
        "many": packed["many"],
        "problems": {"ids": ids, "responses": list(groups), "entropy": entropy, **columns},
    }


def _mean(values: Sequence[float | None]) -> Values:
    scored = [value for value in values if value is not None]
    return {"mean": sum(scored) / len(scored) if scored else 0.0, "problems": len(scored)}


def _responses(problems: Values) -> list[str]:
    found: list[str] = problems.get("responses") or problems["answers"]
    return found


def _groups(responses: Sequence[Sequence[str]]) -> list[str]:
    """Per agent a digit for every problem: the first agent with the same greedy response.

    Only whether two agents respond alike is compared; the responses themselves would take most of the room.
    """
    columns = list(zip(*responses, strict=True))
    return [
        "".join(DIGITS[column.index(response)] for response, column in zip(own, columns, strict=True))
        for own in responses
    ]
