import pytest

from hacrl import tasks
from hacrl.rewards.answers import numeric
from hacrl.tasks.task import TaskError
from hacrl.tasks.word_problems import OPERATIONS, Template, kinds, solve


@pytest.mark.parametrize(
    ("steps", "numbers", "found"),
    [
        (("a + b",), {"a": 3, "b": 4}, {"x": 7}),
        (("a + b",), {"a": 30, "b": 24}, None),  # more than the largest
        (("a - b",), {"a": 3, "b": 4}, None),
        (("a / b",), {"a": 12, "b": 4}, {"x": 3}),
        (("a / b",), {"a": 13, "b": 4}, None),
        (("a mod b",), {"a": 13, "b": 4}, {"x": 1}),
        (("a mod b",), {"a": 12, "b": 4}, None),  # nothing is left over
        (("a * 60",), {"a": 3}, {"x": 180}),  # only the 3 is bounded
        (("a * b", "x - c"), {"a": 3, "b": 4, "c": 5}, {"x": 12, "y": 7}),
        (("a max b", "x max c"), {"a": 3, "b": 4, "c": 5}, {"x": 4, "y": 5}),
        (("a max b", "x max c"), {"a": 3, "b": 5, "c": 5}, None),
    ],
)
def test_steps_are_solved_where_the_numbers_fit(steps, numbers, found):
    expected = None if found is None else numbers | found
    assert solve(Template("", steps), numbers, largest=50) == expected


def test_every_kind_has_twelve_templates_and_all_are_different():
    texts = [template.text for kind in kinds().values() for template in kind.templates]
    assert all(len(kind.templates) >= 12 for kind in kinds().values())
    assert len(set(texts)) == len(texts)
    signs = {step.split()[1] for kind in kinds().values() for each in kind.templates for step in each.steps}
    assert signs == set(OPERATIONS)


def test_training_and_test_questions_have_neither_text_nor_template_in_common():
    first, second = tasks.load("word_problems"), tasks.load("word_problems", seed=1, largest=100)
    train = {prompt.text for task in (first, second) for prompt in task.train}
    test = {prompt.text for task in (first, second) for prompt in task.test}
    assert not train & test
    for kind in kinds().values():
        assert not set(kind.for_split("train", None)) & set(kind.for_split("test", None))
        assert len(kind.for_split("train", 2)) == 2
    assert first.train[:50] == tasks.load("word_problems").train[:50]
    assert not {prompt.id for prompt in first.train} & {prompt.id for prompt in first.test}


@pytest.mark.parametrize("kind", kinds())
def test_questions_tell_what_their_answers_need_and_solutions_end_with_the_answer(kind):
    task = tasks.load("word_problems", kinds=[kind], train=90, test=30)
    assert task.verifier == "numeric"
    for prompt in [*task.train, *task.test]:
        answer, solution = prompt.columns["answer"], prompt.columns["solution"]
        assert prompt.kind == kind
        assert "{" not in prompt.text
        assert numeric(f" {answer}", answer) == numeric(solution, answer) == 1.0
        assert numeric(f"{int(answer) + 1}", answer) == 0.0
        *_, last = equations = prompt.columns["equation"].split(", ")
        assert last.endswith(f" = {answer}")
        for equation in equations:
            left, sign, right, _, result = equation.split()
            assert OPERATIONS[sign](int(left), int(right)) == int(result)


def test_golden_questions():
    task = tasks.load("word_problems", kinds=["addition", "two_step"], train=4, test=2, largest=20)
    assert [(prompt.text, prompt.columns["answer"]) for prompt in task.train[:2]] == GOLDEN
    assert [prompt.kind for prompt in task.train] == ["addition", "two_step"] * 2


GOLDEN = [
    ("Ida has 2 books and buys 12 more. How many books does Ida have now?", "14"),
    ("Zoe has 6 cards, buys 12 more and gives 16 away. How many cards does Zoe have now?", "2"),
]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ["adition"]}, "no kind 'adition'; there are: addition"),
        ({"kinds": []}, "at least one"),
        ({"kinds": ["time", "time"]}, "different names"),
        ({"kinds": ["time", "money"], "train": 3}, "train must be a positive multiple of 2, not 3"),
        ({"test": 0}, "test must be a positive multiple of 12"),
        ({"largest": 5}, "largest must be at least 15"),
        ({"templates": 0}, "templates at least 1"),
        ({"kinds": ["units"], "train": 9000}, "of 9000 different questions found for the kind 'units'"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, message):
    with pytest.raises(TaskError, match=message):
        tasks.load("word_problems", **settings)
