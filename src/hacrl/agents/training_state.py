"""An agent's training state in a folder: safetensors files, written and read by the processes that hold it.

Torch's distributed checkpoint does both: a rank writes the parts it has, and reads the parts it needs,
whoever wrote them. So any number of ranks goes on from what any other number has left. Nothing is gathered.
Keys are those of `Optimiser.tensors`; a second optimiser (the critic's) has its own behind a prefix.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import torch
from safetensors import SafetensorError
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
from hacrl.runs.files import StorageError, explain_os_errors

FILE_BYTES = 1 << 30
"""After so much a rank begins its next file: a file is in memory as a whole while it is written."""
_one_at_a_time = Lock()
"""Warnings can be ignored in one thread at a time only."""


class _Writer(HuggingFaceStorageWriter):
    """Looks after what the ranks have written."""

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the first rank: notice one whose folder is another, on a machine that does not share it."""
        names = {write.storage_data.relative_path for writes in results for write in writes}
        for name in sorted(names):
            if not Path(self.path, name).is_file():
                raise StorageError(
                    f"{Path(self.path, name)} was written by another rank, but is not here: the machines of "
                    "an agent have to share the file system of the run directory"
                )


def write_state(folder: Path, optimisers: Mapping[str, Optimiser], ranks: Ranks) -> None:
    """Write what training needs to go on exactly, and wait until the disk has it; all ranks have to."""
    tensors = {key: tensor.contiguous() for key, tensor in _tensors(optimisers).items()}
    writer = _Writer(str(folder), _files(tensors, ranks.count), save_distributed=True)
    with _explained(folder, "write"):
        save(tensors, storage_writer=writer, process_group=ranks.group, no_dist=not ranks.several)


def read_state(folder: Path, optimisers: Mapping[str, Optimiser], ranks: Ranks) -> None:
    """Go on exactly where the folder was written; all ranks have to."""
    reader = HuggingFaceStorageReader(str(folder))
    saved = _sizes(folder, reader)
    _refuse_others(folder, saved, _tensors(optimisers))
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
    """The number of the file that a tensor, or a rank's part of it, goes to."""
    files, number, held = {}, 1, 0
    for key, tensor in tensors.items():
        if held >= FILE_BYTES:
            number, held = number + 1, 0
        files[key] = number
        held += tensor.nbytes // ranks
    return files


def _sizes(folder: Path, reader: HuggingFaceStorageReader) -> dict[str, torch.Size]:
    """Of all tensors in the folder, each as a whole."""
    with _explained(folder, "read"):
        found = reader.read_metadata().state_dict_metadata
    return {key: entry.size for key, entry in found.items() if isinstance(entry, TensorStorageMetadata)}


def _refuse_others(folder: Path, saved: Mapping[str, torch.Size], tensors: Mapping[str, Tensor]) -> None:
    """Raise before anything is changed if the folder's weights are not ours."""
    theirs = {key: size for key, size in saved.items() if _is_weight(key)}
    ours = {key: tensor.shape for key, tensor in tensors.items() if _is_weight(key)}
    odd = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
    if odd:
        raise AgentError(
            f"{folder}: the training state belongs to another model or to other LoRA settings: {len(odd)} "
            f"weights are in one of the two only, or have another shape, {odd[0]!r} for example"
        )


def _is_weight(key: str) -> bool:
    return f"/{WEIGHT}" in f"/{key}"


@contextmanager
def _explained(folder: Path, doing: str) -> Iterator[None]:
    """Turn what torch raises, which is no `Exception`, into what went wrong on the first rank that failed."""
    with _one_at_a_time, explain_os_errors(folder, doing), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # in a process alone it shall be
        try:
            yield
        except CheckpointException as error:
            cause, _ = error.failures[min(error.failures)]
            if isinstance(cause, OSError | StorageError) or not isinstance(cause, Exception):
                raise cause from None
            raise StorageError(f"cannot {doing} {folder}: {cause}") from error
        except SafetensorError as error:
            raise StorageError(
                f"cannot {doing} {folder}: it is not all safetensors files: {error}"
            ) from error
