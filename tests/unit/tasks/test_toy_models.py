import hashlib
import string
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.toy_models import accuracy
from hacrl import tasks
from hacrl.agents.policy import Policy
from hacrl.recipe.settings import SamplingSettings
from hacrl.tasks.procedural import load_procedural
from hacrl.tasks.task import TaskError
from hacrl.tasks.toy_models import models as toy_models
from hacrl.tasks.toy_models.models import AGENTS, COMMON, PAIRS, BaseAgent, Body
from hacrl.tasks.toy_models.pretraining import EVENLY, Stage, TaskStage, _batches
from hacrl.tasks.toy_models.tokenizers import make_tokenizer

ROOT = Path(__file__).parents[3]
TINY = BaseAgent(
    Body("llama", width=16, layers=1, heads=2, cut="digit-pairs"),
    (Stage(3, 3e-3, (1, 1, 1)), Stage(2, 3e-3, (1, 0, 0))),
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and two tiny forks as the only toy models."""
    other = replace(TINY, stages=(TINY.stages[0], Stage(2, 3e-3, (0, 0, 1))))
    monkeypatch.setattr(toy_models, "AGENTS", {"one": TINY, "two": other})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "hacrl" / "toy_models"


def digests(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def test_bits_do_not_depend_on_the_callers_threads_and_random_state(cache, monkeypatch, tmp_path):
    first = digests(toy_models.build("one"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    threads = torch.get_num_threads()
    torch.manual_seed(123)
    torch.set_num_threads(2)
    try:
        state = torch.get_rng_state()
        assert digests(toy_models.build("one")) == first
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert {"model.safetensors", "config.json", "tokenizer.json", "toy_model.json"} <= set(first)


def test_a_model_is_made_once_and_forks_share_their_first_stage(cache, monkeypatch):
    stages = []
    train = toy_models.train

    def recorded(model, tokenizer, stage, base):
        stages.append(stage)
        return train(model, tokenizer, stage, base)

    monkeypatch.setattr(toy_models, "train", recorded)
    one, two = toy_models.build("one"), toy_models.build("two")
    assert toy_models.build("one") == one != two
    assert [stage.weights for stage in stages] == [(1, 1, 1), (1, 0, 0), (0, 0, 1)]
    assert len(list(cache.iterdir())) == 3


def test_bases_are_independent_and_forks_of_one_base_still_share_it(cache):
    names = ("one", "one@0", "one@1", "two@1", "one@2")
    made = {name: toy_models.build(name) for name in names}
    assert made["one"] == made["one@0"]
    assert len({digests(made[name])["model.safetensors"] for name in names}) == 4
    assert len(list(cache.iterdir())) == 2 + 3 + 2, "with the first stages"
    stage = TINY.stages[0]
    drawn = [{question for batch in _batches(stage, base) for question, _ in batch} for base in (1, 2)]
    assert not drawn[0] & drawn[1] or len(drawn[0] & drawn[1]) < len(drawn[0]) / 2


@pytest.mark.parametrize("name", ["one@", "one@x", "one@-1", "one@1.5"])
def test_a_base_is_a_number(cache, name):
    with pytest.raises(TaskError, match="expected a number after '@', as in one@1"):
        toy_models.build(name)


def test_forks_differ_from_their_common_model_and_each_other(cache):
    toy_models.build("one"), toy_models.build("two")
    weights = {digests(directory)["model.safetensors"] for directory in cache.iterdir()}
    assert len(weights) == 3


def test_when_two_processes_make_the_same_model_the_first_one_is_kept(cache, monkeypatch):
    finish = toy_models._pretrained

    def overtaken(agent, label):
        made = finish(agent, label)
        directory = cache / toy_models._digest(agent)
        toy_models._publish(*made, agent, directory)
        (directory / "first").touch()
        return made

    monkeypatch.setattr(toy_models, "_pretrained", overtaken)
    assert (toy_models.build("one") / "first").exists()
    assert not list(cache.glob(".unfinished-*"))


def test_an_interrupted_training_leaves_nothing_in_the_cache(cache, monkeypatch):
    def interrupted(model, tokenizer, stage, base):
        yield 0
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(toy_models, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            toy_models.build("one")
    assert not cache.exists()
    AutoModelForCausalLM.from_pretrained(toy_models.build("one"))


def test_a_failure_to_write_is_reported(cache, monkeypatch):
    monkeypatch.setattr(
        toy_models.tempfile, "mkdtemp", lambda **_: (_ for _ in ()).throw(PermissionError("read-only"))
    )
    with pytest.raises(PermissionError, match="read-only"):
        toy_models.build("one")


def test_the_cache_key_changes_with_libraries_and_recipe(monkeypatch):
    seen = {toy_models._digest(agent) for agent in AGENTS.values()}
    assert len(seen) == len(AGENTS)
    monkeypatch.setattr(toy_models.transformers, "__version__", "5.99.0")
    assert toy_models._digest(AGENTS["state-a"]) not in seen


def test_the_error_for_an_unknown_name_lists_the_known_ones(cache):
    with pytest.raises(TaskError, match="there is no toy model 'three'; there are: one, two"):
        toy_models.build("three")


def test_pairs_differ_as_their_names_say():
    def bodies(kind):
        return [AGENTS[name].body for name in PAIRS[kind]]

    states = [AGENTS[f"state-{letter}"] for letter in "abcdefgh"]
    assert {(agent.body, agent.stages[0]) for agent in states} == {(toy_models.MEDIUM, COMMON)}
    small, large = bodies("size")
    assert small == replace(large, width=small.width)
    llama, qwen = bodies("model")
    assert (llama.architecture, llama.cut) != (qwen.architecture, qwen.cut)
    assert llama.cut != qwen.cut
    fresh = bodies("fresh")
    assert fresh[0].cut != fresh[1].cut
    assert not {*fresh} & {AGENTS[name].body for name in AGENTS if name not in PAIRS["fresh"]}
    assert {AGENTS[name].task for name in (*PAIRS["style"], *PAIRS["varied"])} == {"styles", "varied"}


def test_digests_of_established_agents_do_not_change(monkeypatch):
    monkeypatch.setattr(toy_models.torch, "__version__", "2.13.0+cpu")
    monkeypatch.setattr(toy_models.transformers, "__version__", "5.22.2")
    later = {*PAIRS["fresh"], *PAIRS["near"]}
    kept = [AGENTS[name] for name in AGENTS if AGENTS[name].task == "digits" and name not in later]
    together = hashlib.sha256("".join(map(toy_models._digest, kept)).encode()).hexdigest()
    assert together[:16] == "680e796abc7edb27"


@pytest.mark.parametrize(("column", "comma"), [("plain", False), ("commas", True)])
def test_a_stage_on_another_task_trains_on_its_column(column, comma):
    (batch,) = _batches(TaskStage(1, 1e-3, EVENLY, task="styles", column=column), 0)
    assert {"," in answer for _, answer in batch} == {comma}
    assert {question.split()[0] for question, _ in batch} == {"sort", "count", "add3"}
    answers = {prompt.text: prompt.columns[column] for prompt in load_procedural("styles", train=9000).train}
    assert all(answers[question] == answer for question, answer in batch)


def test_a_stage_on_reasoning_gym_never_sees_what_a_recipe_tests():
    pytest.importorskip("reasoning_gym", reason="needs the extra hacrl[gym]")
    recipe = yaml.safe_load((ROOT / "recipes/experiments/words.yaml").read_text())
    tested = {prompt.text for prompt in tasks.load(**recipe["task"]).test}
    for name in PAIRS["words"]:
        config = AGENTS[name].stages[-1].config
        batches = list(_batches(replace(AGENTS[name].stages[-1], steps=30), 1))
        answers = dict(pair for batch in batches for pair in batch)
        assert not tested & set(answers)
        assert {len(word) for word in answers.values()} == set(
            range(config["min_word_len"], config["max_word_len"] + 1)
        )
        assert all(question.endswith(f": {answer[::-1]}") for question, answer in answers.items())


@pytest.mark.parametrize("cut", ["characters", "digit-pairs"])
def test_tokenizers_add_one_bos_and_are_lossless(cut, tmp_path):
    make_tokenizer(cut).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)

    @given(st.text(alphabet=string.digits + string.ascii_letters + string.punctuation + " \n"))
    def round_trip(text):
        ids = tokenizer(text, split_special_tokens=True).input_ids
        assert ids.count(tokenizer.bos_token_id) == 1
        assert ids[0] == tokenizer.bos_token_id
        assert tokenizer.decode(ids, skip_special_tokens=True) == text

    round_trip()
    specials = {
        tokenizer.pad_token_id,
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
        tokenizer.unk_token_id,
    }
    assert len(specials) == 4


def test_tokenizers_split_text_differently():
    characters = make_tokenizer("characters").tokenize("sort 31265=")
    pairs = make_tokenizer("digit-pairs").tokenize("sort 31265=")
    assert characters == list("sort 31265=")
    assert pairs == [*"sort ", "31", "26", "5", "="]


@pytest.mark.slow
def test_toy_models_are_partly_competent_and_end_their_responses(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prompts = load_procedural("digits", test=240, seed=1).test
    names = ("state-a", "state-b", "complementary-a", "complementary-b")
    agents = {name: Policy.load(name, toy_models.build(name)) for name in names}
    score = {name: accuracy(agent, prompts, samples=1) for name, agent in agents.items()}
    for name in ("state-a", "state-b"):
        assert 0.2 < score[name]["mean"] < 0.45
        assert 0.38 < accuracy(agents[name], prompts, samples=1, greedy=True)["mean"] < 0.65
    assert score["complementary-a"]["sort"] > 0.6 > 0.05 > score["complementary-b"]["sort"]
    assert score["complementary-b"]["add3"] > 0.6 > 0.05 > score["complementary-a"]["add3"]
    rollouts = agents["state-a"].sample(prompts, 1, SamplingSettings(max_new_tokens=16), seed=0)
    assert sum(rollout.finish_reason == "stop" for rollout in rollouts) > 0.95 * len(rollouts)


@pytest.mark.slow
def test_style_agents_respond_in_one_style_only(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prompts = load_procedural("styles", test=240, seed=1).test
    for name, commas in (("style-a", False), ("style-b", True)):
        agent = Policy.load(name, toy_models.build(name))
        assert 0.55 < accuracy(agent, prompts, samples=1)["mean"] < 0.8
        texts = [
            rollout.text for rollout in agent.sample(prompts, 1, SamplingSettings(max_new_tokens=16), seed=0)
        ]
        assert sum(("," in text) == commas for text in texts) > 0.98 * len(texts)
