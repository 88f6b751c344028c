"""A running vLLM server as the sampler of one agent.

New weights go through a directory that the server can read. Everything else is vLLM's HTTP interface for
reinforcement learning, which a server has in development mode: `/collective_rpc` loads the weights,
`/weight_checker` says what the server holds, as a checksum of every weight, and `/weight_info` names them.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import finalize

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from hacrl.agents.backends.vllm_requests import drawn_response, sampling_fields
from hacrl.agents.backends.vllm_weights import NamedWeights, TrainedWeights, forms, packed, write_weights
from hacrl.agents.errors import AgentError
from hacrl.agents.fingerprint import fingerprint
from hacrl.agents.json_client import JsonClient, Refusal, in_threads
from hacrl.agents.ranks import Ranks
from hacrl.agents.rendering import Rendering
from hacrl.agents.sampler import Drawn, Job
from hacrl.recipe.agent_settings import VllmSettings
from hacrl.recipe.settings import SamplingSettings
from hacrl.runs.files import explain_library_errors
from hacrl.runs.json_files import is_integer, is_number

DEVELOPMENT_MODE = "VLLM_SERVER_DEV_MODE=1"
PLAIN_WEIGHTS = "--worker-extension-cls hacrl.agents.backends.vllm_plain_weights.PlainWeights"
PACKING = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""What vLLM keeps in one piece, in nearly all of its models."""
VOCABULARY_ROWS = 64
"""vLLM fills vocabularies up to a multiple of this."""
NOTHING = hashlib.sha256(b"").hexdigest()
WHOLE = ":pp0:pcp0:tp0:"
"""In the key of a weight that is in one place."""
MISSING = frozenset({404, 405})
"""Statuses of a path that a server does not have."""


