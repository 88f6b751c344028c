"""An agent of a recipe: its model, how it is prompted, what draws its responses and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    model_validator,
)

from hacrl.defaults import CORRECTION_CAP
from hacrl.recipe.fields import (
    Above0,
    AtLeast0,
    Count,
    LearningRate,
    Settings,
    Text,
    named,
    not_empty,
    text_or_list,
)
from hacrl.runs.contents import AgentName


class LoraSettings(Settings):
    """Train low-rank adapters instead of all weights (pip install 'hacrl[lora]')."""

    rank: Count = 16
    """Rank of the adapters."""
    alpha: Above0 = 32.0
    """Scale of the adapters; they are multiplied by alpha / rank."""
    target_modules: Annotated[
        Annotated[Text, Tag("<text>")]
        | Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(not_empty), Tag("<list>")],
        Discriminator(text_or_list, "text_or_list", 'Input should be "all-linear" or a list of module names'),
    ] = "all-linear"
    """`all-linear` (every linear layer but the head), or a list of module names."""
    base_bits: Literal[4] | None = None
    """4: the frozen weights are loaded in 4 bits (pip install 'hacrl[quantised]'); null: in `dtype`."""


class ResourcesSettings(Settings):
    """Resources of one agent; `runtime: ray` only."""

    cpus: Above0 = 1.0
    """CPUs of each of its processes, and the number of threads of each."""
    gpus: AtLeast0 = 0.0
    """GPUs of each of its processes; with a fraction, agents with one process each share a GPU."""
    ranks: Count = 1
    """Number of its processes; several split the work and shard the weights (FSDP2)."""
    nodes: Count = 1
    """Machines over which the processes are spread evenly."""


def _is_an_address(url: str) -> str:
    try:
        urlsplit(url).port  # noqa: B018 - refuses more than 65535, and hosts in brackets that are none
    except ValueError as error:
        raise ValueError(f"expected the address of a server ({error})") from error
    return url


ServerAddress = Annotated[
    str,
    Field(pattern=r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~%/-]*)?$"),
    AfterValidator(_is_an_address),
]
EnvironmentVariable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}$")]


class VllmSettings(Settings):
    """An agent's responses are drawn by vLLM (pip install 'hacrl[vllm]')."""

    name: Literal["vllm"] = "vllm"
    """`vllm`."""
    url: ServerAddress | None = None
    """Address of a running vLLM server, like `http://127.0.0.1:8000`; null: vLLM in the agent's process."""
    key_env: EnvironmentVariable | None = None
    """Environment variable that holds the server's key; null: none is sent."""
    weights_folder: Text | None = None
    """Directory that the server can read, for new weights; null: a temporary one of this machine."""
    concurrency: Count = 64
    """Requests to the server at the same time, at most."""
    timeout_seconds: Above0 = 600.0
    """Longest time for one reply of the server."""
    retries: Annotated[int, Field(ge=0)] = 3
    """How often a request is repeated if the server is busy, late or not there."""
    cache_gigabytes: Above0 = 4.0
    """Size of the key-value cache in the agent's process, where vLLM also holds a copy of the weights."""
    tensor_parallel: Count = 1
    """Ranks of the agent that share one copy of vLLM's weights; the others have copies of their own."""
    merge_adapters: bool = False
    """Merge LoRA adapters into the weights instead of loading them beside; for a server they always are."""
    max_logprob_difference: AtLeast0 = 1e-3
    """Responses that differ by more at any token get the trained model's log-probs, and are counted."""
    correction: Literal["none", "truncated"] = "none"
    """`truncated`: own updates weight such responses by min(p_trained / p_vLLM, `correction_cap`)."""
    correction_cap: Annotated[float, Field(ge=1)] = CORRECTION_CAP
    """Upper bound of that weight."""

    @property
    def server(self) -> EndpointSettings:
        """How to ask the server."""
        assert self.url is not None
        return EndpointSettings(
            url=self.url.rstrip("/").removesuffix("/v1"),
            key_env=self.key_env,
            timeout_seconds=self.timeout_seconds,
            retries=self.retries,
        )


def _engine(value: object) -> object:
    return None if value == "builtin" else named(value)


def _not_renamed(model: str) -> str:
    """Refuse the old name of toy models."""
    kind, _, name = model.partition(":")
    if kind == "nursery":
        raise ValueError(f"it is called 'toy:{name}' now")
    return model


EngineChoice = Annotated[VllmSettings | None, BeforeValidator(_engine)]


PLACEHOLDER = "{prompt}"


def _has_placeholder(template: str) -> str:
    if template.count(PLACEHOLDER) != 1:
        raise ValueError(f"expected {PLACEHOLDER} exactly once, where the prompt goes")
    return template


