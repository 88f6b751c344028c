"""The verifiers by name. Each is a function `(response, gold, **settings) -> float`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verifier:
    """Where a verifier is found and how it has to be run."""

    path: str
    """`module:function`; the module is imported where it runs."""
    summary: str
    gold: str = "answer"
    """The column with the reference answer."""
    in_process: bool = False
    """Quick, and harmless whatever the response says: it may run in the trainer."""
    runs_answer: bool = False
    """It executes the response: each one in a process of its own, whose death is the response's failure."""

    def load(self) -> Callable[..., float]:
        """The function itself."""
        module, _, name = self.path.partition(":")
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


_ANSWERS = "hacrl.rewards.answers"
VERIFIERS = {
    "exact": Verifier(f"{_ANSWERS}:exact", "the whole response equals the reference", in_process=True),
    "boxed": Verifier(f"{_ANSWERS}:boxed", r"the last \boxed{} equals the reference", in_process=True),
    "numeric": Verifier(f"{_ANSWERS}:numeric", "the final number equals the reference", in_process=True),
    "choice": Verifier(f"{_ANSWERS}:choice", "the chosen letter is the reference", in_process=True),
    "regex": Verifier(f"{_ANSWERS}:regex", "the reference is a pattern found in the response"),
    "math": Verifier("hacrl.rewards.mathematics:verify", "the final answer means the same as the reference"),
    "json_schema": Verifier("hacrl.rewards.schema:verify", "the response is JSON valid under the reference"),
    "python_tests": Verifier(
        "hacrl.rewards.code:verify", "the response's code passes the reference's tests", runs_answer=True
    ),
    "reasoning_gym": Verifier(
        "hacrl.rewards.gym:verify", "the score of the reasoning-gym task", gold="reasoning_gym"
    ),
}


def get_verifier(name: str) -> Verifier:
    """Look a verifier up; an unknown name is answered with all known ones."""
    try:
        return VERIFIERS[name]
    except KeyError:
        raise ValueError(f"there is no verifier {name!r}; choose one of {', '.join(VERIFIERS)}") from None
