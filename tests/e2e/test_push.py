"""`hacrl push` against a stand-in of the hub on this machine."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from helpers_train import make_agent, recipe, run

TOKEN = "hf_not_a_real_token"


class StandIn(ThreadingHTTPServer):
    """Keeps what a hub would: repositories with their files, and the tokens of all requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.made: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.headers_of_cards: list[str] = []
        self.tokens: set[str | None] = set()


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.tokens.add(self.headers.get("Authorization"))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {"error": "Invalid username or password."})
        elif self.path == "/api/repos/create":
            self.server.made.append(json.loads(body))
            self._answer(200, {"url": f"{self.server.address}/me/ann"})
        elif self.path == "/api/validate-yaml":
            self.server.headers_of_cards.append(json.loads(body)["content"].split("---\n")[1])
            self._answer(200, {"errors": [], "warnings": []})
        elif self.path == "/api/models/me/ann/preupload/main":
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            self._answer(200, {"files": modes})
        elif self.path == "/api/models/me/ann/commit/main":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            commit = {"commitOid": "0" * 40, "commitUrl": f"{self.server.address}/me/ann/commit/0"}
            self._answer(200, {"success": True, **commit})
        else:
            self._answer(404, {"error": self.path})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def hub() -> Iterator[StandIn]:
    with StandIn() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("push")
    agents = {name: make_agent(folder / name, seed) for seed, name in enumerate(("ann", "bob"))}
    settings = recipe(agents, steps=1, evaluation={"prompts": 6, "samples": 2})
    settings["agents"][1]["lora"] = {"rank": 2}
    run(settings, folder / "run")
    return folder / "run"


def push(hub: StandIn, run: Path, *words: str, token: str = TOKEN, repo: str = "me/ann") -> tuple[int, str]:
    command = [sys.executable, "-m", "hacrl", "push", str(run), "--repo", repo, *words]
    own = {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_TOKEN": token, "HF_HOME": str(run / "hf")}
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_agent_arrives_with_its_card(hub: StandIn, finished: Path) -> None:
    code, shown = push(hub, finished, "--agent", "ann")
    assert code == 0, shown
    assert f"ann is at {hub.address}/me/ann" in shown
    (made,) = hub.made
    assert (made["organization"], made["name"], made["visibility"]) == ("me", "ann", "private")
    directory = finished / "agents" / "ann"
    assert set(hub.files) == {path.name for path in directory.iterdir()}
    same = {name for name, content in hub.files.items() if content == (directory / name).read_bytes()}
    assert same == set(hub.files) - {"README.md"}
    card = hub.files["README.md"].decode()
    assert 'AutoModelForCausalLM.from_pretrained("me/ann")' in card
    assert "mean@2" in card
    assert yaml.safe_load(hub.headers_of_cards[0])["tags"] == ["hacrl", "reinforcement-learning"]
    assert str(finished.parent) not in card
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert TOKEN not in shown


def test_a_new_repository_is_public_if_that_is_asked_for(hub: StandIn, finished: Path) -> None:
    code, shown = push(hub, finished, "--agent", "ann", "--public", "--base-model", "org/base")
    assert code == 0, shown
    assert hub.made[0]["visibility"] == "public"
    assert hub.files["README.md"].decode().startswith('---\nbase_model: "org/base"\nlibrary_name:')


def test_an_adapter_needs_a_base_that_others_have(hub: StandIn, finished: Path) -> None:
    code, shown = push(hub, finished, "--agent", "bob")
    assert code == 2
    assert "adapter_config.json: its base model" in shown
    assert "--base-model" in shown
    assert hub.made == []
    code, shown = push(hub, finished, "--agent", "bob", "--base-model", "org/base")
    assert code == 0, shown
    settings = json.loads(hub.files["adapter_config.json"])
    assert (settings["base_model_name_or_path"], settings["r"]) == ("org/base", 2)


@pytest.mark.parametrize(
    ("words", "token", "message"),
    [
        (("--agent", "eve"), TOKEN, "has no agent 'eve'; it has ann, bob"),
        (("--agent", "ann"), "hf_wrong", "'me/ann' cannot be written at"),
        (("--agent", "ann"), "", "no token for"),
    ],
)
def test_mistakes_end_with_one_message(
    words: tuple[str, ...], token: str, message: str, hub: StandIn, finished: Path
) -> None:
    code, shown = push(hub, finished, *words, token=token)
    assert (code, hub.files) == (2, {})
    assert message in shown
    assert "Traceback" not in shown
    assert "hf_" not in shown.replace("hf_home", "")


def test_a_link_is_not_followed(hub: StandIn, finished: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    link = finished / "agents" / "ann" / "notes.txt"
    link.symlink_to(tmp_path / "secret")
    code, shown = push(hub, finished, "--agent", "ann")
    link.unlink()
    assert (code, hub.files) == (2, {})
    assert "notes.txt is not a file of its own" in shown
