"""The page: one HTML file that includes its style, script and data, and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from hacrl.analysis.report.data import report_data
from hacrl.runs.files import write_atomic

SCRIPTS = (
    "format.js",
    "dom.js",
    "chart.js",
    "plots.js",
    "learning.js",
    "sharing.js",
    "beliefs.js",
    "costs.js",
    "timeline.js",
    "browser.js",
    "main.js",
)
"""Joined in this order into one script."""


def write_report(run: Path, out: Path | None = None, baseline: Path | None = None) -> Path:
    """Write a run's report, by default to `report.html` in its directory."""
    path = out or run / "report.html"
    write_atomic(path, encoded(render(report_data([run], baseline))))
    return path


def render(data: Mapping[str, Any], *, live: bool = False) -> str:
    """The whole page. A live page polls its server; any other is not allowed to connect to anything."""
    script, style = _script(), _asset("style.css")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "img-src data:",
            "connect-src 'self'" if live else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    parts = {
        "policy": policy,
        "style": style,
        "script": script,
        "live": "true" if live else "false",
        "data": embedded(data),
    }
    page = _asset("page.html")
    for name, part in parts.items():
        page = page.replace(f"{{{{ {name} }}}}", part)
    return page


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element, whatever its texts contain."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def encoded(text: str) -> bytes:
    """UTF-8, with a question mark for half a surrogate pair, which a response may hold."""
    return text.encode(errors="replace")


@cache
def _asset(name: str) -> str:
    return (files("hacrl.analysis.report") / "assets" / name).read_text(encoding="utf-8")


def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(_asset(name) for name in SCRIPTS) + "\n})();\n"


def _digest(text: str) -> str:
    """The hash of an inline element in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
