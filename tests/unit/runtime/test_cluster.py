from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hacrl.runtime import RuntimeFailure, cluster
from hacrl.runtime.cluster import FOLDER_PREFIX, _make_folder, open_cluster, ray_environment


def test_an_unreachable_head_is_reported_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        pytest.raises(RuntimeFailure, match=f"the Ray cluster at {address} cannot be reached"),
        open_cluster(address, 1, 5.0),
    ):
        pytest.fail("connected")


def test_an_address_without_a_port_is_refused():
    with pytest.raises(RuntimeFailure, match="at head: expected host:port"), open_cluster("head", 1, 5.0):
        pytest.fail("connected")


def test_a_loopback_address_is_tried_as_ray_replaces_it():
    """Ray would hang at the other one if the head listens on the loopback interface only."""
    assert cluster._address_ray_uses("127.0.0.1:6379", "10.0.0.7") == "10.0.0.7:6379"
    assert cluster._address_ray_uses("[::1]:6379", "10.0.0.7") == "10.0.0.7:6379"
    assert cluster._address_ray_uses("head:6379", "10.0.0.7") == "head:6379"


def test_a_head_is_lost_when_it_is_unreachable_for_a_while(monkeypatch):
    monkeypatch.setattr(cluster, "HEAD_PATIENCE", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        head = cluster.Head(address)
        head.check()
        assert not head.lost
    head.check_if_due()  # checked a moment ago
    with pytest.raises(RuntimeFailure, match=f"the Ray cluster at {address} is lost"):
        head.check()
    assert head.lost


def test_the_token_is_gone_from_the_environment_when_ray_has_read_it(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    with ray_environment(loopback=True):
        assert os.environ["RAY_AUTH_MODE"] == "token"
        assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN" not in os.environ


def test_folders_of_dead_processes_are_removed_and_those_of_the_living_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    dead, living = (tmp_path / f"{FOLDER_PREFIX}{int(pid)}-x" for pid in (ended.stdout, os.getppid()))
    other = tmp_path / "something-else"
    for folder in (dead, living, other):
        folder.mkdir()
    made = _make_folder()
    assert sorted(tmp_path.iterdir()) == sorted([living, other, made])
    assert made.stat().st_mode & 0o077 == 0


def test_training_without_ray_does_not_import_it():
    code = "import sys, hacrl.training.trainer, hacrl.cli.app; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path.cwd())
