import json

import pytest

from hacrl import tasks
from hacrl.tasks import TaskError

reasoning_gym = pytest.importorskip("reasoning_gym", reason="needs the extra hacrl[gym]")


def questions(prompts):
    return [prompt.text for prompt in prompts]


def test_questions_are_distinct_and_disjoint_and_follow_the_seed():
    # One-digit sums of two terms: so few that draws overlap and duplicates must be removed.
    config = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    task = tasks.load("gym:chain_sum", train=100, test=50, config=config)
    everything = questions(task.train) + questions(task.test)
    assert len(set(everything)) == 150
    assert len({prompt.id for prompt in (*task.train, *task.test)}) == 150
    again = tasks.load("gym:chain_sum", train=100, test=50, config=config)
    assert questions(again.train) + questions(again.test) == everything
    other = tasks.load("gym:chain_sum", train=100, test=50, config=config, seed=1)
    assert questions(other.train) != questions(task.train)


def test_an_entry_holds_what_the_scorer_needs():
    task = tasks.load("gym:countdown", train=3, test=2)
    for prompt in task.test:
        reference = prompt.columns["reasoning_gym"]
        entry = json.loads(json.dumps(reference["entry"]))
        score = reasoning_gym.get_score_answer_fn(reference["dataset"])
        assert score(prompt.columns["answer"], entry) == 1.0
        assert score("1", entry) < 1.0
    assert (task.verifier, prompt.kind) == ("reasoning_gym", "countdown")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gym:sums", {}, "reasoning-gym has no task 'sums'; it has: ab, acre"),
        ("gym:chain_sum", {"config": {"terms": 2}}, "rejects config {'terms': 2}"),
        ("gym:chain_sum", {"train": 0}, "must be at least 1, not 0"),
        ("gym:rearc", {"train": 1, "test": 1}, "its scorer cannot score an entry that was sent as JSON"),
        (
            "gym:chain_sum",
            {"config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}, "train": 800},
            "of 800 distinct questions found; ask for fewer",
        ),
    ],
)
def test_unusable_settings_are_reported(name, settings, message):
    with pytest.raises(TaskError, match=message):
        tasks.load(name, **settings)
