"""Two TRL trainers in two processes, with different models and tokenizers, learn from each other.

They share nothing but a directory. `python examples/trl_pool.py 30 3` trains both for 30 steps with three
seeds, with GSPO alone and with the pool, and prints their accuracies on test prompts.
"""

import os
import secrets
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from tempfile import TemporaryDirectory

from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from hacrl import tasks
from hacrl.integrations.trl import PoolCallback
from hacrl.tasks.toy_models import models as toy_models

MODELS = ("model-llama", "model-qwen")
ARGUMENTS = dict(  # noqa: C408
    loss_type="grpo", importance_sampling_level="sequence", epsilon=3e-4, epsilon_high=4e-4, beta=0.0,
    num_generations=4, per_device_train_batch_size=128, steps_per_generation=2, max_completion_length=16,
    learning_rate=2e-4, lr_scheduler_type="constant", use_cpu=True, bf16=False, num_generations_eval=1,
    per_device_eval_batch_size=300, save_strategy="no", logging_strategy="no", report_to="none",
)  # fmt: skip


def right(completions, answer, **columns):
    """TRL's reward: 1 for the right answer."""
    return [float(text == gold) for text, gold in zip(completions, answer, strict=True)]


def accuracy(model, seed, steps, pool):
    """Of a model on 300 test prompts after training, at temperature 1."""
    parts = tasks.load("digits").train, tasks.load("digits").test[:300]
    rows = [[{"prompt": p.text, "kind": p.kind, **p.columns} for p in part] for part in parts]
    train, test = map(Dataset.from_list, rows)
    shared = PoolCallback(pool, model, right, train, eval_dataset=test, wait_for=1) if pool else None
    with TemporaryDirectory() as folder:
        args = GRPOConfig(output_dir=folder, max_steps=2 * steps, seed=seed, disable_tqdm=True, **ARGUMENTS)
        scored, callbacks = (shared.reward_funcs, [shared]) if shared else (right, [])
        directory = str(toy_models.build(model))
        trainer = GRPOTrainer(directory, scored, args, train, test, callbacks=callbacks)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return trainer.evaluate()["eval_reward"]


if __name__ == "__main__":
    os.environ.setdefault("HACRL_POOL_KEY", secrets.token_hex())
    with ProcessPoolExecutor(2, get_context("spawn")) as two, TemporaryDirectory() as folder:
        for seed in range(int(sys.argv[2])):
            for pool in (None, f"{folder}/{seed}"):
                found = two.map(partial(accuracy, seed=seed, steps=int(sys.argv[1]), pool=pool), MODELS)
                print(f"seed {seed}", "pool " if pool else "alone", *(f"{a:.3f}" for a in found), flush=True)
