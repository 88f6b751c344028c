"""What draws an agent's responses: its own decoder, or its engine with the agent's present weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from hacrl.agents.backends.interfaces import Decoder, Row
from hacrl.agents.backends.vllm_server import VllmServer
from hacrl.agents.context import Context
from hacrl.agents.engines import Engine
from hacrl.agents.errors import AgentError, explain_out_of_memory
from hacrl.agents.fingerprint import fingerprint
from hacrl.agents.logp_check import checked
from hacrl.agents.ranks import Ranks
from hacrl.agents.rendering import Rendering
from hacrl.agents.sampler import Drawn, Job, Stream, draw_in_batches
from hacrl.agents.stopping import split_ending
from hacrl.recipe.settings import SamplingSettings
from hacrl.types import Prompt, Rollout


@dataclass(frozen=True)
class _Request:
    """The responses that a rank is to draw."""

    prompts: Sequence[Prompt]
    """This rank's share."""
    samples: int
    sampling: SamplingSettings
    jobs: Sequence[Job]
    """Those of all ranks that draw together."""
    mine: slice
    """This rank's jobs among them."""


@dataclass(frozen=True)
class _Started:
    """Responses that an engine draws while the agent does something else."""

    engine: Engine
    request: _Request
    fingerprint: str
    """Of the weights that the engine was given."""
    responses: Callable[[], list[Drawn]]
    """Waits for them."""


class Responder:
    """Draws the responses of one agent, or of one of its ranks."""

    def __init__(
        self,
        agent: str,
        model: PreTrainedModel,
        encoder: Rendering,
        decoder: Decoder,
        engine: Engine | None,
        ranks: Ranks,
        *,
        context: Context,
        score: Callable[[Sequence[Row]], list[tuple[float, ...]]],
        away: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        """`score` gives log-probs as training computes them; the weights are gathered when it is called.

        With `away`, during which the agent leaves its device, engine and agent are never there at the same
        time, but to hand weights over.
        """
        self._agent = agent
        self._model = model
        self._encoder = encoder
        self._decoder = decoder
        self._engine = engine
        self._ranks = ranks
        self._context = context
        self._score = score
        self._away = away
        self._started: _Started | None = None

    def sample(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> list[Rollout]:
        """This rank's share of the responses, in order of prompts, then samples."""
        request = self._request(prompts, samples, sampling, seed)
        if self._engine is None:
            with self._ranks.gathered(self._model):
                drawn = self._decode(request.jobs, sampling)
        else:
            drawn = self._draw_with(self._engine, request)
        return self._rollouts(request, drawn)

    def start(self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int) -> bool:
        """Have the engine draw them from now on, if it can do so while the agent is trained."""
        if not isinstance(self._engine, VllmServer):
            return False  # other engines work on the agent's own device
        request = self._request(prompts, samples, sampling, seed)
        self._engine.hold(self._agent, self._model)
        responses = self._engine.start(self._agent, request.jobs, sampling, self._encoder)
        held = fingerprint(self._model.named_parameters())
        self._started = _Started(self._engine, request, held, responses)
        return True

    def finish(self) -> list[Rollout]:
        """The responses that were started. Log-probs are checked only if the weights are still the same."""
        started, self._started = self._started, None
        assert started is not None, "nothing was started"
        drawn = started.responses()
        if fingerprint(self._model.named_parameters()) == started.fingerprint:
            drawn = self._checked(started.engine, started.request.jobs, drawn)
        return self._rollouts(started.request, drawn)

    def _request(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> _Request:
        mine = self._ranks.share(range(len(prompts)))
        together = self._ranks.share(range(len(prompts)), self._engine.tensor_parallel if self._engine else 1)
        jobs = [job for place in together for job in self._jobs(prompts[place], samples, sampling, seed)]
        first = (mine[0] - together[0]) * samples if mine else 0
        place = slice(first, first + len(mine) * samples)
        return _Request([prompts[n] for n in mine], samples, sampling, jobs, place)

    def _jobs(self, prompt: Prompt, samples: int, sampling: SamplingSettings, seed: int) -> list[Job]:
        ids = self._encoder.encode_prompt(prompt)
        limit = min(sampling.max_new_tokens, self._context.room(prompt.id, len(ids)))
        return [Job(ids, Stream(seed, self._agent, prompt.id, number), limit) for number in range(samples)]

    def _decode(self, jobs: Sequence[Job], sampling: SamplingSettings) -> list[Drawn]:
        decode, eos_ids = self._encoder.decode_response, self._encoder.eos_ids
        with (
            explain_out_of_memory(self._agent, "sampling", "max_rows or max_new_tokens"),
            torch.inference_mode(),
        ):
            return draw_in_batches(jobs, self._decoder, sampling, eos_ids, self._model.device, decode)

    def _draw_with(self, engine: Engine, request: _Request) -> list[Drawn]:
        """Let the engine decode with the current weights -> this rank's responses, log-probs checked."""
        if self._away is not None:
            engine.wake(cache=False)
        engine.hold(self._agent, self._model)
        with self._out_of_the_way(engine):
            drawn = engine.draw(self._agent, request.jobs, request.sampling, self._encoder)[request.mine]
        return self._checked(engine, request.jobs[request.mine], drawn)

    def _checked(self, engine: Engine, jobs: Sequence[Job], drawn: Sequence[Drawn]) -> list[Drawn]:
        rows = [(job.prompt, response.token_ids) for job, response in zip(jobs, drawn, strict=True)]
        with self._ranks.gathered(self._model):
            scores = self._score(rows)
        settings = engine.settings
        cap = settings.correction_cap if settings.correction == "truncated" else None
        return checked(drawn, scores, settings.max_logprob_difference, cap)

    @contextmanager
    def _out_of_the_way(self, engine: Engine) -> Iterator[None]:
        """On a shared device the engine has it for itself while it draws, and is asleep before and after."""
        if self._away is None:
            yield
            return
        with self._away():
            engine.wake(cache=True)
            yield
            engine.sleep()

    def _rollouts(self, request: _Request, drawn: Sequence[Drawn]) -> list[Rollout]:
        return [
            self._rollout(
                request.prompts[row // request.samples].id, row % request.samples, response, request.sampling
            )
            for row, response in enumerate(drawn)
        ]

    def _rollout(self, prompt_id: str, sample: int, drawn: Drawn, sampling: SamplingSettings) -> Rollout:
        if not all(map(math.isfinite, drawn.token_logps)):
            raise AgentError(
                f"agent {self._agent!r}: log-probs are not finite: the weights have become NaN or too large; "
                "start again, or from an earlier checkpoint, with a lower learning_rate"
            )
        written = self._encoder.decode_response(drawn.token_ids)
        text, ending = split_ending(written, drawn.stop, sampling.include_stop)
        return Rollout(
            prompt_id=prompt_id,
            sample=sample,
            text=text,
            token_ids=drawn.token_ids,
            token_logps=drawn.token_logps,
            finish_reason="stop" if drawn.stopped else "length",
            engine=drawn.engine,
            stop=drawn.stop,
            ending=ending,
        )
