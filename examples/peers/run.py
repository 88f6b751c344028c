"""An agent alone, and with each kind of peer that only responds: `python run.py [KIND ...] [KEY=VALUE ...]`.

Kinds are `frozen`, `endpoint`, `log`; settings such as `seed=1` change all recipes. It prints the student's
accuracy on test problems after the same number of own responses in every case.
"""

import json
import os
import sys
from pathlib import Path
from threading import Thread

from serve import make_server

import hacrl
from hacrl import tasks
from hacrl.agents.policy import Policy
from hacrl.recipe.settings import SamplingSettings
from hacrl.tasks.toy_models import models as toy_models


def write_log(path: Path, prompts: int = 2000) -> None:
    """Two responses of the teacher to some of the training prompts, whether they are right or not."""
    teacher = Policy.load("teacher", toy_models.build("complementary-b"))
    asked = tasks.load("digits").train[:prompts]
    drawn = teacher.sample(asked, 2, SamplingSettings(max_new_tokens=16), seed=0)
    lines = [
        {"question": prompt.text, "responses": [rollout.text for rollout in drawn[2 * n : 2 * n + 2]]}
        for n, prompt in enumerate(asked)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def accuracy(name: str, recipe: str, *changes: str) -> float:
    """Train, and return mean@4 on the test problems."""
    summary = hacrl.train(recipe, Path("runs") / name, overrides=changes)
    (result,) = summary["agents"]["student"]["after"].values()
    found: float = result["mean_at_k"]["mean"]
    for peer, cost in summary["peers"].items():
        print(f"{name}: {peer} gave {cost['rollouts']} responses, {cost['generated_tokens']} tokens")
    return found


def main(kinds: list[str], *changes: str) -> dict[str, float]:
    """Run the given kinds, and print the accuracies."""
    found = {"alone": accuracy("alone", "frozen.yaml", "method=gspo", *changes)}
    if "frozen" in kinds:
        found["frozen"] = accuracy("frozen", "frozen.yaml", *changes)
    if "endpoint" in kinds:
        server = make_server()
        Thread(target=server.serve_forever, daemon=True).start()
        os.environ["TEACHER_KEY"] = "not-checked-by-this-server"
        found["endpoint"] = accuracy("endpoint", "endpoint.yaml", *changes)
        server.shutdown()
        server.server_close()
    if "log" in kinds:
        write_log(Path("log.jsonl"))
        found["log"] = accuracy("log", "log.yaml", *changes)
    for name, value in found.items():
        print(f"{name:10} {value:.3f}  {value - found['alone']:+.3f} to training alone")
    return found


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent)  # where the recipes are, and runs/ is going to be
    changes = [argument for argument in sys.argv[1:] if "=" in argument]
    main([a for a in sys.argv[1:] if a not in changes] or ["frozen", "endpoint", "log"], *changes)
