"""A Ray cluster: one that is running already, or one started here for this run and reachable from here alone.

Anyone who can reach a Ray cluster can run any code on it. So token authentication is always on (Ray >= 2.52),
and a cluster started here listens on the loopback interface only.
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

MIN_RAY = (2, 52)
"""The first version with token authentication."""
LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With "0" Ray rules out a cluster of several machines, and so binds to the loopback interface."""
FOLDER_PREFIX = "hacrl-ray-"
"""Of the temporary folders of clusters started here; the process's id follows."""
CHECK_SECONDS = 5.0
"""How often the head is checked while a call is pending."""
HEAD_PATIENCE = 20.0
"""Seconds until an unreachable head counts as lost; after 60, Ray would silently end our process."""
_environment_at_import: dict[str, str] = {}
"""The variables Ray saw when it was imported here."""


class Head:
    """The head of a cluster, which everything else on it depends on."""

    def __init__(self, address: str) -> None:
        self.lost = False
        """Ray must not be called any more: it would block on the head, and then end our process."""
        self._address = address
        self._seen = time.monotonic()

    def check(self) -> None:
        """Raise `RuntimeFailure` if the head has been unreachable for `HEAD_PATIENCE`."""
        try:
            _connect(self._address, CHECK_SECONDS, 0.0 if self.lost else HEAD_PATIENCE)
        except OSError as error:
            self.lost = True
            raise RuntimeFailure(
                f"the Ray cluster at {self._address} is lost: its head cannot be reached any more ({error}). "
                "Resume the run from its last checkpoint on another cluster, or without Ray"
            ) from error
        self._seen = time.monotonic()

    def check_if_due(self) -> None:
        """Like `check`, but at most every `CHECK_SECONDS`: for tight polling loops."""
        if time.monotonic() > self._seen + CHECK_SECONDS:
            self.check()


@contextmanager
def open_cluster(address: str | None, cpus: int, seconds: float) -> Iterator[Any]:
    """Connect to the cluster at `host:port`, or start one with this many CPUs; yields the ray module.

    On exit, a cluster that was started here is shut down and its files are removed.
    """
    folder = None if address else _make_folder()
    options: dict[str, Any] = (
        {"address": address}
        if address
        else {"address": "local", "num_cpus": cpus, "include_dashboard": False, "_temp_dir": f"{folder}/ray"}
    )
    try:
        if address is not None:
            _check_reachable(address, seconds)
        with ray_environment(loopback=address is None):
            ray = import_ray()
            if ray.is_initialized():
                raise RuntimeFailure("this process is already using Ray: call ray.shutdown() first")
            if address is not None:
                _check_reachable(_address_ray_uses(address, ray.util.get_node_ip_address()), seconds)
            _init(ray, address, options)
        try:
            yield ray
        finally:
            ray.shutdown()
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _init(ray: Any, address: str | None, options: Mapping[str, Any]) -> None:
    try:
        ray.init(
            namespace=f"hacrl-{secrets.token_hex(8)}",  # other runs on the cluster may use the same names
            logging_level=logging.ERROR,
            log_to_driver=False,
            # A client's job: else Ray puts the working directory first on the path of its workers.
            job_config=ray.job_config.JobConfig(_client_job=True),
            **options,
        )
    except (OSError, RuntimeError, ray.exceptions.RayError) as error:
        where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
        fix = "\nIts token has to be in ~/.ray/auth_token or RAY_AUTH_TOKEN here" if address else ""
        raise RuntimeFailure(f"cannot use {where}: {str(error).strip()}{fix}") from error


def import_ray() -> Any:
    """The ray package, or an error that names the extra to install."""
    try:
        import ray
        import ray.experimental
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise RuntimeFailure("runtime: ray needs the ray package: pip install 'hacrl[ray]'") from error
    found = importlib.metadata.version("ray")
    if tuple(map(int, found.split(".")[:2])) < MIN_RAY:
        raise RuntimeFailure(f"ray {found} has no token authentication: install 2.52 or newer")
    return ray


@contextmanager
def ray_environment(*, loopback: bool = False) -> Iterator[None]:
    """Set what Ray reads when it is imported and started; no later process inherits the token."""
    ours = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    if loopback:
        ours[LOOPBACK_VARIABLE] = "0"
    _check_import_order(ours)
    if loopback:
        ours["RAY_AUTH_TOKEN"] = _own_token()
        ours["RAY_worker_niceness"] = "0"  # Ray's 15 would give everything else priority over the agents
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
    """One per process: Ray keeps the first one it sees."""
    return secrets.token_hex(32)


def _check_import_order(needed: Mapping[str, str]) -> None:
    """Refuse a Ray that was imported without these variables: it would start without authentication."""
    if "ray" not in sys.modules:
        _environment_at_import.update(needed)
    for name in ("RAY_AUTH_MODE", LOOPBACK_VARIABLE):
        value = needed.get(name)
        if value is not None and value not in (_environment_at_import.get(name), os.environ.get(name)):
            raise RuntimeFailure(
                f"Ray was imported before hacrl could set it up: import it later, or set {name}={value} first"
            )


def _check_reachable(address: str, seconds: float) -> None:
    """Fail early: Ray itself would wait long for a head that is not there."""
    try:
        _connect(address, seconds)
    except OSError as error:
        raise RuntimeFailure(
            f"the Ray cluster at {address} cannot be reached ({error}). Start the head with "
            "`ray start --head`, or check the address and the firewall"
        ) from error


def _address_ray_uses(address: str, own_ip: str) -> str:
    """Ray replaces a loopback address by this machine's other one, and hangs if nothing listens there."""
    host, _, port = address.rpartition(":")
    return f"{own_ip}:{port}" if host in ("localhost", "127.0.0.1", "[::1]") else address


def _connect(address: str, seconds: float, retry_seconds: float = 0.0) -> None:
    """Try a connection to `host:port`, each time for so many seconds; raise OSError if none succeeds."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise RuntimeFailure(f"the Ray cluster at {address}: expected host:port, such as 10.0.0.1:6379")
    deadline = time.monotonic() + retry_seconds
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
            return
        except OSError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(min(1.0, retry_seconds))


def _make_folder() -> Path:
    """A folder for the cluster's sockets and logs. Also removes those that killed processes left behind.

    Other users cannot enter it. Ray gets a folder inside: it makes its own one writable for everybody.
    """
    parent = Path(tempfile.gettempdir())
    for old in parent.glob(f"{FOLDER_PREFIX}*"):
        if (match := re.match(rf"{FOLDER_PREFIX}(\d+)-", old.name)) and not _is_alive(int(match[1])):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))


def _is_alive(pid: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
