"""Building a team: the order of prompts, and whose tokens are the same."""

import pickle

import pytest

from hacrl.agents.rendering import Rendering
from hacrl.recipe import MethodSettings, RecipeError, parse_recipe
from hacrl.training.prompt_lengths import short_enough
from hacrl.training.prompt_order import PromptOrder
from hacrl.training.team_setup import build_team, tokenizer_of
from hacrl.types import Prompt
from helpers_sharing import byte_level_bpe, char_level
from helpers_train import make_agent

PROMPTS = [Prompt(str(number), f"question {number}") for number in range(10)]


def ids(order, step):
    return [prompt.id for prompt in order.batch(step)]


def test_an_epoch_passes_over_all_prompts_but_a_remainder_once():
    order = PromptOrder(PROMPTS, 3, seed=0)
    assert order.steps_per_epoch == 3
    for epoch in range(3):
        seen = [prompt for step in range(1, 4) for prompt in ids(order, 3 * epoch + step)]
        assert len(seen) == len(set(seen)) == 9


def test_a_batch_depends_on_seed_and_step_alone():
    forwards, backwards = PromptOrder(PROMPTS, 4, seed=1), PromptOrder(PROMPTS, 4, seed=1)
    expected = [ids(forwards, step) for step in range(1, 9)]
    assert [ids(backwards, step) for step in range(8, 0, -1)] == expected[::-1]
    assert [ids(PromptOrder(PROMPTS, 4, seed=2), step) for step in range(1, 9)] != expected
    assert expected[:2] != expected[2:4]  # every epoch has an order of its own


def test_more_prompts_per_step_than_there_are_is_an_error():
    with pytest.raises(ValueError, match="prompts_per_step is 11, but the task has only 10"):
        PromptOrder(PROMPTS, 11, seed=0)


def recipe(*models: str, method: str = "opd"):
    agents = [{"name": f"agent-{n}", "model": model} for n, model in enumerate(models)]
    return parse_recipe({"agents": agents, "task": "digits", "method": method})


def test_agents_read_each_others_tokens_if_their_vocabularies_are_equal(tmp_path):
    tokenizer = byte_level_bpe()
    for name in ("one", "same"):
        tokenizer.save_pretrained(tmp_path / name)
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(tmp_path / "other")
    one, same, other = (Rendering(tokenizer_of(str(tmp_path / name))) for name in ("one", "same", "other"))
    assert one.vocabulary == same.vocabulary == pickle.loads(pickle.dumps(one)).vocabulary
    assert one.vocabulary != other.vocabulary


def test_settings_without_loss_terms_are_not_a_method():
    settings = recipe("toy:state-a").model_copy(update={"method": MethodSettings(name="module:Class")})
    with pytest.raises(RecipeError, match=r"method: 'module:Class' is not a method: derive it from"):
        build_team(settings)


def test_gpus_that_are_not_here_are_named_by_their_keys_before_anything_is_made():
    values = recipe("toy:adder", "toy:adder", method="gspo").resolved()
    values["agents"][1]["device"] = "cuda:99"
    with pytest.raises(RecipeError, match=r"agents\.1\.device: expected cpu or auto, got 'cuda:99': there "):
        build_team(parse_recipe(values))


def test_prompts_that_are_too_long_for_any_agent_are_left_out():
    chars, words = Rendering(char_level()), Rendering(byte_level_bpe())
    prompts = [Prompt(str(length), "1" * length) for length in (1, 4, 9)]
    lengths = [[len(encoder.encode_prompt(prompt)) for prompt in prompts] for encoder in (chars, words)]
    limit = max(both[1] for both in lengths)
    with pytest.warns(UserWarning, match=f"1 of 3 training prompts have more than {limit} tokens"):
        assert short_enough(prompts, [chars, words], limit) == prompts[:2]
    assert short_enough(prompts, [chars, words], 1000) == prompts


def test_a_limit_that_leaves_too_few_prompts_is_named():
    settings = {"agents": [{"name": "a", "model": "toy:state-a"}], "task": "digits", "max_prompt_tokens": 1}
    with (
        pytest.warns(UserWarning, match="more than 1 tokens"),
        pytest.raises(ValueError, match="has only 0 training prompts"),
    ):
        build_team(parse_recipe(settings))


def test_evaluation_tasks_of_one_name_are_told_apart(tmp_path):
    agent = {"name": "a", "model": str(make_agent(tmp_path / "a", seed=0))}
    more = [{"name": "sort", "test": 6}, {"name": "sort", "lengths": [7, 7], "test": 6}, "reverse"]
    values = {"agents": [agent], "task": "sort", "method": "gspo", "evaluation": {"tasks": more}}
    team = build_team(parse_recipe(values))
    try:
        assert [task.name for task in team.evaluation_tasks] == ["sort", "sort (2)", "sort (3)", "reverse"]
    finally:
        team.close()


def test_peers_without_a_model_take_part_in_a_run_alone(tmp_path):
    """Without a directory for replies, as for an audit, no server is asked and no file is opened."""
    recipe = parse_recipe(
        {
            "agents": [
                {"name": "ada", "model": str(make_agent(tmp_path / "ada", 1))},
                {
                    "name": "eve",
                    "model": "m",
                    "source": {"url": "http://127.0.0.1:9/v1", "key_env": "NO_KEY"},
                },
                {"name": "log", "source": {"file": str(tmp_path / "missing.jsonl")}},
            ],
            "task": {"name": "digits", "train": 300, "test": 3},
            "method": "commons",
        }
    )
    team = build_team(recipe)
    team.close()
    assert [member.name for member in team.members] == ["ada"]
    assert team.names == ("ada", "eve", "log")
    assert team.topology["ada"] == ("eve", "log")
    assert not (tmp_path / "replies").exists()
