"""How much an agent can read: a prompt and its response together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hacrl.agents.backends.interfaces import Row
from hacrl.agents.errors import AgentError


@dataclass(frozen=True, slots=True)
class Context:
    """The context of one agent; without a limit, anything fits."""

    agent: str
    limit: int | None

    def room(self, prompt_id: str, length: int) -> int:
        """Tokens left for the response to a prompt of this length."""
        if length == 0:
            raise AgentError(f"prompt {prompt_id!r} has no tokens: a response needs something to start from")
        if self.limit is not None and length >= self.limit:
            raise AgentError(
                f"prompt {prompt_id!r} has {length} tokens, which leaves agent {self.agent!r} no room for a "
                f"response in its context of {self.limit} tokens: shorten or drop it"
            )
        return self.limit - length if self.limit is not None else 1 << 60

    def check(self, rows: Sequence[Row]) -> None:
        """Raise an `AgentError` for a row that is empty or too long."""
        for number, (prompt, response) in enumerate(rows):
            if not prompt or not response:
                raise AgentError(f"row {number}: {'response' if prompt else 'prompt'} has no tokens")
            if self.limit is not None and len(prompt) + len(response) > self.limit:
                raise AgentError(
                    f"row {number}: {len(prompt)} prompt and {len(response)} response tokens do not fit the "
                    f"context of {self.limit} tokens of agent {self.agent!r}: "
                    "drop the row or lower max_new_tokens"
                )
