"""Files in the working directory are not imported, whatever they are called, unless the recipe names them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

import pytest

from helpers_train import make_agent, recipe

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
TRAP = "import os; os.write(os.open(os.environ['TRAPPED'], os.O_WRONLY | os.O_APPEND), __name__.encode())"
"""A planted module notes that it ran."""
OPTIONAL = ("wandb", "trackio", "vllm", "flash_attn", "sitecustomize", "usercustomize")
"""What libraries try to import, and what Python does, when it is not installed."""
REWARD = "def even(completions, **columns):\n    return [float(len(text) % 2 == 0) for text in completions]\n"


def plant(directory: Path, *, spare: Collection[str] = ()) -> None:
    """A trap under the name of every module that is installed or could be."""
    installed = {name for name in importlib.metadata.packages_distributions() if name.isidentifier()}
    for name in {*sys.stdlib_module_names, *installed, *OPTIONAL}:
        (directory / f"{name}.py").write_text(TRAP)
    for name in spare:
        (directory / f"{name}.py").unlink(missing_ok=True)


def imported_by_python_for_a_module() -> set[str]:
    """What `python -m hacrl` has imported before it comes to hacrl, which is found there too."""
    code = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    with tempfile.TemporaryDirectory() as place:
        Path(place, "probe.py").write_text(code)
        done = subprocess.run([sys.executable, "-m", "probe"], cwd=place, capture_output=True, text=True)
    return {"hacrl", *done.stdout.split()}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory full of traps with a recipe that names two modules there, one of which needs a third."""
    place = tmp_path_factory.mktemp("hostile")
    (place / "trapped").touch()  # what ran
    agents = {name: make_agent(place / "models" / name, seed) for seed, name in enumerate(("ann", "bob"))}
    named = {"method": "own_method:Focal", "reward": {"functions": [{"path": "own_reward:even"}]}}
    settings = recipe(agents, steps=1, evaluation={"prompts": 2, "before": False}, **named)
    (place / "recipe.yaml").write_text(json.dumps(settings))
    (place / "responses.jsonl").write_text('{"response": "\\\\boxed{2}", "answer": "2"}\n')
    plant(place)
    shutil.copy(EXAMPLES / "own_method.py", place)
    (place / "own_reward.py").write_text("from beside_it import even\n")
    (place / "beside_it.py").write_text(REWARD)
    return place


def hacrl(place: Path, *words: str, module: bool = False) -> subprocess.CompletedProcess[str]:
    """The command as a user starts it, in that directory; fails if a trap has run."""
    start = [sys.executable, "-m", "hacrl"] if module else [str(Path(sys.executable).parent / "hacrl")]
    traps = place / "trapped"
    traps.write_text("")
    done = subprocess.run(
        [*start, *words], cwd=place, env=os.environ | {"TRAPPED": str(traps)}, capture_output=True, text=True
    )
    assert traps.read_text() == "", f"{words}: {traps.read_text()} ran"
    return done


def test_the_traps_work(place: Path):
    done = subprocess.run(
        [sys.executable, "-c", "import yaml"], cwd=place, env=os.environ | {"TRAPPED": str(place / "trapped")}
    )
    assert done.returncode == 0
    assert "yaml" in (place / "trapped").read_text()


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    done = hacrl(place, "train", "recipe.yaml", "--out", "run")
    assert done.returncode == 0, done.stderr
    return place / "run"


def test_the_recipes_own_method_and_reward_train(run: Path):
    rewards = {
        len(found["text"]) % 2 == 0: found["reward"]
        for path in run.glob("trajectories/*")
        for found in map(json.loads, path.read_text().splitlines())
    }
    assert rewards == {True: 1.0, False: 0.0}
    assert "agent/ann/focal/imitated" in (run / "metrics.jsonl").read_text()


def test_own_code_is_found_on_ray_and_nothing_else(place: Path):
    done = hacrl(place, "train", "recipe.yaml", "--out", "on-ray", "--runtime", "ray")
    assert done.returncode == 0, done.stderr
    assert "agent/ann/focal/imitated" in (place / "on-ray" / "metrics.jsonl").read_text()


def test_own_code_is_found_by_compare_and_nothing_else(place: Path):
    methods = ["--methods", "focal=own_method:Focal,gspo", "--reference", "gspo"]
    options = [*methods, "--seeds", "2", "--jobs", "1", "--out", "compared"]
    done = hacrl(place, "compare", "recipe.yaml", *options)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize(
    ("module", "words", "code"),
    [
        (False, ["report", "."], 0),
        (True, ["report", "."], 0),
        (False, ["trajectories", "."], 0),
        (True, ["verify", "../responses.jsonl", "--verifier", "math"], 0),
        (False, ["audit", ".", "--prompts", "2", "--samples", "8"], 2),
    ],
)
def test_a_command_in_a_downloaded_run_imports_nothing_from_it(run: Path, module, words, code):
    plant(run, spare=imported_by_python_for_a_module() if module else ())
    for name in ("own_method", "own_reward"):
        (run / f"{name}.py").write_text(TRAP)
    done = hacrl(run, *words, module=module)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if words[0] == "audit":  # of a run with code of somebody's own
        assert "method.name: 'own_method:Focal' is not installed here" in done.stderr
        assert "reward.functions.0.path: 'own_reward:even' is not installed here" in done.stderr
