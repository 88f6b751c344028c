"""The method as the recipe sees it, and how the recipe finds it by name.

A method is a class in `hacrl.methods` or in the user's own code that derives from `hacrl.methods.Method`, and
so from `MethodSettings`: its fields are the keys under `method:`. The recipe holds the method itself.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

from pydantic import ValidationError

from hacrl.own_code import load_named
from hacrl.recipe.fields import Settings, named
from hacrl.recipe.problems import Contradiction, Problem, nearest, shown

if TYPE_CHECKING:
    from hacrl.algorithm.critic import CriticParams
    from hacrl.recipe.recipe import Recipe

DEFAULT = "hacpo"
RENAMED = {"sapo": "swarm"}
"""Old names of methods and their new ones."""


class MethodSettings(Settings):
    """The settings and properties of a method that are known before any model is loaded."""

    name: str
    """A method's name, or `module:Class` of your own."""

    shares: ClassVar[bool] = True
    """Whether agents learn from their peers."""
    needs_scores: ClassVar[bool] = False
    """Whether agents score each other's responses, so that every source needs a model."""
    reverifies: ClassVar[bool] = False
    """Whether learners verify peers' responses again by default (`exchange.reverify`)."""
    needs_logps: ClassVar[bool] = True
    """Whether peers' responses need their log-probs under the agent that wrote them, for ratios."""
    needs_all_peers: ClassVar[str | None] = None
    """Why peers' responses cannot come in a later step; None: they can (`exchange.asynchronous`)."""

    @property
    def contextual(self) -> bool:
        """Whether the learner needs to know who is good at which prompts (`View.belief`)."""
        return False

    @property
    def label(self) -> str:
        """The name to show: the method's name and, for a variant, its suffixes."""
        return self.name

    @property
    def critic(self) -> CriticParams | None:
        """The settings of every agent's critic; None: the method has none."""
        return None

    def rollout_factor(self, agents: int) -> int:
        """The factor on the recipe's samples per prompt, with this many agents."""
        return 1

    def prompts_each(self, prompts_per_step: int, agents: int) -> int:
        """Prompts that each agent responds to in a step, with this many agents."""
        return prompts_per_step

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """Optimiser updates per step, at most, of an agent that receives the responses of `peers` others."""
        return mini_batches * (1 + peers)

    def problems(self, recipe: Recipe) -> Iterator[Problem]:
        """Why the recipe cannot run with this method."""
        if recipe.exchange.asynchronous is not None and self.needs_all_peers:
            yield Problem(
                "exchange.asynchronous",
                f"method {self.name} {self.needs_all_peers}: its peers cannot be late; use "
                f"{', '.join(_can_be_late())} or a method that shares nothing",
            )

    def advice(self, recipe: Recipe) -> Iterator[Problem]:
        """Warnings about a recipe that can run."""
        yield from ()

    def columns(self, recipe: Recipe, agent: str) -> Mapping[str, str]:
        """Columns that `hacrl doctor` adds to its table of an agent's step: heading -> text."""
        return {}

    @classmethod
    def variant(cls, suffixes: Sequence[str], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings that a name with suffixes (`NAME-SUFFIX`) is short for."""
        raise ValueError(f"{suffixes[0]!r} is not a variant of it")


T = TypeVar("T", bound=MethodSettings)
_registered: dict[str, type[MethodSettings]] = {}


def register(method: type[T]) -> type[T]:
    """Make the method available to recipes, under the names that its field `name` allows."""
    for name in get_args(method.model_fields["name"].annotation):
        if name in _registered:
            raise ValueError(f"two methods are called {name!r}: {_registered[name]} and {method}")
        _registered[name] = method
    return method


def registered_methods() -> Mapping[str, type[MethodSettings]]:
    """Every method that has a name of its own, by name."""
    importlib.import_module("hacrl.methods")  # each registers itself; a layer above, so not imported here
    return dict(sorted(_registered.items()))


def read_method(value: object) -> MethodSettings:
    """The method that a recipe names: `gspo`, `hacpo-no_exponent`, `{name: commons, passes: 1}`, ..."""
    if isinstance(value, MethodSettings):
        return value
    key, value = "method" if isinstance(value, str) else "method.name", named(value)
    if not isinstance(value, Mapping):
        message = f"expected the name of a method or a mapping with its settings, got {shown(value)}"
        raise Contradiction([Problem("method", message)])
    name = str(value.get("name", DEFAULT))
    try:
        method, settings = _chosen(name, value)
    except ValueError as error:
        raise Contradiction([Problem(key, str(error))]) from error
    try:
        return method.model_validate(settings)
    except ValidationError as error:
        from hacrl.recipe.validation import problems_in

        problems = problems_in(error, prefix="method", known=list(method.model_fields))
        raise Contradiction(problems) from error


def _chosen(name: str, value: Mapping[str, Any]) -> tuple[type[MethodSettings], Mapping[str, Any]]:
    """The class of a method and its settings."""
    if ":" in name:
        return _imported(name), value
    methods = registered_methods()
    base, *suffixes = name.split("-")
    if base not in methods:
        fix = f"; it is called {RENAMED[base]!r} now" if base in RENAMED else nearest(base, methods)
        raise ValueError(f"expected {', '.join(methods)} or module:Class, got {shown(name)}{fix}")
    settings = {**value, "name": base}
    if suffixes:
        try:
            settings |= methods[base].variant(suffixes, value)
        except ValueError as error:
            raise ValueError(f"got {shown(name)}: {error}") from error
    return methods[base], settings


def _imported(path: str) -> type[MethodSettings]:
    """A method of the user's own code, `package.module:Class`."""
    try:
        found = load_named(path)
    except Exception as error:  # the module is the user's: importing it may fail in any way
        raise ValueError(f"cannot import {path!r}: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, MethodSettings)) or inspect.isabstract(found):
        raise ValueError(f"{path!r} is not a method: derive it from hacrl.methods.Method")
    return found


def _can_be_late() -> list[str]:
    """Sharing methods whose peers may be late."""
    return [n for n, method in registered_methods().items() if method.shares and not method.needs_all_peers]
