"""Entries, keys and places of pools for tests, a Redis server on loopback among them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hacrl.pool import Entry, Place, PoolKey, open_place, sign
from hacrl.pool.places import SharedPoolError

KEY = PoolKey(b"a key that all members share")
OTHER_KEY = PoolKey(b"a key that no member has")


def entry(number: int = 0, **changes: Any) -> Entry:
    values: dict[str, Any] = {
        "task": "digits",
        "prompt": f"sort {number}=",
        "response": str(number),
        "reward": 1.0,
        "verifier": "exact",
        "writer": "theirs",
        "source": "eve",
        "version": 1,
        "sample": 0,
        "tokens": 2,
        "logp": -1.5,
    }
    return Entry(**(values | changes))


def lines(*entries: Entry, key: PoolKey = KEY) -> list[bytes]:
    return [sign(each, key) for each in entries]


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """The URL of a pool in a Redis server that lives as long as the context, and only on loopback."""
    pytest.importorskip("redis", reason="the package redis is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"port": port, "bind": "127.0.0.1", "dir": folder, "save": "", "appendonly": "no"}
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    server = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0/test"
    try:
        _wait_for(open_place(url))
        yield url
    finally:
        server.kill()
        server.wait()


def _wait_for(place: Place) -> None:
    for _ in range(200):
        try:
            place.segments()
            break
        except SharedPoolError:
            time.sleep(0.05)
    else:
        raise AssertionError("redis-server does not answer")
    place.close()


@contextmanager
def pool_url(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty pool in a directory, in fsspec's memory, or in Redis."""
    if kind == "redis":
        with redis_server(folder) as url:
            yield url
    else:
        yield str(folder / "pool") if kind == "directory" else f"memory://{uuid4().hex}/pool"
