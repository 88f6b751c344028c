"""What models can do before training."""

import pytest

from benchmarks.abilities import CANDIDATES, Abilities, Ability, _table, with_examples
from hacrl.types import Prompt

SHOWN = Prompt("a", "1 and 1?", columns={"answer": "2", "equation": "1 + 1 = 2"})


@pytest.mark.parametrize(("style", "answer"), [("answer", "2"), ("equation", "1 + 1 = 2"), ("solution", "2")])
def test_examples_come_before_the_prompt_in_the_style_they_have(style, answer):
    asked = with_examples(Prompt("b", "2 and 3?", columns={"answer": "5"}), [SHOWN], style)
    assert asked.text == f"Q: 1 and 1?\nA: {answer}\n\nQ: 2 and 3?\nA:"
    assert asked.columns == {"answer": "5"}


def test_there_are_many_different_candidates_with_test_prompts_of_their_own():
    assert len({candidate.label for candidate in CANDIDATES}) == len(CANDIDATES) >= 15
    task = CANDIDATES[0].load(12)
    assert len(task.test) == 12
    assert not {prompt.text for prompt in task.train} & {prompt.text for prompt in task.test}


def test_a_row_has_a_cell_for_every_model():
    found = [Ability("sums", "one", 0.25, 0.5, 0.75), Ability("sums", "two", 1.0, 0.0, 0.125)]
    table = _table(Abilities(40, 4, 2, "equation", False, found))
    assert table.rows == [("sums", "0.25 / 0.50 / 0.75", "1.00 / 0.00 / 0.12")]
