"""A finished run's agent on the Hugging Face hub, with its model card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hacrl.runs.json_files import read_json
from hacrl.runs.reader import RunReader

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CARD = "README.md"
"""The model card in an agent's directory."""
PLACE = "path/to/this/directory"
"""Stands in the card for wherever the agent will be loaded from."""
KINDS = (".safetensors", ".json", ".jinja", ".txt", ".model", ".md")
"""What a model's directory consists of; nothing else is uploaded."""
ADAPTER = "adapter_config.json"
BASE = "base_model_name_or_path"
"""Where peft keeps the model that an adapter belongs to."""


class PublishError(Exception):
    """Why an agent cannot be uploaded, and what to do about it."""


def publish_agent(
    run: Path, agent: str, repo: str, *, public: bool = False, base_model: str | None = None
) -> str:
    """Upload an agent of a finished run -> the address of its repository, which is made if it is new.

    `base_model` is the hub id of the model that it started from, for the card and for adapters. The token is
    huggingface_hub's own: `HF_TOKEN`, or that of `hf auth login`.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    _check_id("repo", repo)
    if base_model is not None:
        _check_id("base model", base_model)
    files = _contents(_agent_directory(run, agent), repo, base_model)

    operations = [CommitOperationAdd(name, content) for name, content in files.items()]
    api = HfApi(library_name="hacrl")
    _check_token(api)
    try:
        address = api.create_repo(repo, private=not public, exist_ok=True)
        api.create_commit(repo, operations, commit_message=f"{agent}, trained with hacrl")
    except Exception as error:  # of the HTTP library or the hub: whatever it is, it is told in one line
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise PublishError(f"{repo!r} cannot be written at {api.endpoint}: {reason}") from error
    return str(address)


def _check_id(what: str, name: str) -> None:
    """Refuse what the hub would: the id becomes part of addresses and of the card."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise PublishError(f"{what} {name!r} is not the id of a repository, OWNER/NAME: {error}") from error


def _agent_directory(run: Path, agent: str) -> Path:
    reader = RunReader(run)
    if agent not in reader.agents:
        raise PublishError(f"{run} has no agent {agent!r}; it has {', '.join(reader.agents)}")
    directory = reader.directory.agents / agent
    if not (directory / CARD).is_file():
        raise PublishError(
            f"{directory} is not there yet: agents are written when a run ends; go on with "
            f"`hacrl train ... --out {run} --resume`"
        )
    return directory


def _contents(directory: Path, repo: str, base_model: str | None) -> dict[str, str | bytes]:
    """Name in the repository -> file, or what it says there instead."""
    files = [path for path in sorted(directory.iterdir()) if path.suffix in KINDS]
    for path in files:
        if path.is_symlink() or not path.is_file():
            raise PublishError(f"{path} is not a file of its own; a link could upload something else")
    contents: dict[str, str | bytes] = {path.name: str(path) for path in files}
    card = (directory / CARD).read_text(encoding="utf-8").replace(PLACE, repo)
    if base_model is not None:
        card = re.sub(r"\A---\n(base_model: .*\n)?", f"---\nbase_model: {json.dumps(base_model)}\n", card)
    contents[CARD] = card.encode()
    if ADAPTER in contents:
        contents[ADAPTER] = _adapter_settings(directory / ADAPTER, base_model)
    return contents


def _adapter_settings(path: Path, base_model: str | None) -> bytes:
    """With a base model that others can load."""
    settings = read_json(path)
    base = base_model or str(settings.get(BASE))
    if base_model is None and (Path(base).is_dir() or base.startswith(("/", ".", "~"))):
        raise PublishError(
            f"{path}: its base model {base!r} is a directory of this machine; name the hub id of that model "
            "with --base-model"
        )
    return json.dumps(settings | {BASE: base}, indent=2).encode()


def _check_token(api: HfApi) -> None:
    from huggingface_hub import get_token

    if get_token() is None:
        raise PublishError(
            f"no token for {api.endpoint}: run `hf auth login` or set the environment variable HF_TOKEN"
        )
