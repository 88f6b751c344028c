"""The program of the process that renders chat templates; `chat_template.py` starts it as a script.

It imports nothing of hacrl, so that it starts quickly: one line of JSON per call, one line per reply.
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress

MEMORY = 4 << 30
"""Bytes of address space."""
LONGEST = 50_000_000
"""Characters of a rendered conversation."""


def main() -> None:
    """Answer calls until the trainer closes the pipe."""
    sys.path += json.loads(sys.argv[1])
    from transformers.utils.chat_template_utils import render_jinja_template

    def rendered(call: dict) -> dict:  # type: ignore[type-arg]
        conversations, _ = render_jinja_template(
            conversations=[call["messages"]],
            chat_template=call["template"],
            add_generation_prompt=True,
            **call["variables"],
        )
        if len(conversations[0]) > LONGEST:
            return {"error": f"it wrote {len(conversations[0])} characters, more than {LONGEST}"}
        return {"text": conversations[0]}

    with suppress(ValueError, OSError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _reply({"ready": True})
    for line in sys.stdin.buffer:
        try:
            reply = rendered(json.loads(line))
        except Exception as error:
            reply = {"error": _message(error)}
        _reply(reply)


def _message(error: Exception) -> str:
    """A template's own words alone; other errors with their kind."""
    words = str(error)[:2000]
    own = type(error).__name__ == "TemplateError" and words
    return words if own else f"{type(error).__name__}: {words}"


def _reply(reply: dict) -> None:  # type: ignore[type-arg]
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