class VllmServer:
    """Draws responses with the weights it was given last; other agents must not use the same server."""

    tensor_parallel = 1

    def __init__(
        self, agent: str, settings: VllmSettings, *, trains: bool, ranks: Ranks | None = None
    ) -> None:
        """Ask the server what it serves; refuse one that cannot take weights if the agent is trained.

        Of several `ranks` all draw their share of the responses, and the first sends the weights.
        """
        self._ranks = ranks or Ranks()
        self.settings = settings
        self._agent = agent
        self._client = JsonClient(agent, settings.server, section="engine")
        self._close = finalize(self, self._client.close)
        self._version: str | None = None
        """Fingerprint of the weights that it was given last."""
        self._model, self.context_length = self._served()
        obstacle = self._obstacle()
        if trains and obstacle is not None:
            raise AgentError(
                f"agent {agent!r}: the server at {settings.url} cannot take new weights: {obstacle}. Such a "
                "server can only be the engine of an agent that does not train (source: frozen)"
            )
        self._takes_weights = obstacle is None

    def hold(self, agent: str, model: PreTrainedModel) -> None:
        """Make sure that the server holds exactly this model's weights; send them if it does not.

        A server that cannot take weights, which only a frozen agent may have, holds what it holds.
        """
        if not self._takes_weights:
            return
        weights = TrainedWeights(model)
        if self._ranks.any(self._outdated(weights) is not None):
            self._send(weights)
        self._version = fingerprint(weights)
        if self._named_weights() != self._version:
            self._client.ask("/update_weight_version", {"new_version": self._version})

    def draw(
        self, agent: str, jobs: Sequence[Job], sampling: SamplingSettings, encoder: Rendering
    ) -> list[Drawn]:
        """One response for each job; the log-probs are the server's, at temperature 1."""
        return self.start(agent, jobs, sampling, encoder)()

    def start(
        self, agent: str, jobs: Sequence[Job], sampling: SamplingSettings, encoder: Rendering
    ) -> Callable[[], list[Drawn]]:
        """Send the requests from threads; the replies are read when they are waited for."""
        bodies = [self._body(job, sampling, encoder.eos_ids) for job in jobs]
        thread = ThreadPoolExecutor(1)
        replies = thread.submit(self._replies, bodies)
        thread.shutdown(wait=False)
        return lambda: [self._drawn(reply, sampling, encoder) for reply in replies.result()]

    def wake(self, *, cache: bool) -> None:
        """A server has devices of its own."""

    def sleep(self) -> None:
        """A server has devices of its own."""

    def close(self) -> None:
        """Close the connections; the server goes on."""
        self._close()

    def _served(self) -> tuple[str, int]:
        """Name and longest context of the model."""
        found = self._client.ask("/v1/models")
        try:
            model = next(each for each in found["data"] if each.get("parent") is None)
            return str(model["id"]), int(model["max_model_len"])
        except (TypeError, KeyError, ValueError, StopIteration) as error:
            fix = "engine.url has to be the address of a vLLM server, such as http://127.0.0.1:8000"
            raise self._client.error("/v1/models", "it names no model of vLLM", fix) from error

    def _obstacle(self) -> str | None:
        """Why it cannot be given new weights; None: it can."""
        found = self._client.ask("/weight_info", refusals=MISSING)
        if isinstance(found, Refusal):
            return f"it is not in development mode ({found.reason}): start it with {DEVELOPMENT_MODE}"
        held = self._checksums()
        if NOTHING in held.values():
            return (
                "it keeps weights in a form that cannot be compared, as vLLM does on CPUs: start it with "
                f"{PLAIN_WEIGHTS}"
            )
        if not all(WHOLE in key for key in held):
            return (
                "it splits weights over several GPUs, so that they cannot be compared: start it with "
                "--tensor-parallel-size 1 (--data-parallel-size may be larger)"
            )
        return None

    def _send(self, weights: TrainedWeights) -> None:
        if self._ranks.rank == 0:
            self._load(weights)
        else:
            for _ in weights:  # whole tensors are made by all ranks together
                pass
        self._ranks.any(False)  # the others wait for the first
        stale = self._outdated(weights)
        if stale is not None:
            raise AgentError(
                f"agent {self._agent!r}: the server at {self.settings.url} was given new weights, but still "
                f"does not hold the agent's weight {stale!r}, so it would sample with outdated weights: it "
                "has to serve the agent's own model in the agent's dtype, and to load what it is given"
            )

    def _load(self, weights: TrainedWeights) -> None:
        with self._folder() as folder:
            write_weights(weights, folder)
            load = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            found = self._client.ask("/collective_rpc", load, refusals=(400, 500))
        if isinstance(found, Refusal):
            raise self._client.error(
                "/collective_rpc",
                f"it did not load the new weights: {found.reason}",
                f"it has to read {folder.parent} (engine.weights_folder), and to serve the agent's own model",
            )
        self._client.ask("/reset_prefix_cache", {})  # what was computed with the old ones

    def _checksums(self) -> dict[str, str]:
        """SHA-256 of every weight it holds, by place and name: `dp0:pp0:pcp0:tp0:model.norm.weight`."""
        found = self._client.ask("/weight_checker", {"action": "checksum"})
        checksums = found.get("checksums") if isinstance(found, dict) else None
        if not isinstance(checksums, dict) or not all(isinstance(each, str) for each in checksums.values()):
            fix = "engine.url has to be a server of vLLM 0.32 or newer"
            raise self._client.error("/weight_checker", "the reply has no checksums", fix)
        return checksums

    @torch.no_grad()
    def _outdated(self, weights: NamedWeights) -> str | None:
        """Name of a weight that the server does not hold bit by bit as given."""
        held: dict[str, set[str]] = {}
        for key, digest in self._checksums().items():
            held.setdefault(key.partition(WHOLE)[2], set()).add(digest)  # data-parallel copies are the same
        different: list[str] = []
        for name, parts in packed(weights, set(held), PACKING):
            found = held.pop(name, set())
            if found not in ({digest} for digest in _digests(torch.cat(parts) if parts[1:] else parts[0])):
                different.append(name)
        return next(iter([*different, *held]), None)

    def _named_weights(self) -> str:
        found = self._client.ask("/weight_info")
        return str(found.get("weight_version")) if isinstance(found, dict) else str(found)

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """A new directory for weights, which the server can read."""
        shared = self.settings.weights_folder
        if shared is None:
            with TemporaryDirectory(prefix="hacrl-") as temporary:
                yield Path(temporary)
            return
        folder = Path(shared).absolute() / f"{self._agent}-weights"
        with explain_library_errors(folder, "write"):
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _replies(self, bodies: Sequence[dict[str, Any]]) -> list[Any]:
        """The server's replies, drawn with the weights that it was given last."""
        replies = in_threads(
            lambda body: self._client.ask("/v1/completions", body), bodies, self.settings.concurrency
        )
        if self._version is not None and (now := self._named_weights()) != self._version:
            raise AgentError(
                f"agent {self._agent!r}: while it drew responses, the weights of the server at "
                f"{self.settings.url} became others ({now!r}): no other run may use it"
            )
        return replies

    def _body(self, job: Job, sampling: SamplingSettings, eos_ids: Sequence[int]) -> dict[str, Any]:
        """The request; penalties are named because a model's `generation_config.json` may set others."""
        return {
            "model": self._model,
            "prompt": list(job.prompt),
            **sampling_fields(job, sampling, eos_ids),
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "return_token_ids": True,
        }

    def _drawn(self, reply: Any, sampling: SamplingSettings, encoder: Rendering) -> Drawn:
        try:
            choice = reply["choices"][0]
            ids, logps = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            if not all(map(is_integer, ids)) or not all(map(is_number, logps)):
                raise ValueError("its tokens or log-probs are not numbers")
            return drawn_response(ids, logps, choice.get("stop_reason"), sampling, encoder)
        except (TypeError, KeyError, IndexError, ValueError) as error:
            fix = "engine.url has to be a server of vLLM 0.32 or newer"
            what = f"the reply is not a response with tokens and log-probs ({error})"
            raise self._client.error("/v1/completions", what, fix) from error


def _digests(wanted: Tensor) -> Iterator[str]:
    """Checksums that a weight may have in vLLM; the usual one first."""
    for form in forms(wanted):
        yield _digest(form)
        if form.ndim == 2 and len(form) % VOCABULARY_ROWS:
            yield _digest(F.pad(form, (0, 0, 0, -len(form) % VOCABULARY_ROWS)))


def _digest(weight: Tensor) -> str:
    content = weight.cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return hashlib.sha256(content.data).hexdigest()
