import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.tasks import procedural
from hacrl.tasks.procedural import MIXTURE, NAMES, SKILLS, TASKS, load_procedural, split_of
from hacrl.tasks.task import TaskError


@pytest.mark.parametrize(
    ("skill", "listed", "text", "answer"),
    [
        ("sort", "3126", "sort 3126=", "1236"),
        ("count", "30131", "count 30131=", "011232"),
        ("add3", "0789", "add3 0789=", "3012"),
        ("reverse", "3120", "reverse 3120=", "0213"),
    ],
)
def test_questions_and_answers(skill, listed, text, answer):
    prompt = SKILLS[skill].prompt(listed)
    assert (prompt.text, prompt.columns["answer"], prompt.kind) == (text, answer, skill)


@given(st.text(alphabet="0123", min_size=3, max_size=6))
def test_count_is_undone_by_repeating_each_digit(listed):
    answer = SKILLS["count"].solve(listed)
    pairs = zip(answer[::2], answer[1::2], strict=True)
    assert "".join(digit * int(times) for digit, times in pairs) == "".join(sorted(listed))


def test_styles_asks_the_questions_of_digits_and_takes_either_style_but_no_mixture():
    digits, styles = load_procedural("digits", seed=3), load_procedural("styles", seed=3)
    assert (digits.verifier, styles.verifier) == ("exact", "regex")
    for plain, styled in zip(digits.test[:60], styles.test[:60], strict=True):
        assert (styled.id, styled.text, styled.kind) == (plain.id, plain.text, plain.kind)
        answer = plain.columns["answer"]
        commas = ",".join(answer)
        assert (styled.columns["plain"], styled.columns["commas"]) == (answer, commas)
        pattern = styled.columns["answer"]
        assert re.search(pattern, answer)
        assert re.search(pattern, commas)
        for wrong in (answer[::-1] + "0", answer + ",", "0" + answer, commas[2:], commas.replace(",", "", 1)):
            assert not re.search(pattern, wrong)


def is_pairs(listed, text):
    pairs = [text[place : place + 2] for place in range(0, len(text), 2)]
    return all(pair == 2 * pair[0] for pair in pairs) and sorted(pair[0] for pair in pairs) == sorted(listed)


def is_climb(listed, text):
    climbs = [text[place : place + 3] for place in range(0, len(text), 3)]
    return "".join(climb[0] for climb in climbs) == listed and all(
        len(climb) == 3 and climb == "".join(sorted(climb)) for climb in climbs
    )


@pytest.mark.parametrize(("skill", "is_right"), [("pairs", is_pairs), ("climb", is_climb)])
@given(listed=st.text(alphabet="0123456789", min_size=3, max_size=6), seed=st.integers())
def test_patterns_of_open_skills_take_exactly_the_right_answers(skill, is_right, listed, seed):
    columns = SKILLS[skill].columns(listed)
    example = columns["example"]
    assert is_right(listed, example)
    draw = random.Random(seed)
    place, digit = draw.randrange(len(example)), draw.choice("0123456789")
    shuffled = "".join(draw.sample(example, k=len(example)))
    changed = example[:place] + digit + example[place + 1 :]
    for text in (example, changed, shuffled, example + digit, example[:-1], example[2:] + example[:2]):
        assert bool(re.search(columns["answer"], text)) == is_right(listed, text)


@pytest.mark.parametrize("skill", TASKS["varied"], ids=lambda skill: skill.name)
def test_open_skills_have_many_right_answers_and_examples_that_vary(skill):
    pattern = skill.columns("0123")["answer"]
    texts = {
        "pairs": ["".join(2 * digit for digit in order) for order in itertools.permutations("0123")],
        "climb": [f"0{a}{b}1{b}92{b}93{b}9" for a in range(4) for b in range(3, 10)],
    }[skill.name]
    assert sum(re.search(pattern, text) is not None for text in texts) == len(texts) >= 24
    openings = {
        skill.columns(f"0123{last}{other}")["example"][:6] for last in range(10) for other in range(10)
    }
    assert len(openings) > 30