class PromptSettings(Settings):
    """How an agent's prompts are written."""

    chat: bool = True
    """Write prompts with the tokenizer's chat template, if it has one; false: as plain text."""
    prompt_template: Annotated[Text, AfterValidator(_has_placeholder)] | None = None
    """Text around the prompt, such as examples, with `{prompt}` once; in a chat, of the last user message."""
    system_prompt: Text | None = None
    """System message of this agent's chat template, in place of the prompt's own; null: the prompt's own."""
    template_variables: dict[str, JsonValue] = {}  # noqa: RUF012 - pydantic copies it
    """Variables of the chat template, such as `{enable_thinking: false}` for Qwen3."""


class EndpointSettings(Settings):
    """Responses of an OpenAI-compatible server, which is asked for the agent's `model`."""

    url: ServerAddress
    """Address of the server's API, such as `http://127.0.0.1:8000/v1`."""
    key_env: EnvironmentVariable | None = None
    """Environment variable that holds the key; null: none is sent."""
    logprobs: bool = False
    """Ask for the log-prob of every token: methods that take ratios need them."""
    concurrency: Count = 8
    """Requests at the same time, at most."""
    requests_per_minute: Above0 | None = None
    """Requests begun in a minute, at most; null: no limit."""
    timeout_seconds: Above0 = 120.0
    """Longest time for one reply."""
    retries: Annotated[int, Field(ge=0)] = 5
    """How often a request is repeated if the server is busy, late or not there; the waits double."""
    options: dict[str, JsonValue] = {}  # noqa: RUF012 - pydantic copies it
    """Further fields of every request; null leaves a field out."""


class LoggedSettings(Settings):
    """Responses in a file of JSON lines, whatever wrote it."""

    file: Text
    """The file; every line has a prompt and one or more responses to it."""
    prompt: Text = "prompt"
    """Column of the prompt: its text, its chat messages, or its id."""
    response: Text = "response"
    """Column of the responses: text, a message, or a list; if it is `prompt`, the chat's last message."""


def _kind_of_source(value: object) -> str | None:
    if isinstance(value, str):
        return "<text>"
    if isinstance(value, EndpointSettings) or (isinstance(value, Mapping) and "url" in value):
        return "<endpoint>"
    if isinstance(value, LoggedSettings) or (isinstance(value, Mapping) and "file" in value):
        return "<file>"
    return None


Source = Annotated[
    Annotated[Literal["frozen"], Tag("<text>")]
    | Annotated[EndpointSettings, Tag("<endpoint>")]
    | Annotated[LoggedSettings, Tag("<file>")],
    Discriminator(
        _kind_of_source,
        "source",
        "Input should be frozen, a mapping with url (an endpoint) or a mapping with file (logged responses)",
    ),
]


class AgentSettings(PromptSettings):
    """One agent."""

    name: AgentName
    """The agent's own name: letters, digits, `.`, `_` and `-`, at most 64."""
    model: Annotated[Text, AfterValidator(_not_renamed)]
    """`toy:NAME`, a directory that `save_pretrained` wrote, or a hub id; for an endpoint, its name there."""
    source: Source | None = None
    """Of an agent that only responds: `frozen`, or a mapping with `url` or `file`; null: it trains."""
    lora: LoraSettings | None = None
    """Train adapters instead of all weights; null trains all weights."""
    learning_rate: LearningRate | None = None
    """This agent's own learning rate; null takes `optimiser.learning_rate`."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")] = "auto"
    """`cpu`, `cuda`, `cuda:0`, or `auto`: a GPU if there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What it computes in; `auto`: bfloat16 on a GPU, on a CPU what is faster, float32 for small models."""
    samples_per_prompt: Count | None = None
    """This agent's own number of responses per prompt; null takes the top-level `samples_per_prompt`."""
    engine: EngineChoice = None
    """What generates its responses: `builtin` (null), `vllm`, or a mapping with `name: vllm` and settings."""
    resources: ResourcesSettings = ResourcesSettings()
    """The agent's resources with `runtime: ray`."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_file(cls, values: Any) -> Any:
        """Nobody has to know which model wrote a file of responses."""
        source = values.get("source") if isinstance(values, Mapping) else None
        file = source.get("file") if isinstance(source, Mapping) else None
        if isinstance(file, str) and "model" not in values:
            return {**values, "model": PurePath(file).name or file}
        return values

    @property
    def trains(self) -> bool:
        """Whether it learns; a peer that does not only responds."""
        return self.source is None

    @property
    def has_model(self) -> bool:
        """Whether its model is loaded, to be trained or frozen."""
        return self.source is None or self.source == "frozen"

    @property
    def has_logps(self) -> bool:
        """Whether the log-probs of its responses are known."""
        return self.has_model or (isinstance(self.source, EndpointSettings) and self.source.logprobs)
