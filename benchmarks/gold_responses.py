"""The gold answers of a data set as a model would write them, to try a verifier on with `hacrl verify`."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import command
from hacrl.rewards.extract import gold_answer


def gold_responses(
    file: Annotated[Path, typer.Argument(help="JSONL file with the column `answer`.")],
    shuffle: Annotated[
        int | None, typer.Option(metavar="SEED", help="Give every question the response of another one.")
    ] = None,
) -> None:
    """Print every gold answer of a data set as a response, for `hacrl verify`.

    Each row of the output has `answer`, `response`, and `same`: whether both say the same, letter by letter.
    """
    golds = [json.loads(line)["answer"] for line in file.read_text(encoding="utf-8").strip().split("\n")]
    answers = [gold_answer(gold) for gold in golds]
    if shuffle is not None:
        random.Random(shuffle).shuffle(answers)
    for gold, answer in zip(golds, answers, strict=True):
        response = f"The answer is \\boxed{{{answer}}}."
        print(json.dumps({"answer": gold, "response": response, "same": gold_answer(gold) == answer}))


app = command(gold_responses)

if __name__ == "__main__":
    app()
