"""Training from Python, with data and rewards of one's own."""

import json

import pytest

import hacrl
from hacrl.recipe import RecipeError
from hacrl.tasks import TaskError
from helpers_train import make_agent

ROWS = [{"prompt": f"sort {n}=", "answer": "".join(sorted(str(n))), "weight": n % 3} for n in range(100, 140)]
ARGS = {
    "steps": 2,
    "prompts_per_step": 4,
    "samples_per_prompt": 3,
    "sampling": {"max_new_tokens": 5},
    "optimiser": {"learning_rate": 1e-3},
}


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    return {name: str(make_agent(folder / name, seed)) for seed, name in enumerate(("ada", "bob"))}


def test_trainer_takes_rows_and_reward_functions(agents, tmp_path):
    seen = []

    def length(prompts, completions, completion_ids, weight, **columns):
        seen.extend(zip(prompts, weight, strict=True))
        return [float(len(ids) > 2) for ids in completion_ids]

    rows = [{key: value for key, value in row.items() if key != "answer"} for row in ROWS]
    trainer = hacrl.Trainer(agents, length, rows, args=ARGS, output_dir=tmp_path / "run")
    summary = trainer.train()
    assert set(summary["agents"]) == {"ada", "bob"}
    assert summary["agents"]["ada"]["rollouts"] == 2 * 4 * 3
    assert set(seen) <= {(row["prompt"], row["weight"]) for row in ROWS}
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    assert trainer.train(resume_from_checkpoint=True)["agents"] == summary["agents"]


def test_trainer_and_train_are_the_same(agents, tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    task = {"name": str(tmp_path / "rows.jsonl")}
    listed = [{"name": name, "model": model} for name, model in agents.items()]
    by_function = hacrl.train({**ARGS, "agents": listed, "task": task}, tmp_path / "function")
    by_object = hacrl.Trainer(agents, args={**ARGS, "task": task}, output_dir=tmp_path / "object").train()
    assert by_function["agents"] == by_object["agents"]
    for name in agents:
        saved = [tmp_path / run / "agents" / name / "model.safetensors" for run in ("function", "object")]
        assert saved[0].read_bytes() == saved[1].read_bytes()


def test_mistakes_show_before_a_model_is_loaded(agents, tmp_path):
    with pytest.raises(RecipeError, match=r"stepz.*did you mean 'steps'"):
        hacrl.Trainer(agents, train_dataset=ROWS, args={"stepz": 3})
    with pytest.raises(TaskError, match="row 2"):
        hacrl.Trainer(agents, train_dataset=[ROWS[0], {"question": "?"}], args=ARGS)
    nowhere = {"ada": str(tmp_path / "nowhere")}
    trainer = hacrl.Trainer(nowhere, train_dataset=ROWS[:3], args=ARGS, output_dir=tmp_path / "run")
    with pytest.raises(ValueError, match=r"prompts_per_step is 4, but the task has only \d training"):
        trainer.train()
