"""Code of the user's own that a recipe names as `module:name`: reward functions and methods.

Only such modules, and those beside them that they import, may come from the working directory, and only if
nothing of that name is installed. Anything else there, such as a `yaml.py` in a downloaded run, is never
imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any

SAFE_PATH = "PYTHONSAFEPATH"
"""While set, Python puts neither the working directory nor a script's directory on its path."""
_OURS = "set by hacrl"


@dataclass(frozen=True)
class Importable:
    """What another process needs to import the same modules."""

    path: Sequence[str]
    """Where modules are looked for."""
    own: Mapping[str, str]
    """Modules of the user's own -> the directory they are in."""


class _OwnModules:
    """Asked for modules after every other finder: named ones, and those that modules found here import."""

    def __init__(self) -> None:
        self.directories: dict[str, str] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's file in the directory of the named or the importing module."""
        directory = self.directories.get(name) or self.directories.get(_importer(sys._getframe(1)))
        spec = PathFinder.find_spec(name, [directory]) if directory and path is None else None
        if spec is not None and directory is not None:
            self.directories[name] = directory
        return spec


def _importer(frame: FrameType | None) -> str:
    """The top-level name of the module whose code imports something."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "importlib":
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", "")).partition(".")[0]


_own_modules = _OwnModules()


def load_named(path: str) -> Any:
    """The object at `module:name`. A module that is not installed is looked for in the working directory."""
    module, _, name = path.partition(":")
    if is_installed(module):
        return getattr(importlib.import_module(module), name)
    root = module.partition(".")[0]
    _look_for({root: os.getcwd()})
    try:
        return getattr(importlib.import_module(module), name)
    except BaseException:
        _own_modules.directories.pop(root, None)
        raise


def _look_for(modules: Mapping[str, str]) -> None:
    if _own_modules not in sys.meta_path:
        sys.meta_path.append(_own_modules)
    _own_modules.directories.update(modules)
    importlib.invalidate_caches()  # a module may be newer than what Python remembers of its directory


def is_installed(module: str) -> bool:
    """Whether the module, or the package it is in, is found without looking in the working directory."""
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except ValueError:  # `__main__` has no spec
        return True


def importable() -> Importable:
    """What can be imported here, for another process."""
    return Importable([os.path.abspath(entry) for entry in sys.path], dict(_own_modules.directories))


def import_like(other: Importable) -> None:
    """Find the modules of another process here too, after everything that is found without."""
    sys.path += [entry for entry in other.path if entry not in sys.path]
    _look_for(other.own)


def shield_children() -> None:
    """Keep the working directory off the path of every Python process that is started from here."""
    os.environ.setdefault(SAFE_PATH, _OURS)


def environment_for_own_code() -> dict[str, str]:
    """The environment without that shield: a reward function may start programs that need the directory."""
    return {name: value for name, value in os.environ.items() if (name, value) != (SAFE_PATH, _OURS)}
