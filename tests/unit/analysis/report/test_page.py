"""The page is one safe file: nothing loads, nothing that a model wrote is code."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.analysis.report import render, write_report
from hacrl.analysis.report.page import embedded
from helpers_report import page_data

HOSTILE = [
    "</script><script>document.title = 'owned'</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "{{ script }} {{ policy }}",
    "\u2028 \u2029 \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_data(text: str) -> None:
    harmless, hostile = render({"runs": [], "text": "x"}), render({"runs": [], "text": text})
    assert page_data(hostile)["text"] == text
    for tag in ("<script", "</script", "<img", "<!--"):
        assert hostile.count(tag) == harmless.count(tag)


@given(st.text())
def test_any_text_survives_the_round_trip(text: str) -> None:
    inside = embedded({"text": text})
    assert json.loads(inside) == {"text": text}
    assert "<" not in inside


def test_the_policy_allows_this_script_and_style_alone() -> None:
    page = render({"runs": []})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    for element, rule in (("script", "script-src"), ("style", "style-src")):
        found = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        assert len(found) == 1
        digest = base64.b64encode(hashlib.sha256(found[0].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert (rules["default-src"], rules["connect-src"]) == ("'none'", "'none'")
    assert "connect-src 'self'" in render({"runs": []}, live=True)


def test_the_page_refers_to_no_other_address(finished: Path, tmp_path: Path) -> None:
    page = write_report(finished, tmp_path / "page.html").read_text()
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", page.split('id="data"')[0]))
    assert not re.findall(r"<(?:link|script|img|iframe)[^>]+(?:src|href)=\"(?!data:,)", page)
    assert addresses == set()


def test_reading_a_run_twice_gives_the_same_page(finished: Path, tmp_path: Path) -> None:
    first, second = (write_report(finished, tmp_path / f"{n}.html").read_bytes() for n in (1, 2))
    assert first == second
