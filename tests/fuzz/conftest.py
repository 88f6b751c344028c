"""One worker process and one short run for all cases of a test process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from fuzz import shared
from fuzz.contract import Worker


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    directory = tmp_path_factory.mktemp("fuzz")
    common, made = directory / "shared", directory / "made"
    shared.build(common)
    (made / "here").mkdir(parents=True)
    worker = Worker(common)
    for command in shared.RUN:
        ended = worker.run(command.format(shared=common).split(), made)
        assert ended.code == 0, ended.stderr
    shutil.move(made / "here" / "run", common / "run")
    shared.add_warnings(common / "run")
    yield worker
    worker.close()
