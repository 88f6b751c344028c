"""An agent's training state as safetensors files, written and read by the processes that hold it.

Torch's distributed checkpoint does both for several ranks: each writes the parts it has and reads the parts
it needs, whichever rank wrote them. So any number of ranks can resume from any other number, and nothing is
gathered. A single process writes whole tensors to files of the same form without copies in memory, which is
several times faster.
Keys are those of `Optimiser.tensors`; those of a second optimiser (the critic's) have a prefix.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult

from hacrl.agents.errors import AgentError
from hacrl.agents.optimiser import MOMENT, WEIGHT, Optimiser
from hacrl.agents.ranks import Ranks
from hacrl.runs.files import StorageError, explain_library_errors, os_error

FILE_BYTES = 1 << 30
"""A rank starts a new file after this much: a file is held in memory while it is written."""
_one_at_a_time = Lock()
"""Warnings can only be filtered by one thread at a time."""


class _Writer(HuggingFaceStorageWriter):
    """Checks what the ranks have written."""

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the first rank: notice ranks whose directory is on a machine that does not share it."""
        names = {write.storage_data.relative_path for writes in results for write in writes}
        for name in sorted(names):
            if not Path(self.path, name).is_file():
                raise StorageError(
                    f"{Path(self.path, name)} was written by another rank, but is not here: all machines of "
                    "an agent have to share the file system of the run directory"
                )


def write_state(folder: Path, optimisers: Mapping[str, Optimiser], ranks: Ranks) -> None:
    """Write the exact training state, and wait until it is on the disk; all ranks have to call it."""
    tensors = {key: tensor.contiguous() for key, tensor in _tensors(optimisers).items()}
    files = _files(tensors, ranks.count)
    with _explained(folder, "write"):
        if ranks.several:
            writer = _Writer(str(folder), files, save_distributed=True)
            save(tensors, storage_writer=writer, process_group=ranks.group)
        else:
            _write_alone(folder, tensors, files)


def _write_alone(folder: Path, tensors: Mapping[str, Tensor], files: Mapping[str, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    count = max(files.values(), default=0)
    for number in range(1, count + 1):
        path = folder / f"shard-00001-model-{number:05d}-of-{count:05d}.safetensors"
        content = {key: _own(tensor.cpu()) for key, tensor in tensors.items() if files[key] == number}
        try:
            save_file(content, path)
        except SafetensorError as error:
            if found := re.search(r"\(os error (\d+)\)", str(error)):
                raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
            raise
        with path.open("rb") as written:
            os.fsync(written.fileno())


def _own(tensor: Tensor) -> Tensor:
    """The tensor, copied if it is a part of a larger one: safetensors writes no shared memory."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def read_state(folder: Path, optimisers: Mapping[str, Optimiser], ranks: Ranks) -> None:
    """Restore exactly the state in the folder; all ranks have to call it."""
    reader = HuggingFaceStorageReader(str(folder))
    saved = _shapes(folder, reader)
    _refuse_other_models(folder, saved, _tensors(optimisers))
    for prefix, optimiser in optimisers.items():
        start = prefix + MOMENT
        optimiser.keep_moments({key.removeprefix(start) for key in saved if key.startswith(start)})
    with _explained(folder, "read"):
        tensors = _tensors(optimisers)
        load(tensors, storage_reader=reader, process_group=ranks.group, no_dist=not ranks.several)
    for optimiser in optimisers.values():
        optimiser.refresh()


def _tensors(optimisers: Mapping[str, Optimiser]) -> dict[str, Tensor]:
    return {
        prefix + key: tensor
        for prefix, optimiser in optimisers.items()
        for key, tensor in optimiser.tensors().items()
    }


def _files(tensors: Mapping[str, Tensor], ranks: int) -> dict[str, int]:
    """Tensor -> the number of the file that it, or a rank's part of it, goes to."""
    files, number, held = {}, 1, 0
    for key, tensor in tensors.items():
        if held >= FILE_BYTES:
            number, held = number + 1, 0
        files[key] = number
        held += tensor.nbytes // ranks
    return files


def _shapes(folder: Path, reader: HuggingFaceStorageReader) -> dict[str, torch.Size]:
    """Full shapes of all tensors in the folder."""
    with _explained(folder, "read"):
        found = reader.read_metadata().state_dict_metadata
    return {key: entry.size for key, entry in found.items() if isinstance(entry, TensorStorageMetadata)}


def _refuse_other_models(
    folder: Path, saved: Mapping[str, torch.Size], tensors: Mapping[str, Tensor]
) -> None:
    """Raise, before anything is changed, if the folder's weights belong to another model."""
    theirs = {key: size for key, size in saved.items() if _is_weight(key)}
    ours = {key: tensor.shape for key, tensor in tensors.items() if _is_weight(key)}
    different = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
    if different:
        raise AgentError(
            f"{folder}: the training state belongs to another model or to other LoRA settings: "
            f"{len(different)} weights are in one of the two only, or have another shape, "
            f"{different[0]!r} for example"
        )


def _is_weight(key: str) -> bool:
    return f"/{WEIGHT}" in f"/{key}"


@contextmanager
def _explained(folder: Path, doing: str) -> Iterator[None]:
    """Turn torch's error, which is not an `Exception`, into the one of the first rank that failed."""
    with _one_at_a_time, explain_library_errors(folder, doing), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "torch.distributed is disabled"
        )  # a single process does not need it
        try:
            yield
        except CheckpointException as error:
            cause, _ = error.failures[min(error.failures)]
            if isinstance(cause, OSError | StorageError) or not isinstance(cause, Exception):
                raise cause from None
            raise os_error(folder, doing, cause) from error
        except (SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
            if doing == "write":
                raise
            raise StorageError(
                f"cannot {doing} {folder}: not all of it is safetensors files: {error}"
            ) from error
