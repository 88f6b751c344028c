"""The verifier `python_tests`: runs a response's Python code and then tests of it.

This executes what a model wrote. It belongs into a confined worker process that is used once, never into the
trainer; the registry sees to that.
"""

from __future__ import annotations

import re
from typing import Any

_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)


def verify(response: str, gold: Any) -> float:
    """1.0 when the code (the last fenced block, or else the whole response) passes all tests.

    `gold` is Python source that raises when the code is wrong, for example `assert`s, or a list of such.
    """
    source = "\n".join(gold) if isinstance(gold, list) else str(gold)
    tests = compile(source, "<tests>", "exec")
    blocks = _FENCED.findall(response)
    namespace: dict[str, Any] = {"__name__": "answer"}
    try:
        exec(compile(blocks[-1] if blocks else response, "<answer>", "exec"), namespace)  # noqa: S102
        exec(tests, namespace)  # noqa: S102
    except BaseException:  # also SystemExit: leaving early is not passing
        return 0.0
    return 1.0
