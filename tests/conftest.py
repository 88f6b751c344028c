"""Settings for all tests."""

import os
import resource
from collections.abc import Iterator

import pytest

# One thread per process: several test processes share the machine, and results stay reproducible.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Nothing may be downloaded: code that would is tested on local directories.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow over 4096 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
