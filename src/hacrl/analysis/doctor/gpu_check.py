"""`hacrl doctor --gpu-check`: every backend, engine and runtime on tiny models, each in a process of its own.

What this machine cannot try is named with the reason. A check that crashes, on a GPU perhaps with its whole
process, does not end the others.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

MODULE = "hacrl.analysis.doctor.gpu_check"
SECONDS = 300.0
"""Longest time of one check; importing vLLM alone may take a minute."""
ARCHITECTURES = ("llama", "qwen3", "gemma3_text")
Verdict = Literal["works", "fails", "not tried"]


@dataclass(frozen=True)
class Check:
    """One thing to try."""

    title: str
    run: Callable[[Path, str], str]
    """Called with an empty folder and a device; returns what was found, or raises."""
    packages: tuple[str, ...] = ()
    gpus: int = 0
    """GPUs without which it means nothing."""
    gpus_if_any: int = 0
    """GPUs that it needs on a machine that has any: without, it runs on CPUs."""


@dataclass(frozen=True)
class Result:
    """What came out of a check."""

    title: str
    verdict: Verdict
    detail: str
    seconds: float


def obstacle(check: Check, gpus: int) -> str | None:
    """Why this machine cannot try it; None if it can."""
    missing = [package for package in check.packages if importlib.util.find_spec(package) is None]
    if missing:
        return f"needs the package {', '.join(missing)}"
    needed = max(check.gpus, check.gpus_if_any if gpus else 0)
    if needed > gpus:
        return f"needs {needed} GPU{'s' if needed > 1 else ''}, there {'is' if gpus == 1 else 'are'} {gpus}"
    return None


def run_checks(chosen: Sequence[str] = ()) -> Iterator[Result]:
    """Try everything (or what is `chosen`), one check after the other."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for name, check in CHECKS.items():
        if chosen and name not in chosen:
            continue
        reason = obstacle(check, gpus)
        if reason is not None:
            yield Result(check.title, "not tried", reason, 0.0)
            continue
        started = time.monotonic()
        verdict, detail = _in_process(name, "cuda" if gpus else "cpu")
        yield Result(check.title, verdict, detail, time.monotonic() - started)


def _in_process(name: str, device: str) -> tuple[Verdict, str]:
    command = [sys.executable, "-P", "-m", MODULE, name, device]  # nothing from the working directory
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "fails", f"did not end within {SECONDS:g} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return "works", str(json.loads(lines[-1])["found"])
    said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
    return "fails", said[-1]


def _devices(folder: Path, device: str) -> str:
    names = []
    for number in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(number)
        names.append(f"{found.name}, {found.total_memory / 1e9:.0f} GB")
    bf16 = "with" if torch.cuda.is_bf16_supported() else "without"
    return f"{'; '.join(names)}; {bf16} bf16, torch {torch.__version__}"


def _backends(folder: Path, device: str) -> str:
    """Every architecture gets the fused backend, which is used only if it agrees with the plain forward."""
    from hacrl.agents.backends.choice import choose_backends

    found = {}
    for architecture in ARCHITECTURES:
        for dtype in (torch.float32, torch.bfloat16):
            model = _model(architecture).to(device=device, dtype=dtype).eval()
            backends = choose_backends(model)
            if backends.names["train"] != "FusedScorer" or backends.names["decode"] != "FusedDecoder":
                raise RuntimeError(f"{architecture} in {dtype}: {backends.names}, {backends.refused}")
            found[architecture] = True
    return f"fused decoding and training agree with the plain forward in fp32 and bf16: {', '.join(found)}"


def _other_backends(folder: Path, device: str) -> str:
    from hacrl.agents.backends.choice import choose_backends

    checkpointing = choose_backends(_model("llama").to(device).eval(), gradient_checkpointing=True)
    sharded = choose_backends(_model("llama").to(device).eval(), sharded=True)
    return f"checkpointing: {checkpointing.names['train']}; ranks: {sharded.names['train']}"


def _agrees_with_cpu(folder: Path, device: str) -> str:
    """Log-probs of the same rows on the device and on the CPU, in fp32."""
    from hacrl.agents.policy import Policy

    model = _save(folder / "model", "llama")
    rows = [((1, 5, 6, 7), tuple(range(8, 8 + length))) for length in (3, 9, 20)]
    here, there = (Policy.load("a", model, device=where).score(rows) for where in (device, "cpu"))
    apart = max(abs(x - y) for a, b in zip(here, there, strict=True) for x, y in zip(a, b, strict=True))
    if apart > 1e-3:
        raise RuntimeError(f"log-probs differ by {apart:.2g} from the CPU's")
    return f"largest difference of a log-prob: {apart:.1g}"


