"""The verifiers by name, and those that need more than the response's final answer.

A verifier is called with a response, the reference (`gold`) and its settings, and returns the reward. It is a
function, or a class: then an instance is called, and the class imports an optional package when it is made.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hacrl.own_code import load_named


@dataclass(frozen=True, slots=True)
class Verifier:
    """Where a verifier is found and how it has to be run."""

    path: str
    """`module:function` or `module:Class`; the module is imported where the verifier runs."""
    gold: str = "answer"
    """The column with the reference."""
    in_process: bool = False
    """Fast, and safe for any response: it may run in the trainer."""
    runs_response: bool = False
    """It executes the response: each one in a process of its own. If that process dies, the reward is 0."""
    extractor: str | None = None
    """`module:function` that returns what of a response is compared with the reference; it is safe to run in
    any process."""

    def load(self) -> Callable[..., float]:
        """The function itself."""
        return load(self.path)

    def extracted(self, response: str) -> str | None:
        """What of the response is compared with the reference; None: it finds nothing. Without an extractor
        all of it is."""
        found = response if self.extractor is None else load(self.extractor)(response)
        return None if found is None or found == "" else str(found)


_ANSWERS, _EXTRACT = "hacrl.rewards.answers", "hacrl.rewards.extract"
VERIFIERS = {
    "exact": Verifier(f"{_ANSWERS}:exact", in_process=True, extractor=f"{_ANSWERS}:stripped"),
    "boxed": Verifier(f"{_ANSWERS}:boxed", in_process=True, extractor=f"{_EXTRACT}:last_boxed"),
    "numeric": Verifier(f"{_ANSWERS}:numeric", in_process=True, extractor=f"{_ANSWERS}:given_number"),
    "choice": Verifier(f"{_ANSWERS}:choice", in_process=True, extractor=f"{_ANSWERS}:given_letter"),
    "regex": Verifier(f"{_ANSWERS}:regex"),
    "math": Verifier("hacrl.rewards.mathematics:verify", extractor=f"{_EXTRACT}:final_answer"),
    "json_schema": Verifier(f"{__name__}:JsonSchema"),
    "python_tests": Verifier(f"{__name__}:python_tests", runs_response=True),
    "reasoning_gym": Verifier(f"{__name__}:ReasoningGym", gold="reasoning_gym"),
}


def get_verifier(name: str) -> Verifier:
    """Look a verifier up by name; the error for an unknown name lists all known ones."""
    try:
        return VERIFIERS[name]
    except KeyError:
        raise ValueError(f"there is no verifier {name!r}; choose one of {', '.join(VERIFIERS)}") from None


def load(path: str) -> Callable[..., Any]:
    """Import `module:function`, or import `module:Class` and make an instance."""
    found = load_named(path)
    return found() if isinstance(found, type) else found  # type: ignore[no-any-return]


def python_tests(response: str, gold: Any) -> float:
    """1.0 when the response's code (its last fenced block, or else all of it) passes all tests.

    `gold` is Python source that raises when the code is wrong, for example `assert`s, or a list of such.

    This executes what a model wrote. It must run in a confined worker process that is used once, never in the
    trainer: `runs_response` in the registry ensures it.
    """
    source = "\n".join(gold) if isinstance(gold, list) else str(gold)
    tests = compile(source, "<tests>", "exec")
    namespace: dict[str, Any] = {"__name__": "response"}
    try:
        exec(compile(_last_block(response, "python|py"), "<response>", "exec"), namespace)  # noqa: S102
        exec(tests, namespace)  # noqa: S102
    except BaseException:  # also SystemExit: code that exits early has not passed
        return 0.0
    return 1.0


class JsonSchema:
    """1.0 when the last fenced block, or else the whole response, is JSON valid under the schema `gold`."""

    def __init__(self) -> None:
        try:
            import jsonschema
        except ImportError as error:
            raise ImportError(
                "the verifier `json_schema` needs jsonschema: pip install 'hacrl[schema]'"
            ) from error
        self._validator_for = jsonschema.validators.validator_for

    def __call__(self, response: str, gold: Any) -> float:
        """The reward of one response."""
        schema = json.loads(gold) if isinstance(gold, str) else gold
        validator = self._validator_for(schema)
        validator.check_schema(schema)
        try:
            document = json.loads(_last_block(response, "json"))
        except (ValueError, RecursionError):
            return 0.0
        return float(validator(schema).is_valid(document))


class ReasoningGym:
    r"""The task's own score of `<answer>...</answer>`, `\boxed{...}`, `####`, or else of the whole response.

    `gold` is `{"dataset": name, "entry": the data set's entry}`.
    """

    def __init__(self) -> None:
        try:
            import reasoning_gym
            from reasoning_gym.utils import extract_answer
        except ImportError as error:
            raise ImportError(
                "the verifier `reasoning_gym` needs reasoning-gym: pip install 'hacrl[gym]'"
            ) from error
        from hacrl.rewards.extract import marked_answer  # not needed by every worker

        self._extractors: tuple[Callable[[str], str | None], ...] = (extract_answer, marked_answer, str.strip)
        self._scorer = functools.cache(reasoning_gym.get_score_answer_fn)

    def __call__(self, response: str, gold: Any) -> float:
        """The reward of one response."""
        answer = next(filter(None, (extract(response) for extract in self._extractors)), "")
        score: Callable[..., float] = self._scorer(gold["dataset"])
        return float(score(answer=answer, entry=gold["entry"]))


def _last_block(response: str, languages: str) -> str:
    """The last fenced block without a language or in one of them, or else the whole response."""
    blocks = re.findall(rf"```(?:{languages})?[ \t]*\n(.*?)```", response, re.DOTALL)
    return blocks[-1] if blocks else response
