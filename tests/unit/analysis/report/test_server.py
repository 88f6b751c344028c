"""`hacrl watch` serves two addresses to this machine, and its data changes with the run."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Thread

import pytest

from hacrl.analysis.report import server as serving_module
from hacrl.analysis.report.server import LiveRuns, make_server
from helpers_report import lines, page_data


class Visitor:
    def __init__(self, port: int) -> None:
        self.port = port

    def get(
        self, path: str, method: str = "GET", host: str | None = None, **headers: str
    ) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, headers={"Host": host or f"127.0.0.1:{self.port}", **headers})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body


@pytest.fixture
def visitor(copy: Path) -> Iterator[Visitor]:
    with serving(copy) as visitor:
        yield visitor


@contextmanager
def serving(copy: Path) -> Iterator[Visitor]:
    server = make_server(LiveRuns([copy, copy.parent / "alone"]))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield Visitor(server.server_port)
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_page_and_its_data_are_those_of_the_runs(visitor: Visitor, copy: Path) -> None:
    response, page = visitor.get("/")
    assert (response.status, response.headers["Cache-Control"]) == (200, "no-store")
    _, body = visitor.get("/data.json")
    assert page_data(page.decode()) == json.loads(body)
    assert [run["name"] for run in json.loads(body)["runs"]] == ["together", "alone"]
    assert "connect-src 'self'" in page.decode()


def test_data_is_sent_again_only_when_a_run_has_gone_on(visitor: Visitor, copy: Path) -> None:
    tag = visitor.get("/data.json")[0].headers["ETag"]
    again, body = visitor.get("/data.json", **{"If-None-Match": tag})
    assert (again.status, body) == (304, b"")
    newest = lines(copy / "metrics.jsonl")[-1]
    with (copy / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**newest, "step": 7, "agent/ann/accuracy": 0.125}) + "\n")
    changed, body = visitor.get("/data.json", **{"If-None-Match": tag})
    run = json.loads(body)["runs"][0]
    assert (changed.status, run["step"], run["series"]["agent/ann/accuracy"][-1]) == (200, 7, 0.125)


def test_a_run_that_cannot_be_read_for_a_moment_stays_on_the_page(visitor: Visitor, copy: Path) -> None:
    _, before = visitor.get("/data.json")
    (copy / "config.json").rename(copy / "aside.json")
    response, during = visitor.get("/data.json")
    assert (response.status, during) == (200, before)
    (copy / "aside.json").rename(copy / "config.json")
    assert visitor.get("/data.json")[1] == before


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:80", "127.0.0.1:1"])
def test_other_names_for_this_machine_are_refused(visitor: Visitor, host: str) -> None:
    """A page of another site whose name was made to point here must not read the data."""
    for path in ("/", "/data.json"):
        response, body = visitor.get(path, host=host)
        assert response.status == 403
        assert b"runs" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/config.json",
        "/../config.json",
        "/data.json/../config.json",
        "//etc/passwd",
        "/data.json?x",
        "/%2e%2e/",
    ],
)
def test_there_are_no_other_addresses(visitor: Visitor, path: str) -> None:
    assert visitor.get(path)[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_get_is_the_only_method(visitor: Visitor, method: str) -> None:
    assert visitor.get("/", method)[0].status == 501


def test_it_listens_on_loopback_alone(copy: Path) -> None:
    server = make_server(LiveRuns([copy]))
    assert server.server_address[0] == "127.0.0.1"
    server.server_close()


def test_slow_clients_are_few_and_disconnected(copy: Path, monkeypatch, capfd) -> None:
    monkeypatch.setattr(serving_module, "MOST_CLIENTS", 3)
    monkeypatch.setattr(serving_module, "CLIENT_SECONDS", 2.0)
    with serving(copy) as visitor:
        slow = [socket.create_connection(("127.0.0.1", visitor.port)) for _ in range(3)]
        for client in slow:
            client.sendall(b"GET / HTTP/1.1\r\nX")  # and nothing more
        with socket.create_connection(("127.0.0.1", visitor.port)) as another:
            assert another.recv(100) == b"", "one too many is sent away at once"
        for client in slow:
            assert client.recv(100) == b"", "its time is over"
            client.close()
        assert visitor.get("/")[0].status == 200, "there is room again"
    assert capfd.readouterr().err == ""


def test_a_client_that_leaves_is_not_reported(copy: Path, capfd) -> None:
    with serving(copy) as visitor:
        complete = b"GET / HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n" % visitor.port
        for request in (b"GET /", complete, b"\x00\xff" * 50):
            with socket.create_connection(("127.0.0.1", visitor.port)) as client:
                client.sendall(request)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        assert visitor.get("/data.json")[0].status == 200
    assert "Traceback" not in capfd.readouterr().err
