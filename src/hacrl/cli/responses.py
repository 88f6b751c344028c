"""What `hacrl eval` shows and writes of single responses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hacrl.printable import printable

if TYPE_CHECKING:
    from hacrl.rewards.verifiers import Verifier
    from hacrl.training.evaluation import ScoredResponse

LONGEST = 400
"""Characters shown of a text, half of them from its end: that is where the answer is."""
CUT_OFF, NO_ANSWER, WRONG = "cut off at the token limit", "no answer found", "wrong"
ADVICE = {
    CUT_OFF: "If they are unfinished, raise --max-new-tokens; if they go on after the answer, give --stop.",
    NO_ANSWER: "Say how to write the answer (--system-prompt, --prompt-template), or change --verifier.",
}


def verdict(response: ScoredResponse, extracted: str | None) -> str:
    """How the response counted, and of one that did not, what it looks like."""
    if response.reward is None:
        return f"could not be scored: {response.cause}"
    if response.reward > 0:
        return "right" if response.reward >= 1 else f"reward {response.reward:g}"
    if response.finish_reason == "length":
        return CUT_OFF
    return NO_ANSWER if extracted is None else WRONG


def shown(responses: Sequence[ScoredResponse], verifier: Verifier) -> Iterator[str]:
    """Lines for the terminal about some responses."""
    for response in responses:
        extracted = verifier.extracted(response.text)
        text = response.prompt.text
        yield f"prompt     {_shortened(text if isinstance(text, str) else text[-1]['content'])}"
        yield f"response   {_shortened(response.text)}"
        if verifier.extractor is not None:
            yield f"extracted  {'nothing' if extracted is None else _shortened(extracted)}"
        if (gold := response.prompt.columns.get(verifier.gold)) is not None:
            yield f"answer     {_shortened(str(gold))}"
        yield f"           {verdict(response, extracted)}"
        yield ""


def explanation(responses: Sequence[ScoredResponse], verifier: Verifier) -> Iterator[str]:
    """What the greedy responses look like if none of them counted; nothing otherwise."""
    greedy = [response for response in responses if response.greedy]
    if not greedy or any(response.reward for response in greedy):
        return
    counts = Counter(verdict(response, verifier.extracted(response.text)) for response in greedy)
    yield f"None of the {len(greedy)} greedy responses counted:"
    for found, count in counts.most_common():
        yield f"  {count:>5}  {found}. {ADVICE.get(found, '')}".rstrip()


def as_jsonl(responses: Sequence[ScoredResponse], verifier: Verifier) -> bytes:
    """All of the responses, one in a line."""
    lines = []
    for response in responses:
        extracted = verifier.extracted(response.text)
        row = {
            "prompt_id": response.prompt.id,
            "prompt": response.prompt.text,
            "answer": response.prompt.columns.get(verifier.gold),
            "greedy": response.greedy,
            "sample": response.sample,
            "response": response.text,
            "finish_reason": response.finish_reason,
            "extracted": extracted,
            "reward": response.reward,
            "verdict": verdict(response, extracted),
        }
        lines.append(json.dumps(row, default=str) + "\n")
    return "".join(lines).encode()


def _shortened(text: str) -> str:
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    return printable(text)
