"""What all cases have in common: tiny models, one short run of them, and the files that users write."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

from helpers_train import make_agent, recipe

AGENTS = ("ada", "bob")


def build(shared: Path) -> None:
    """Everything but the run, which is trained from `recipe.yaml`."""
    (shared / "home").mkdir(parents=True)
    models = {name: make_agent(shared / name, seed, width=16) for seed, name in enumerate(AGENTS)}
    _adapter(shared / "adapter", models["ada"])
    _variants(shared, models["ada"])
    write_recipe(shared / "recipe.yaml", base_recipe(shared))
    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1), "response": "3"} for n in range(4)]
    (shared / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = {
        "seeds": [0, 1],
        "references": ["gspo"],
        "methods": {"gspo": None, "hacpo": None},
        "settings": {"pair": {"recipe": "recipe.yaml"}},
    }
    write_recipe(shared / "plan.yaml", plan)


RUN = ("train {shared}/recipe.yaml --out run", "audit run --prompts 2 --samples 4 --checkpoint 2")
"""The commands that make the run."""


def add_warnings(run: Path) -> None:
    """A run this short has none of its own."""
    lines = ({"step": step, "message": "rewards do not vary"} for step in (1, 2))
    (run / "warnings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def base_recipe(shared: Path) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "task": {"name": "digits", "train": 9, "test": 3},
        "steps": 2,
        "prompts_per_step": 2,
        "samples_per_prompt": 2,
        "sampling": {"max_new_tokens": 3},
        "evaluation": {"prompts": 2, "every": 1},
        "method": {"name": "hacpo", "delta": 0.8, "capability": "contextual"},
    }
    changes["updates"] = {"mini_batches": 1}
    return recipe({name: shared / name for name in AGENTS}, **changes)


def write_recipe(path: Path, values: object) -> None:
    path.write_text(json.dumps(values))  # JSON is YAML


def special_files(here: Path) -> None:
    """Things that are no regular files, under the names of `SPECIAL`."""
    os.mkfifo(here / "fifo")
    os.mknod(here / "socket", stat.S_IFSOCK | 0o600)
    (here / "loop").symlink_to("loop")
    (here / "folder").mkdir()
    (here / "folder" / "inside").write_text("kept")
    (here / "dangling").symlink_to("nowhere/at/all")
    (here / "empty").write_bytes(b"")
    (here / "binary").write_bytes(bytes(range(256)))
    (here / "nul").write_bytes(b"\0" * 1000)


SPECIAL = ("fifo", "socket", "loop", "folder", "dangling", "empty", "binary", "nul")


def _variants(shared: Path, base: Path) -> None:
    """The model in several files, and the model with a chat template."""
    from transformers import AutoModelForCausalLM

    shutil.copytree(base, shared / "chat")
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    (shared / "chat" / "chat_template.jinja").write_text(template)
    shutil.copytree(base, shared / "sharded", ignore=shutil.ignore_patterns("model.safetensors"))
    AutoModelForCausalLM.from_pretrained(base).save_pretrained(shared / "sharded", max_shard_size="15kB")


def _adapter(directory: Path, base: Path) -> None:
    import peft
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base)
    peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    ).save_pretrained(directory)
    AutoTokenizer.from_pretrained(base).save_pretrained(directory)
