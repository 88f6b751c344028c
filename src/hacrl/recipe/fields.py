"""What sections of a recipe are made of: their base class, and kinds of values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
)

from hacrl.recipe.problems import shown


class Settings(BaseModel):
    """A mapping of settings."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )


def all_different(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a list that has an entry twice."""
    seen: set[str] = set()
    for item in items:
        text = repr(item)  # a task's settings cannot be hashed
        if text in seen:
            raise ValueError(f"expected different entries, but {shown(item)} is listed twice")
        seen.add(text)
    return items


def not_empty(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse an empty list. (pydantic's `min_length` also complains when entries are wrong.)"""
    if not items:
        raise ValueError("expected at least one entry")
    return items


def named(value: object) -> object:
    """A bare name stands for a mapping with that name and every other key at its default."""
    return {"name": value} if isinstance(value, str) else value


def text_or_list(value: object) -> str | None:
    """Tells a text from a list, for `Discriminator`."""
    if isinstance(value, str):
        return "<text>"
    return "<list>" if isinstance(value, list | tuple) else None


Count = Annotated[int, Field(ge=1)]
CountOrAuto = Annotated[
    Annotated[Count, Tag("<number>")] | Annotated[Literal["auto"], Tag("<text>")],
    Discriminator(lambda value: "<text>" if isinstance(value, str) else "<number>"),
]
CountOrAgents = Annotated[
    Annotated[Count, Tag("<number>")] | Annotated[Literal["agents"], Tag("<text>")],
    Discriminator(lambda value: "<text>" if isinstance(value, str) else "<number>"),
]
Above0 = Annotated[float, Field(gt=0)]
AtLeast0 = Annotated[float, Field(ge=0)]
Below1 = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
LearningRate = Annotated[float, Field(gt=0, le=10)]
Text = Annotated[str, Field(min_length=1)]
