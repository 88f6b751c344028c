"""The sections of a recipe: typed, frozen, unknown keys refused. The defaults are the paper's.

The text below a key is its description in `docs/recipe.md`. Agents, runtimes and the exchange get these
sections themselves, so that no setting is defined twice. A method's settings are the fields of its class.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
)

from hacrl.defaults import (
    CAPABILITY_FLOOR,
    CAPABILITY_WINDOW,
    CONTEXTUAL_MEMORY,
    CORRECTION_CAP,
    DEADLINE_SECONDS,
    MAX_UNSCORABLE,
    OMEGA_CLAMP,
)
from hacrl.pool.places import check_url
from hacrl.recipe.agent_settings import EnvironmentVariable
from hacrl.recipe.fields import (
    Above0,
    AtLeast0,
    Below1,
    Count,
    CountOrAuto,
    LearningRate,
    Settings,
    Share,
    Text,
    all_different,
    named,
    not_empty,
    text_or_list,
)
from hacrl.runs.contents import AgentName


class TaskSettings(Settings):
    """A task: its name and the settings `hacrl.tasks.load` takes for it."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    name: Text
    """Name of a built-in task, or a data set's file, directory or hub id."""

    @property
    def settings(self) -> dict[str, JsonValue]:
        """Everything but the name."""
        return dict(self.__pydantic_extra__)


TaskChoice = Annotated[TaskSettings, BeforeValidator(named)]


class SamplingSettings(Settings):
    """How responses are drawn while training."""

    max_new_tokens: Count = 4096
    """Longest response, in tokens."""
    temperature: Annotated[float, Field(ge=1e-6)] = 1.0
    """1 samples from the policy itself."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling; 1 turns it off."""
    top_k: Count | None = None
    """Only the k likeliest tokens are drawn; null: all."""
    min_p: Below1 = 0.0
    """Only tokens at least this share as likely as the likeliest one are drawn; 0 turns it off."""
    stop: Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(all_different)] = ()
    """Strings that end a response, besides the model's EOS; the response is complete, not cut off."""
    include_stop: bool = False
    """Whether the text that is verified and shared includes the stop string."""
    max_rows: Count = 512
    """Responses decoded in parallel, at most: bounds the key-value cache, changes nothing else."""

    def as_greedy(self) -> SamplingSettings:
        """The same with temperature 0, which a recipe may not ask for: always the likeliest token."""
        return self.model_copy(update={"temperature": 0.0})

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken; `top_p`, `top_k` and `min_p` have no effect then."""
        return self.temperature == 0


class UpdatesSettings(Settings):
    """How a step's responses become optimiser updates."""

    mini_batches: Count = 2
    """Mini-batches that each source's responses are split into, one optimiser update each."""
    tokens_per_micro_batch: Count = 16384
    """Tokens computed at once, at most: bounds memory, changes nothing else."""
    mask_truncated: bool = False
    """Leave responses that were cut off at `sampling.max_new_tokens` out of the loss, own and peers'."""
    train_eos: bool = True
    """Train on the EOS that ends a response; false: on nobody's, as the paper's code does."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""


class OptimiserSettings(Settings):
    """AdamW and the loss's KL term."""

    learning_rate: LearningRate | None = None
    """Of every agent that does not set its own; null: by the model's size, 1e-6 from a billion weights on."""
    betas: Annotated[tuple[Below1, Below1], Field(strict=False)] = (0.9, 0.999)
    """AdamW's decay rates of the first and second moment."""
    weight_decay: AtLeast0 = 0.01
    """AdamW's weight decay."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """The learning rate after the warm-up; `linear` and `cosine` reach 0 at the end of the run."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Training steps over which the learning rate rises linearly from 0, however many updates they have."""
    skip_empty_updates: bool = True
    """Updates without any gradient change nothing; false: AdamW goes on by its momentum, as in the paper."""
    max_grad_norm: Above0 = 1.0
    """Gradients are clipped to this norm."""
    kl: AtLeast0 = 0.001
    """Weight of the KL divergence to the initial policy on own responses; 0 needs no reference copy."""


class CapabilitySettings(Settings):
    """The estimate of how good each agent is (omega is the ratio of two agents' capabilities)."""

    window: Count = CAPABILITY_WINDOW
    """Steps the rolling mean goes over, the current one included."""
    floor: Annotated[float, Field(ge=1e-30)] = CAPABILITY_FLOOR
    """Lower bound of capabilities, applied before they are divided."""
    clamp: Annotated[
        tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(ge=1)]], Field(strict=False)
    ] = OMEGA_CLAMP
    """Smallest and largest omega."""
    measure: Literal["mean_reward", "positive_rate"] = "mean_reward"
    """`mean_reward`: mean reward of a step; `positive_rate`: share of rewards above 0."""
    memory: Share = CONTEXTUAL_MEMORY
    """Where capability depends on the prompt: what an outcome counts a step later."""


