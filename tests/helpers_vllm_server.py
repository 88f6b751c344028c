"""A stand-in for vLLM's server on the loopback interface: a transformers model that can misbehave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from helpers_endpoint import LoopbackServer, send

PREFIX = "dp0:pp0:pcp0:tp0:"


class FakeServer:
    """Responds with the weights it holds, and records what it is asked."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.url = ""
        self.paths: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.version = "default"
        self.development = True
        """Whether it has the paths that take weights."""
        self.forgetful = False
        """Whether new weights are taken without an error, but not used."""
        self.packed = False
        """Whether weights are in a form that cannot be read, as on CPUs."""
        self.place = PREFIX
        self.faults: dict[str, Callable[[], tuple[int, Any]]] = {}
        """Answers of paths that misbehave."""
        self.begins: Callable[[str], None] = lambda path: None
        """Is told of a request before it is answered, and may wait."""
        self._lock = Lock()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.begins(path)
        with self._lock:
            self.paths.append(path)
            if path in self.faults:
                return self.faults[path]()
            work = getattr(self, "do_" + path.strip("/").replace("/", "_"), None)
            if work is None or (not self.development and not path.startswith("/v1/")):
                return 404, {"detail": "Not Found"}
            return 200, work(body)

    def do_v1_models(self, body: dict[str, Any]) -> Any:
        length = self.model.config.max_position_embeddings
        return {"data": [{"id": "served", "parent": None, "max_model_len": length}]}

    def do_weight_info(self, body: dict[str, Any]) -> Any:
        return {"weight_version": self.version}

    def do_update_weight_version(self, body: dict[str, Any]) -> Any:
        self.version = body["new_version"]
        return {"success": True}

    def do_reset_prefix_cache(self, body: dict[str, Any]) -> Any:
        return {"success": True}

    def do_weight_checker(self, body: dict[str, Any]) -> Any:
        assert body == {"action": "checksum"}
        held = self._held()
        return {"checksums": {self.place + name: self._digest(weight) for name, weight in held.items()}}

    def do_collective_rpc(self, body: dict[str, Any]) -> Any:
        assert body["method"] == "reload_weights"
        files = sorted(Path(body["kwargs"]["weights_path"]).glob("*.safetensors"))
        assert files
        weights = {name: weight for file in files for name, weight in load_file(file).items()}
        own = dict(self.model.named_parameters())
        assert weights.keys() == own.keys()
        if not self.forgetful:
            with torch.no_grad():
                for name, weight in weights.items():
                    own[name].copy_(weight)
        return {"results": [None]}

    def do_v1_completions(self, body: dict[str, Any]) -> Any:
        self.bodies.append(body)
        ids: list[int] = []
        logps: list[float] = []
        stream = torch.Generator().manual_seed(body["seed"])
        while len(ids) < body["max_tokens"] and not (ids and ids[-1] in body["stop_token_ids"]):
            with torch.inference_mode():
                found = self.model(torch.tensor([body["prompt"] + ids])).logits[0, -1].log_softmax(-1)
            greedy = body["temperature"] == 0
            ids.append(int(found.argmax() if greedy else found.exp().multinomial(1, generator=stream)))
            logps.append(float(found[ids[-1]]))
        choice = {"token_ids": ids, "logprobs": {"token_logprobs": logps}, "stop_reason": None}
        return {"choices": [choice]}

    def _held(self) -> dict[str, Tensor]:
        """As vLLM has them: q, k and v in one piece, gate and up too, the vocabulary filled up."""
        held: dict[str, Tensor] = {}
        for name, weight in self.model.named_parameters():
            for part, whole in (
                ("q", "qkv"),
                ("k", "qkv"),
                ("v", "qkv"),
                ("gate", "gate_up"),
                ("up", "gate_up"),
            ):
                if f".{part}_proj." in name:
                    name = name.replace(f".{part}_proj.", f".{whole}_proj.")
                    weight = torch.cat([held[name], weight]) if name in held else weight
            held[name] = weight
        for name in held:
            if "embed_tokens" in name or "lm_head" in name:
                missing = -len(held[name]) % 64
                held[name] = torch.cat([held[name], torch.zeros(missing, held[name].shape[1])])
        return held

    def _digest(self, weight: Tensor) -> str:
        content = b"" if self.packed and weight.ndim == 2 else weight.detach().contiguous().numpy().tobytes()
        return hashlib.sha256(content).hexdigest()


@contextmanager
def serve_vllm(server: FakeServer) -> Iterator[FakeServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, body: dict[str, Any]) -> None:
            status, content = server.answer(self.path, body)
            send(self, status, json.dumps(content).encode(), {})

        def log_message(self, *arguments: object) -> None: ...

    listening = LoopbackServer(Handler)
    server.url = f"http://127.0.0.1:{listening.server_port}"
    thread = Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
