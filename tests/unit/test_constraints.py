"""constraints.txt pins everything that make installs, within the ranges of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "constraints.txt").read_text()
PINS = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)$", TEXT, re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_PINNED = re.compile(r"hacrl|pip|setuptools|wheel|triton|(nvidia|cuda)-.*")
"""Ours; what makes packages; what torch needs on machines with GPUs alone."""


def declared(extra: str) -> Iterator[Requirement]:
    """The dependencies and those of an extra, which may name further extras."""
    lines = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
    for requirement in map(Requirement, lines):
        if requirement.name == PROJECT["name"]:
            for inner in requirement.extras:
                yield from declared(inner)
        else:
            yield requirement


def test_every_line_is_a_plain_pin():
    lines = [line for line in TEXT.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) == len(PINS)
    assert "torch==2.13.0" in lines
    assert not re.search(r"://|--hash|\d\+", TEXT), "no place, digest or build: they differ between machines"


def test_every_dependency_of_make_is_pinned_within_its_range():
    for requirement in declared("dev"):
        name = canonicalize_name(requirement.name)
        assert name in PINS, f"{name}: run make constraints"
        assert requirement.specifier.contains(PINS[name]), (
            f"{requirement}, but {PINS[name]}: make constraints"
        )


def test_whatever_these_need_is_pinned_too():
    todo = {canonicalize_name(requirement.name): requirement.extras for requirement in declared("dev")}
    done: set[str] = set()
    while todo:
        name, extras = todo.popitem()
        done.add(name)
        try:
            needs = map(Requirement, requires(name) or ())
        except PackageNotFoundError:  # not installed here
            continue
        for need in needs:
            wanted = [{"extra": extra} for extra in ("", *extras)]
            below = canonicalize_name(need.name)
            if need.marker is not None and not any(map(need.marker.evaluate, wanted)):
                continue
            if below in done or NOT_PINNED.fullmatch(below):
                continue
            assert below in PINS, f"{name} needs {below}: run make constraints"
            assert need.specifier.contains(PINS[below], prereleases=True), (
                f"{name} needs {need}, not {PINS[below]}"
            )
            todo[below] = need.extras
    assert len(done) > 80