LengthNorm = Literal["own", "learner", "bytes"]
"""`own`: each side's sum over its own token count (the paper). `learner`: both sums over the learner's token
count. `bytes`: both sums over the UTF-8 bytes of the text, which no tokenizer changes."""
TopologyName = Literal["everybody", "nobody", "ring", "star"]
Pair = Annotated[tuple[str, str], Field(strict=False)]


class AsynchronousSettings(Settings):
    """Agents do not wait for each other in every step; they do at checkpoints and evaluations."""

    max_staleness: Annotated[int, Field(ge=0)] = 2
    """Steps by which peers' responses may be late; later ones are dropped. 0: wait for all in every step."""
    wait_seconds: AtLeast0 | None = None
    """Longest wait in a step for peers that are further behind; null: no limit."""


class SampleAheadSettings(Settings):
    """The responses of a step are drawn by the weights before the updates of the step before."""

    correction: Literal["none", "truncated"] = "truncated"
    """`truncated`: own updates weight responses by min(p_now / p_drawn, `correction_cap`)."""
    correction_cap: Annotated[float, Field(ge=1)] = CORRECTION_CAP
    """Upper bound of that weight."""


def _pool_url(url: str) -> str:
    check_url(url)
    return url


def _located(value: object) -> object:
    """A bare URL stands for a mapping with every other key at its default."""
    return {"url": value} if isinstance(value, str) else value


class PoolSettings(Settings):
    """Responses are shared with other runs (pip install 'hacrl[pool]' unless it is a directory)."""

    url: Annotated[str, AfterValidator(_pool_url)]
    """A directory, `redis://HOST:PORT/NUMBER/NAME`, or object storage such as `s3://BUCKET/PREFIX`."""
    key_env: EnvironmentVariable = "HACRL_POOL_KEY"
    """Environment variable with the key that all runs of the pool share."""
    password_env: EnvironmentVariable | None = None
    """Environment variable with the password of Redis; null: it needs none."""
    trust: Annotated[tuple[AgentName, ...], Field(strict=False), AfterValidator(all_different)] = ()
    """Sources whose rewards are believed for prompts that this run does not have; others' are left out."""
    quota: Count = 1024
    """Responses of one source that are taken in a step, at most."""
    max_staleness: Annotated[int, Field(ge=0)] = 4
    """Steps by which a response may be behind its source's newest one; older ones are left out."""
    wait_seconds: Above0 = 5.0
    """Longest wait for the pool; a pool that has not answered is not waited for again until it does."""
    wait_for: Annotated[int, Field(ge=0)] = 0
    """Other runs that have to be there before the first step ..."""
    start_seconds: Above0 = 300.0
    """... and the longest wait for them."""


PoolChoice = Annotated[PoolSettings | None, BeforeValidator(_located)]


class ExchangeSettings(Settings):
    """Who learns from whom, and how peers' responses are used."""

    topology: Annotated[
        Annotated[TopologyName, Tag("<text>")]
        | Annotated[tuple[Pair, ...], Field(strict=False), AfterValidator(not_empty), Tag("<list>")],
        Discriminator(
            text_or_list,
            "topology",
            "Input should be everybody, nobody, ring, star or a list of [source, learner] pairs",
        ),
    ] = "everybody"
    """`everybody`, `nobody`, `ring`, `star`, or a list of `[source, learner]` pairs."""
    hub: str | None = None
    """The agent at the centre of a star."""
    length_norm: LengthNorm = "own"
    """What log-probs are divided by: `own` (each side its own token count, the paper), `learner`, `bytes`."""
    peer_order: Literal["interleaved", "sequential"] = "interleaved"
    """Peers' responses mixed over the mini-batches, or one peer after the other (the paper)."""
    max_prompt_tokens: Count | None = None
    """Longest prompt of a peer's response, in the learner's tokens; null: as long as its model allows."""
    max_response_tokens: Count | None = None
    """Longest response of a peer, in the learner's tokens; null: as long as its model allows."""
    truncate_overlong: bool = False
    """Cut what is longer, prompts at the beginning and responses at the end; otherwise it is left out."""
    reverify: bool | None = None
    """Learners verify peers' responses again before training on them; null: the method's default."""
    asynchronous: AsynchronousSettings | None = None
    """With `runtime: ray`, agents do not wait for each other in every step; null: they do."""
    pool: PoolChoice = None
    """Share responses with other runs: the URL of a pool, or a mapping with `url` and settings."""


