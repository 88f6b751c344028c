"""`hacrl watch`: a live page of runs, served on this machine only."""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Lock, Timer
from typing import Any

from hacrl.analysis.report.data import report_data, warn
from hacrl.analysis.report.page import embedded, encoded, render
from hacrl.runs.files import StorageError
from hacrl.runs.reader import RunReader

LOOPBACK = "127.0.0.1"
MOST_CLIENTS = 16
"""Connections at the same time; more are closed at once. A page asks for its data every few seconds."""
CLIENT_SECONDS = 20.0
"""For one request and its reply, from connecting on: a client that is slower is disconnected."""


class LiveRuns:
    """The data of the watched runs, read again only when one of them has changed."""

    def __init__(self, runs: Sequence[Path], baseline: Path | None = None) -> None:
        self._runs = runs
        self._baseline = baseline
        self._lock = Lock()
        self._tag = ""
        self._warned: set[str] = set()
        self._data = self._read()

    def now(self) -> tuple[str, dict[str, Any]]:
        """The data and a tag that changes with it; if a run cannot be read, the data of the last time."""
        with self._lock:
            states = "/".join(RunReader(run).version_tag() for run in self._runs)
            tag = f'"{hashlib.sha256(states.encode()).hexdigest()[:24]}"'
            if tag != self._tag:
                with suppress(
                    ValueError, OSError, StorageError
                ):  # a file is being replaced: try again at the next request
                    self._data = self._read()
                    self._tag = tag
            return self._tag, self._data

    def _read(self) -> dict[str, Any]:
        return report_data(self._runs, self._baseline, self._warn_once)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


class _Server(ThreadingHTTPServer):
    """One thread per client, a limited number of them, each for a limited time."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._room = BoundedSemaphore(MOST_CLIENTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for the client, unless there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the client; when its time is over, the connection is shut down under it."""
        late = Timer(CLIENT_SECONDS, _disconnect, [request])
        late.daemon = True
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves or is too slow is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _disconnect(connection: socket.socket) -> None:
    with suppress(OSError):  # it has just ended by itself
        connection.shutdown(socket.SHUT_RDWR)


def make_server(runs: LiveRuns, port: int = 0) -> ThreadingHTTPServer:
    """A server on the loopback interface; port 0 takes a free one. Two addresses, GET only, no files."""

    class Handler(BaseHTTPRequestHandler):
        server_version = "hacrl"
        sys_version = ""

        def do_GET(self) -> None:  # the name is the standard library's
            if self.headers.get("Host") not in hosts:  # a request under another host name (DNS rebinding)
                self._reply(HTTPStatus.FORBIDDEN, "text/plain", b"This page is for this machine alone.\n")
            elif self.path == "/":
                self._reply(HTTPStatus.OK, "text/html", encoded(render(runs.now()[1], live=True)))
            elif self.path == "/data.json":
                self._data()
            else:
                self._reply(HTTPStatus.NOT_FOUND, "text/plain", b"There is only the page /.\n")

        def _data(self) -> None:
            tag, data = runs.now()
            if self.headers.get("If-None-Match") == tag:
                self._reply(HTTPStatus.NOT_MODIFIED, "application/json", b"", tag)
            else:
                self._reply(HTTPStatus.OK, "application/json", encoded(embedded(data)), tag)

        def _reply(self, status: HTTPStatus, kind: str, body: bytes, tag: str | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            if tag:
                self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Do not log requests."""

    server = _Server((LOOPBACK, port), Handler)
    hosts = {f"{name}:{server.server_port}" for name in (LOOPBACK, "localhost")}
    return server
