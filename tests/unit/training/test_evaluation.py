"""Evaluations: shares and the outcomes of single problems they are made of."""

import json
from dataclasses import replace

import pytest

from hacrl.recipe.settings import SamplingSettings
from hacrl.rewards.scores import Score
from hacrl.training.evaluation import Evaluation, evaluate, share
from hacrl.types import Prompt, Rollout

PROMPTS = [Prompt(f"p{number}", "?", kind="even" if number % 2 == 0 else "odd") for number in range(4)]


class Scripted:
    """Gives fixed responses, greedy and sampled."""

    def __init__(self, greedy, samples):
        self._greedy, self._samples = greedy, samples

    def sample(self, prompts, samples, sampling, seed):
        responses = [[text] for text in self._greedy] if sampling.is_greedy else self._samples
        return [
            Rollout(prompt.id, number, text, (1,), (0.0,), "stop")
            for prompt, texts in zip(prompts, responses, strict=True)
            for number, text in enumerate(texts)
        ]


class Rewards:
    """The reward is the number in the response; "?" cannot be scored."""

    def score(self, prompts, completions, token_ids):
        return [Score(None, "timeout") if text == "?" else Score(float(text), None) for text in completions]


@pytest.fixture
def result():
    agent = Scripted(["1", "0", "?", " 1"], [["1", "0"], ["0", "0"], ["?", "1"], ["?", "?"]])
    return evaluate(agent, PROMPTS, Rewards(), SamplingSettings(max_new_tokens=4), samples=2, seed=0)


def test_problems_and_shares_agree(result):
    assert result.problems.ids == ["p0", "p1", "p2", "p3"]
    assert result.problems.greedy == [1.0, 0.0, None, 1.0]
    assert result.problems.mean_at_k == [0.5, 0.0, 1.0, None]
    assert result.problems.pass_at_k == [1.0, 0.0, 1.0, None]
    assert result.greedy == share([1.0, 0.0, 1.0])
    assert result.greedy_by_kind == {"even": share([1.0]), "odd": share([0.0, 1.0])}
    assert result.mean_at_k == share([0.5, 0.0, 1.0])
    assert result.unscorable == 4


def test_equal_responses_have_equal_digests(result):
    first, second, _, last = result.problems.responses
    assert first == last, "white space around a response does not count"
    assert first != second


def test_an_evaluation_survives_json(result):
    values = json.loads(json.dumps(result.as_dict()))
    assert values == result.as_dict()
    assert Evaluation.from_dict(values) == result


def test_an_evaluation_of_an_older_run_is_read(result):
    values = result.as_dict()
    values["problems"]["answers"] = values["problems"].pop("responses")
    assert Evaluation.from_dict(values) == result


def test_entropy_is_minus_the_mean_log_prob_of_the_samples():
    class Sure(Scripted):
        def sample(self, prompts, samples, sampling, seed):
            rollouts = super().sample(prompts, samples, sampling, seed)
            return [replace(r, token_logps=(-0.5, -1.0 * r.sample)) for r in rollouts]

    agent = Sure(["1"] * 4, [["1", "0"]] * 4)
    result = evaluate(agent, PROMPTS, Rewards(), SamplingSettings(max_new_tokens=4), samples=2, seed=0)
    assert result.problems.entropy == [1.0] * 4  # log-probs -0.5 and -1.5
    assert result.entropy == 1.0


def test_many_samples_of_the_first_prompts_alone():
    class Asked(Scripted):
        def sample(self, prompts, samples, sampling, seed):
            self._samples = [["0"] * (samples - 1) + [str(int(prompt.id == "p1"))] for prompt in prompts]
            return super().sample(prompts, samples, sampling, seed)

    settings = SamplingSettings(max_new_tokens=4)
    result = evaluate(Asked(["1"] * 4, []), PROMPTS, Rewards(), settings, samples=2, seed=0, many=(8, 3))
    assert result.problems.pass_at_many == [0.0, 1.0, 0.0]
    assert (result.pass_at_many, result.many) == (share([0.0, 1.0, 0.0]), 8)
    assert Evaluation.from_dict(json.loads(json.dumps(result.as_dict()))) == result
