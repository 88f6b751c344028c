"""A Ray cluster: started here for one run, reachable from this machine alone, or one that is running already.

Ray can run any code for whoever reaches it. So it asks for a token (Ray >= 2.52), and what is started here
listens on the loopback interface only.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hacrl.runtime.base import RuntimeFailure

OLDEST = (2, 52)
"""The first Ray with token authentication."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's own way of asking for the loopback interface: "0" means no cluster of several machines."""
FOLDER = "hacrl-ray-"
"""Begins the names of the folders of clusters started here; the process's id follows."""
CHECK_SECONDS = 5.0
"""How often the head is looked after while somebody waits for an answer."""
HEAD_PATIENCE = 20.0
"""Seconds after which a silent head is given up; after 60 Ray itself would end our process without a word."""
_set_at_import: dict[str, str] = {}
"""What Ray saw in the environment when it was imported here."""


class Head:
    """The one process of a cluster that all others need."""

    def __init__(self, address: str) -> None:
        self.lost = False
        """Nothing may be asked of Ray any more: it would wait for the head, and then end our process."""
        self._address = address
        self._seen = time.monotonic()

    def check(self) -> None:
        """Raise `RuntimeFailure` if the head is gone."""
        try:
            _knock(self._address, CHECK_SECONDS, 0.0 if self.lost else HEAD_PATIENCE)
        except OSError as error:
            self.lost = True
            raise RuntimeFailure(
                f"the Ray cluster at {self._address} is lost: its head does not answer any more ({error}). "
                "What is saved can be gone on with when there is a cluster again, or without Ray"
            ) from error
        self._seen = time.monotonic()

    def check_now_and_then(self) -> None:
        """As `check`, for whoever asks many times in a second."""
        if time.monotonic() > self._seen + CHECK_SECONDS:
            self.check()


@contextmanager
def open_cluster(address: str | None, cpus: int, seconds: float) -> Iterator[Any]:
    """Connect to the cluster at `host:port`, or start one with so many CPUs; yields the ray module.

    Everything that was started here is ended, and its files are removed.
    """
    settings: dict[str, Any] = {
        "namespace": f"hacrl-{secrets.token_hex(8)}",  # names of other runs are not ours
        "logging_level": logging.ERROR,
        "log_to_driver": False,
    }
    folder: Path | None = None
    if address is None:
        folder = _make_folder()
        settings |= {
            "address": "local",
            "num_cpus": cpus,
            "include_dashboard": False,
            "_temp_dir": str(folder),
        }
    else:
        _refuse_silent_head(address, seconds)
        settings["address"] = address
    try:
        with _environment(loopback=address is None):
            ray = import_ray()
            if ray.is_initialized():
                raise RuntimeFailure("this process uses Ray already: end that with ray.shutdown() first")
            if address is not None:
                _refuse_silent_head(_as_ray_takes(address, ray.util.get_node_ip_address()), seconds)
            try:
                ray.init(**settings)
            except (OSError, RuntimeError, ray.exceptions.RayError) as error:
                where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
                fix = "\nIts token has to be in ~/.ray/auth_token or RAY_AUTH_TOKEN here" if address else ""
                raise RuntimeFailure(f"cannot use {where}: {str(error).strip()}{fix}") from error
        try:
            yield ray
        finally:
            ray.shutdown()
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def import_ray() -> Any:
    """The ray package, or an error that names the extra to install."""
    try:
        import ray
        import ray.experimental
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise RuntimeFailure("runtime: ray needs the ray package: pip install 'hacrl[ray]'") from error
    found = importlib.metadata.version("ray")
    if tuple(map(int, found.split(".")[:2])) < OLDEST:
        raise RuntimeFailure(f"ray {found} has no token authentication: install 2.52 or newer")
    return ray


@contextmanager
def _environment(*, loopback: bool) -> Iterator[None]:
    """Ray reads these when it is imported and started; nobody else is to inherit the token."""
    ours = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    if loopback:
        ours[LOOPBACK] = "0"
    _refuse_early_import(ours)
    if loopback:
        ours["RAY_AUTH_TOKEN"] = _own_token()
        ours["RAY_worker_niceness"] = "0"  # Ray's 15 would let everything else go before the agents
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@functools.cache
def _own_token() -> str:
    """One per process: Ray remembers the first it saw."""
    return secrets.token_hex(32)


def _refuse_early_import(needed: Mapping[str, str]) -> None:
    """Ray keeps the settings it was imported with: it would start open to everybody."""
    if "ray" not in sys.modules:
        _set_at_import.update(needed)
    for name in ("RAY_AUTH_MODE", LOOPBACK):
        value = needed.get(name)
        if value is not None and value not in (_set_at_import.get(name), os.environ.get(name)):
            raise RuntimeFailure(
                f"Ray was imported before hacrl could set it up: import it later, or set {name}={value} first"
            )


def _refuse_silent_head(address: str, seconds: float) -> None:
    """Ray itself waits long for a head that is not there."""
    try:
        _knock(address, seconds)
    except OSError as error:
        raise RuntimeFailure(
            f"the Ray cluster at {address}: nobody answers there ({error}). Start the head with "
            "`ray start --head`, or check the address and the firewall"
        ) from error


def _as_ray_takes(address: str, own_ip: str) -> str:
    """Ray takes a loopback address for this machine's other one, and would wait there for ever."""
    host, _, port = address.rpartition(":")
    return f"{own_ip}:{port}" if host in ("localhost", "127.0.0.1", "[::1]") else address


def _knock(address: str, seconds: float, patience: float = 0.0) -> None:
    """Connect to `host:port`, if need be again and again while there is patience."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise RuntimeFailure(f"the Ray cluster at {address}: expected host:port, such as 10.0.0.1:6379")
    ends = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
            return
        except OSError:
            if time.monotonic() >= ends:
                raise
        time.sleep(min(1.0, patience))


def _make_folder() -> Path:
    """A folder for the cluster's sockets and logs; those of killed processes are removed."""
    parent = Path(tempfile.gettempdir())
    for old in parent.glob(f"{FOLDER}*"):
        if (match := re.match(rf"{FOLDER}(\d+)-", old.name)) and not _is_alive(int(match[1])):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))


def _is_alive(pid: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
