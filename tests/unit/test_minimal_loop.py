"""examples/minimal_loop.py equals the library: on the same responses the same rows, losses, weights."""

import ast
import importlib.util
import random
import sys
from pathlib import Path

import pytest
import torch

from hacrl.agents.rendering import Rendering
from hacrl.algorithm import Capability, HacpoParams
from hacrl.recipe import parse_recipe
from hacrl.sharing.reencode import Learner, Reencoder
from hacrl.training.step import train_step
from hacrl.training.team_setup import build_team
from hacrl.types import Prompt, Trajectory
from helpers_states import saved_tensors
from helpers_train import make_agent, recipe, short_answers

EXAMPLE = Path(__file__).parents[2] / "examples" / "minimal_loop.py"
LEARNING_RATE, DELTA = 1e-4, 0.8

TEAMS = {
    "two": {"ada": ("llama", "characters"), "bob": ("qwen3", "characters")},
    "two-tokenizers": {"ada": ("llama", "characters"), "bob": ("qwen3", "digit-pairs")},
    "three": {
        "ada": ("llama", "digit-pairs"),
        "bob": ("qwen3", "characters"),
        "cyd": ("llama", "characters"),
    },
}


@pytest.fixture(scope="module")
def minimal():
    specification = importlib.util.spec_from_file_location("minimal_loop", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    sys.modules["minimal_loop"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    yield module
    del sys.modules["minimal_loop"]


@pytest.fixture(params=TEAMS)
def directories(request, tmp_path):
    """Agents with different weights."""
    return {
        name: make_agent(tmp_path / name, seed, arch=arch, cut=cut)
        for seed, (name, (arch, cut)) in enumerate(TEAMS[request.param].items())
    }


@pytest.fixture
def team(directories):
    settings = recipe(
        directories,
        prompts_per_step=5,
        optimiser={"learning_rate": LEARNING_RATE, "kl": 0.0},
        method={"name": "hacpo", "delta": DELTA},
        exchange={"peer_order": "sequential"},
    )
    team = build_team(parse_recipe(settings), reward_funcs=[short_answers])
    yield team
    team.close()


def as_responses(minimal, team, record):
    """The library's rollouts of a step as `responses[j][b][i]`."""
    responses = [[[] for _ in record.prompts] for _ in team.names]
    place = {prompt.id: b for b, prompt in enumerate(record.prompts)}
    for t in sorted(record.trajectories, key=lambda t: t.sample):
        response = minimal.Response(
            t.text, t.reward, list(t.token_ids), list(t.token_logps), t.finish_reason == "stop"
        )
        responses[team.names.index(t.source)][place[t.prompt_id]].append(response)
    return responses


def in_library_form(rows):
    return [
        (list(r.prompt_ids), list(r.response_ids), r.own, r.source_mean_logp, r.advantage, r.omega)
        for r in rows
    ]


def weights(agent):
    return {name: parameter.detach().clone() for name, parameter in agent.model.named_parameters()}


def test_steps_are_those_of_the_library(minimal, team, directories, tmp_path):
    agents = [minimal.load(str(directories[name]), LEARNING_RATE) for name in team.names]
    before = [weights(agent) for agent in agents]
    capability = Capability(len(agents))
    for step in (1, 2):  # the second step sees the first one's capabilities and moments
        record = train_step(team, step)
        asked = [(prompt.text, prompt.columns["answer"]) for prompt in record.prompts]
        shared = minimal.share(agents, capability, asked, as_responses(minimal, team, record))
        assert torch.equal(capability.omega, record.omega)
        for agent, name, batches in zip(agents, team.names, shared, strict=True):
            expected = [in_library_form(rows) for rows in record.batches[name].mini_batches]
            assert [[tuple(vars(row).values()) for row in rows] for rows in batches] == expected
            losses = [
                minimal.update(agent, rows, m, HacpoParams(delta=DELTA)) for m, rows in enumerate(batches)
            ]
            assert losses == pytest.approx([report.loss for report in record.reports[name]], abs=1e-5)
            assert any(losses)
    for agent, member, start in zip(agents, team.members, before, strict=True):
        member.policy.write_state(tmp_path / "states" / member.name)
        learned, moved = saved_tensors(tmp_path / "states" / member.name), 0.0
        for name, weight in weights(agent).items():
            torch.testing.assert_close(weight, learned[f"weight/{name}"], rtol=0, atol=1e-5)
            moved = max(moved, (weight - start[name]).abs().max().item())
        assert moved > 2 * LEARNING_RATE  # far more than the tolerance


@pytest.mark.parametrize(
    ("text", "tokens", "ended"),
    [
        ("", [2], True),  # only EOS
        ("1236", [5, 6, 7, 10, 2], True),
        ("1236", [5, 6, 7, 10], False),
        ("12</s>", [5, 6, 7, 8, 9, 10, 2], True),  # a special token's name is only text
        ("1é", [5, 6, 2], True),  # the learner has no token for it
        ("", [1, 1], False),  # nothing but special tokens
    ],
)
def test_peers_responses_are_rewritten_as_the_library_does(minimal, tmp_path, text, tokens, ended):
    agent = minimal.load(str(make_agent(tmp_path / "ada", 0, cut="digit-pairs")))
    logps = [-0.5 * number for number in range(1, len(tokens) + 1)]
    written, compared = minimal.rewrite(agent, minimal.Response(text, 1.0, tokens, logps, ended))
    learner = Learner("ada", Rendering(agent.tokenizer))
    trajectory = Trajectory(
        1, "p", "bob", 0, "", text, 1.0, "stop" if ended else "length", tuple(tokens), tuple(logps)
    )
    encoded = Reencoder(learner, {"p": Prompt("p", "?")}).encode(trajectory)
    assert written == ([] if isinstance(encoded, str) else list(encoded.response_ids))
    assert compared == list(trajectory.exchanged_logps)


def test_responses_have_the_log_probs_of_their_tokens(minimal, tmp_path):
    agent = minimal.load(str(make_agent(tmp_path / "ada", 0, cut="digit-pairs")))
    torch.manual_seed(0)
    question, gold = minimal.ask(random.Random(0))
    responses = minimal.draw(agent, question, gold)
    assert len(responses) == minimal.SAMPLES
    for response in responses:
        row = minimal.Row(agent.read(question), response.tokens, True, 0.0, 0.0, 1.0)
        again = minimal.logps_of(agent, row).tolist()
        assert again == pytest.approx(response.logps, abs=1e-5)
        assert response.ended == (response.tokens[-1] == agent.tokenizer.eos_token_id)
        assert response.text == agent.text(response.tokens)


def test_questions_have_the_right_answers(minimal):
    asked = dict(minimal.ask(random.Random(seed)) for seed in range(40))
    for question, gold in asked.items():
        kind, digits = question.rstrip("=").split()
        assert kind in ("sort", "add3")
        assert gold == (
            "".join(sorted(digits)) if kind == "sort" else "".join(str((int(d) + 3) % 10) for d in digits)
        )


def test_only_the_mathematics_is_imported():
    tree = ast.parse(EXAMPLE.read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert {module for module in modules if module.startswith("hacrl")} == {"hacrl.algorithm"}