def _run(folder: Path, device: str, agent: Mapping[str, Any], **changes: Any) -> str:
    """Two steps of two agents; fails unless both have learned something finite."""
    from hacrl.training.trainer import train

    agents = [
        {"name": name, "model": str(_save(folder / name, architecture)), "device": device, **agent}
        for name, architecture in (("one", "llama"), ("two", "qwen3"))
    ]
    recipe = {
        "agents": agents,
        "task": {"name": "digits", "train": 42, "test": 6},
        "method": {"name": "hacpo", "delta": 0.9},
        "steps": 2,
        "prompts_per_step": 4,
        "samples_per_prompt": 4,
        "sampling": {"max_new_tokens": 8},
        "optimiser": {"learning_rate": 1e-3, "kl": 0.001},
        "evaluation": {"before": False, "prompts": 4},
        **changes,
    }
    train(recipe, folder / "run", reward_funcs=[even_lengths])
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    norms = [line.get(f"agent/{name}/grad_norm", 0.0) for line in lines for name in ("one", "two")]
    if not any(norm > 0 for norm in norms):
        raise RuntimeError(f"no gradient: {norms}")
    apart = [line[key] for line in lines for key in line if key.endswith("/engine/logp_difference_max")]
    engine = f"; engine and trained model differ by at most {max(apart):.2g} in a log-prob" if apart else ""
    return f"2 steps of 2 agents{engine}"


def even_lengths(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    """A reward that untrained models sometimes earn."""
    return [float(len(completion) % 2 == 0) for completion in completions]


def _model(architecture: str) -> Any:
    """Small, random, and with heads that are large enough for vLLM."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from hacrl.tasks.toy_models.tokenizers import make_tokenizer

    tokenizer = make_tokenizer("characters")
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        architecture,
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=256,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return AutoModelForCausalLM.from_config(config)


def _save(directory: Path, architecture: str) -> Path:
    from hacrl.tasks.toy_models.tokenizers import make_tokenizer

    _model(architecture).save_pretrained(directory)
    make_tokenizer("characters").save_pretrained(directory)
    return directory


def _trained(agent: Mapping[str, Any] | None = None, **changes: Any) -> Callable[[Path, str], str]:
    return lambda folder, device: _run(folder, device, agent or {}, **changes)


def _on_ray(ranks: int, **agent: Any) -> Callable[[Path, str], str]:
    def run(folder: Path, device: str) -> str:
        resources = {"ranks": ranks, "gpus": 1 if device == "cuda" else 0}
        return _run(folder, "auto", {"resources": resources, **agent}, runtime="ray")

    return run


CHECKS = {
    "devices": Check("GPUs", _devices, gpus=1),
    "backends": Check("fused backend", _backends),
    "other-backends": Check("checkpointed and sharded backends", _other_backends),
    "cpu": Check("the same log-probs as on the CPU", _agrees_with_cpu, gpus=1),
    "fp32": Check("training in fp32", _trained({"dtype": "float32"})),
    "bf16": Check("training in bf16", _trained({"dtype": "bfloat16"})),
    "checkpointing": Check("gradient checkpointing", _trained(updates={"gradient_checkpointing": True})),
    "ppo": Check("PPO's critic", _trained(method="ppo")),
    "sharing": Check("agents that share a device", _trained(runtime={"share_devices": True})),
    "lora": Check("adapters (LoRA)", _trained({"lora": {"rank": 4}}), packages=("peft",)),
    "4-bit": Check(
        "frozen weights in 4 bits", _trained({"lora": {"base_bits": 4}}), packages=("peft", "bitsandbytes")
    ),
    "ray": Check("Ray, a process per agent", _on_ray(1), packages=("ray",), gpus_if_any=2),
    "ranks": Check("Ray, two ranks per agent (FSDP2)", _on_ray(2), packages=("ray",), gpus_if_any=4),
    "shared-ranks": Check(
        "Ray, two ranks per agent on the same devices",
        lambda folder, device: _run(
            folder,
            "auto",
            {"resources": {"ranks": 2, "gpus": 1 if device == "cuda" else 0}},
            runtime={"name": "ray", "share_devices": True},
        ),
        packages=("ray",),
        gpus_if_any=2,
    ),
    "vllm": Check(
        "vLLM, a process per agent",
        _on_ray(1, engine={"name": "vllm", "cache_gigabytes": 0.5}),
        packages=("ray", "vllm"),
        gpus_if_any=2,
    ),
    "vllm-ranks": Check(
        "vLLM, two ranks per agent with an engine each",
        _on_ray(2, engine={"name": "vllm", "cache_gigabytes": 0.5}),
        packages=("ray", "vllm"),
        gpus_if_any=4,
    ),
    "vllm-split": Check(
        "vLLM, one engine split over two ranks",
        _on_ray(2, engine={"name": "vllm", "cache_gigabytes": 0.5, "tensor_parallel": 2}),
        packages=("ray", "vllm"),
        gpus=4,
    ),
}
"""All that can be tried, by name, the cheapest first."""


def main(name: str, device: str) -> None:
    """One check in this process: prints what was found as JSON, or ends with the error as the last line."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = CHECKS[name].run(Path(folder), device)
        except Exception as error:  # whatever a GPU does
            text = str(error).strip().splitlines()
            print(f"{type(error).__name__}: {text[0] if text else ''}", file=sys.stderr)
            sys.exit(1)
    print(json.dumps({"found": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