class RewardFunctionSettings(Settings):
    """A reward function of your own, TRL's signature."""

    path: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
    """`module:function`, installed or in the directory where the run is started."""
    weight: float = 1.0
    """Factor of its reward in the sum."""


class RewardSettings(Settings):
    """How responses are scored."""

    verifier: Text | None = None
    """Name of a built-in verifier; null: the task's."""
    functions: Annotated[tuple[RewardFunctionSettings, ...], Field(strict=False)] = ()
    """Reward functions of your own instead of a verifier; their weighted rewards are added."""
    deadline_seconds: Above0 = DEADLINE_SECONDS
    """A verifier or reward function that takes longer is killed; it has failed for that response."""
    max_unscorable: Share = MAX_UNSCORABLE
    """The run stops when a larger share of a step's responses cannot be scored."""
    maximum: float = 1.0
    """The largest possible reward: a baseline above it falls back to the learner's own mean."""


class EvaluationSettings(Settings):
    """Each agent alone on test prompts, greedy; always after the last step."""

    every: Annotated[int, Field(ge=0)] = 0
    """Steps between evaluations; 0: none during the run."""
    before: bool = True
    """Evaluate before the first step too."""
    keep: Literal["last", "best"] = "last"
    """Weights to export at the end: the `last`, or each agent's `best` evaluated ones; ties: the earlier."""
    prompts: Count = 256
    """Test prompts per task, at most."""
    samples: Annotated[int, Field(ge=0)] = 0
    """Responses per prompt at temperature 1 for mean@k, pass@k and entropy; 0: only the greedy one."""
    many: Annotated[int, Field(ge=0)] = 0
    """Responses for pass@k with a large k, to the first `many_prompts` of the trained task; 0: none."""
    many_prompts: Count = 32
    """Test prompts for `many`, at most."""
    curve: Literal["all", "greedy"] = "all"
    """What evaluations during the run measure: `all`, or greedy accuracy alone, which is much cheaper."""
    tasks: Annotated[tuple[TaskChoice, ...], Field(strict=False), AfterValidator(all_different)] = ()
    """Further tasks to evaluate on: names, or mappings like `task`."""
    drift_prompts: Annotated[int, Field(ge=0)] = 0
    """Test prompts on which the KL divergence of an agent's start from its end is measured; 0: none."""
    text_words: Annotated[int, Field(ge=0)] = 0
    """Words of Python's reference for the perplexity at the end, with `before` also at first; 0: none."""


class CheckpointSettings(Settings):
    """What a run can be resumed from."""

    every: CountOrAuto = "auto"
    """Steps between checkpoints; `auto`: as often as 5% of the time allows, toy models after every step."""
    keep: Count = 2
    """Latest checkpoints to keep, besides the best."""


class LoggingSettings(Settings):
    """Where metrics go besides `metrics.jsonl`."""

    to: Annotated[
        tuple[Literal["tensorboard", "wandb", "trackio"], ...],
        Field(strict=False),
        AfterValidator(all_different),
    ] = ()
    """Any of `tensorboard`, `wandb`, `trackio`."""
    every: Count = 1
    """Steps between the entries sent there."""
    trajectories: bool = True
    """Keep all verified responses under `trajectories/`."""


class AuditSettings(Settings):
    """Audit measurements that cost time; the cheap ones are always among the metrics."""

    every: Annotated[int, Field(ge=0)] = 0
    """Steps between comparisons of peers' and own gradients, with extra backward passes; 0: none."""


class RuntimeSettings(Settings):
    """Where the agents run."""

    name: Literal["local", "ray"] = "local"
    """`local` (all in one process) or `ray` (each in its own process, in parallel)."""
    share_devices: bool = False
    """Keep only the working agent on the devices, the others offloaded to CPU memory."""
    address: Annotated[str, Field(pattern=r"^[^/\s]+:\d{1,5}$")] | None = None
    """`ray`: `host:port` of a running cluster; null starts one that only this machine can reach."""
    on_failure: Literal["retry", "degrade", "stop"] = "retry"
    """`ray`: restart a lost process (`retry`), continue without its agent (`degrade`), or end (`stop`)."""
    start_seconds: Above0 = 300.0
    """`ray`: time limit for placing an agent, and again for loading its model."""
    deadline_seconds: Above0 = 3600.0
    """`ray`: time limit for one call to an agent, such as a step's sampling; then it counts as lost."""


RuntimeChoice = Annotated[RuntimeSettings, BeforeValidator(named)]
