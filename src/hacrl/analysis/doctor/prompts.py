"""A prompt as an agent's model sees it, or as an endpoint is sent it, without loading or asking a model."""

from __future__ import annotations

from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from hacrl.agents.rendering import Rendering, chat_messages
from hacrl.analysis.doctor.models import is_elsewhere, local_config
from hacrl.recipe import AgentSettings
from hacrl.training.team_setup import tokenizer_of
from hacrl.types import Prompt


class Written(NamedTuple):
    """A prompt with the agent's templates, special tokens by their names."""

    text: str
    tokens: int | None
    """None: an endpoint counts them."""


def written_for(agent: AgentSettings, prompt: Prompt) -> Written | None:
    """None if the agent's tokenizer is not on this machine. Raises `ValueError` if it cannot be written."""
    if is_elsewhere(agent.model):
        return None
    tokenizer = tokenizer_of(agent.model)
    ids = Rendering(tokenizer, agent, eos_ids=_eos_ids(agent, tokenizer), agent=agent.name).encode_prompt(
        prompt
    )
    return Written(str(tokenizer.decode(ids)), len(ids))


def sent_to(agent: AgentSettings, prompt: Prompt) -> Written:
    """To an endpoint, which gets chat messages. Raises `ValueError` if they cannot be written."""
    messages = chat_messages(prompt, agent)
    return Written("\n".join(f"{message['role']}: {message['content']}" for message in messages), None)


def _eos_ids(agent: AgentSettings, tokenizer: PreTrainedTokenizerBase) -> list[int] | None:
    """Those of the model's configuration if the tokenizer has none of its own."""
    config = local_config(agent.model) if tokenizer.eos_token_id is None else None
    ids = config.get_text_config().eos_token_id if config else None
    return [ids] if isinstance(ids, int) else ids
