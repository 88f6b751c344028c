"""A stand-in for an OpenAI-compatible server on the loopback interface, which can misbehave."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

KEY = "sk-very-secret"


def reply(text: str, **changes: Any) -> bytes:
    """What a good server sends."""
    tokens = [{"token": letter, "logprob": -0.25} for letter in text]
    choice = {"message": {"content": text}, "finish_reason": "stop", "logprobs": {"content": tokens}}
    usage = {"prompt_tokens": 7, "completion_tokens": len(text)}
    return json.dumps({"choices": [choice | changes], "usage": usage}).encode()


Answer = tuple[int, bytes] | tuple[int, bytes, dict[str, str]]
Fault = Callable[[BaseHTTPRequestHandler], None]
"""Misbehaves with the connection itself."""


class Stub:
    """Sends the given faults first, then good replies; counts what it was asked."""

    def __init__(self, respond: Callable[[dict[str, Any]], str] = lambda body: "12") -> None:
        self.respond = respond
        self.faults: list[Answer | Fault] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.seeds: Counter[int] = Counter()
        self.url = ""
        self.closing = Event()
        self._lock = Lock()

    def next(self, body: dict[str, Any], headers: dict[str, str]) -> Answer | Fault:
        with self._lock:
            self.bodies.append(body)
            self.headers.append(headers)
            self.seeds[body.get("seed", 0)] += 1
            return self.faults.pop(0) if self.faults else (200, reply(self.respond(body)))


class LoopbackServer(ThreadingHTTPServer):
    """Takes many requests at once, also when the machine is too busy to accept them soon."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)


@contextmanager
def serve(stub: Stub) -> Iterator[Stub]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = stub.next(body, dict(self.headers))
            if callable(found):
                found(self)
                return
            status, data, *more = found
            send(self, status, data, more[0] if more else {})

        def log_message(self, *arguments: object) -> None: ...

    server = LoopbackServer(Handler)
    stub.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield stub
    finally:
        stub.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def send(handler: BaseHTTPRequestHandler, status: int, data: bytes, headers: dict[str, str]) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


def cut_off(handler: BaseHTTPRequestHandler) -> None:
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')


def silent(stub: Stub) -> Fault:
    """Accepts the request and says nothing."""
    return lambda handler: [stub.closing.wait(20), None][1]


def dripping(stub: Stub) -> Fault:
    """Sends a byte at a time, each before a read would time out."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not stub.closing.wait(0.05):
                handler.wfile.write(b" ")
                handler.wfile.flush()
        except OSError:  # the client has gone
            pass

    return drip


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Sends without an end."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * (1 << 20))
    except OSError:
        pass


def texts(bodies: Sequence[dict[str, Any]]) -> list[str]:
    """The last message of every request."""
    return [body["messages"][-1]["content"] for body in bodies]