@pytest.mark.parametrize(
    ("skill", "listed", "text", "answer"),
    [
        ("plus", "4725", "plus 47 25=", "72"),
        ("plus", "999", "plus 99 9=", "108"),
        ("minus", "2547", "minus 25 47=", "-22"),
        ("larger", "12935", "larger 129 35=", "129"),
    ],
)
def test_questions_about_two_numbers(skill, listed, text, answer):
    prompt = SKILLS[skill].prompt(listed)
    assert (prompt.text, prompt.columns["answer"], prompt.kind) == (text, answer, skill)


@pytest.mark.parametrize("name", NAMES)
def test_splits_are_disjoint_across_seeds_and_lengths_and_hold_no_question_twice(name):
    tasks = [
        load_procedural(name, seed=seed, lengths=(3, longest)) for seed, longest in [(0, 6), (1, 6), (2, 7)]
    ]
    train = {prompt.text for task in tasks for prompt in task.train}
    test = {prompt.text for task in tasks for prompt in task.test}
    assert not train & test
    for task in tasks:
        for prompts in (task.train, task.test):
            assert len({prompt.id for prompt in prompts}) == len(prompts)


def test_same_seed_same_prompts_in_any_order_of_access():
    forwards, backwards = load_procedural("digits", seed=7).train, load_procedural("digits", seed=7).train
    assert [backwards[i] for i in range(299, -1, -1)] == forwards[299::-1]
    assert forwards[:50] != load_procedural("digits", seed=8).train[:50]


def test_a_larger_set_starts_with_the_smaller_one():
    assert load_procedural("sort", train=500).train[:300] == load_procedural("sort", train=300).train[:]


def test_prompts_are_drawn_only_when_asked_for(monkeypatch):
    drawn = []
    monkeypatch.setattr(procedural.DrawnPrompts, "_draw", lambda self: drawn.append(1))
    assert len(load_procedural("sort", train=200_000).train) == 200_000
    assert not drawn


def test_digits_takes_its_skills_in_turn():
    task = load_procedural("digits")
    assert [prompt.kind for prompt in task.train[:6]] == [*MIXTURE, *MIXTURE]
    assert "reverse" not in {prompt.kind for prompt in itertools.chain(task.train, task.test)}


def test_the_test_share_is_kept():
    prompts = [SKILLS["sort"].prompt(f"{number:04}") for number in range(10_000)]
    share = sum(split_of(prompt) == "test" for prompt in prompts) / len(prompts)
    assert abs(share - procedural.TEST_SHARE) < 0.02


def test_lengths_set_the_difficulty():
    lengths = {
        len(prompt.columns["answer"]) for prompt in load_procedural("sort", train=200, lengths=(3, 9)).train
    }
    assert lengths == set(range(3, 10))


@pytest.mark.parametrize(
    ("skill", "train", "test"),
    [("sort", 640, 160), ("count", 40, 10), ("add3", 640, 160), ("reverse", 640, 160)],
)
def test_as_many_as_allowed_can_be_drawn(skill, train, test):
    task = load_procedural(skill, train=train, test=test, lengths=(3, 3))
    assert len({prompt.id for prompt in [*task.train, *task.test]}) == train + test
    with pytest.raises(TaskError, match=f"{train + 1} train prompts asked for"):
        load_procedural(skill, train=train + 1, lengths=(3, 3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": 0}, "positive multiple of 3, not 0"),
        ({"test": 100}, "test must be a positive multiple of 3"),
        ({"lengths": (6, 3)}, r"lengths must be .* not \(6, 3\)"),
        ({"train": 30_000}, "'count': 10000 train prompts asked for"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, message):
    with pytest.raises(TaskError, match=message):
        load_procedural("digits", **settings)
