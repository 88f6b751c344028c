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


def test_several_tasks_take_turns_each_with_its_own_config():
    config = {"spell_backward": {"min_word_len": 3, "max_word_len": 3}}
    task = tasks.load("gym:spell_backward+chain_sum", train=6, test=4, config=config)
    assert [prompt.kind for prompt in task.test] == ["spell_backward", "chain_sum"] * 2
    alone = tasks.load("gym:spell_backward", train=3, test=2, config=config["spell_backward"])
    assert questions(task.train)[::2] == questions(alone.train)
    assert {len(prompt.columns["answer"]) for prompt in task.train[::2]} == {3}
    other = task.train[1].columns["reasoning_gym"]
    assert other["dataset"] == other["entry"]["metadata"]["source_dataset"] == "chain_sum"


def test_by_text_no_seed_trains_on_what_another_tests():
    def drawn(seed, by_text):
        return tasks.load("gym:chain_sum", train=400, test=60, seed=seed, by_text=by_text, config=config)

    config = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    tested = set(questions(drawn(0, True).test))
    assert not tested & set(questions(drawn(1, True).train))
    assert tested & set(questions(drawn(1, False).train))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gym:sums", {}, "reasoning-gym has no task 'sums'; it has: ab, acre"),
        ("gym:chain_sum", {"config": {"terms": 2}}, "rejects config {'terms': 2}"),
        ("gym:chain_sum", {"train": 0}, "train must be at least 1, not 0"),
        ("gym:chain_sum+gcd", {"test": 3}, "test must be a positive multiple of 2, not 3"),
        ("gym:chain_sum+gcd", {"config": {"max_terms": 3}}, "config.max_terms is wrong: with several tasks"),
        ("gym:chain_sum+gcd", {"config": {"gcd": 3}}, "config.gcd is wrong: with several tasks"),
        ("gym:chain_sum+gcds", {}, "reasoning-gym has no task 'gcds'"),
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
