"""Every key a recipe can have, for suggestions in errors and for `docs/recipe.md`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic.fields import FieldInfo

from hacrl.recipe.fields import Settings
from hacrl.recipe.method import MethodSettings, registered_methods
from hacrl.recipe.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a recipe."""

    path: str
    """Dotted; `agents.N.name` stands for any agent's."""
    field: FieldInfo


def all_keys(section: type[Settings] = Recipe, prefix: str = "") -> Iterator[Key]:
    """All keys in the order of the model, each section's own keys after the section."""
    for name, field in section.model_fields.items():
        path = f"{prefix}{name}"
        yield Key(path, field)
        item = ".N" if "tuple" in str(field.annotation) else ""
        for inner in sections_in(field.annotation):
            yield from all_keys(inner, f"{path}{item}.")


def sections_in(annotation: Any) -> list[type[Settings]]:
    """The sections in a type, however deep: in lists, unions and annotations."""
    if annotation is MethodSettings:
        return list(dict.fromkeys(registered_methods().values()))
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections_in(part)]


def known_keys(location: Sequence[int | str]) -> list[str]:
    """The keys of the section at a location as pydantic reports it."""
    sections: list[type[Settings]] = [Recipe]
    for part in location:
        if isinstance(part, int):
            continue
        if not is_tag(part):
            fields = [section.model_fields[part] for section in sections if part in section.model_fields]
            sections = [section for field in fields for section in sections_in(field.annotation)]
    return [name for section in sections for name in section.model_fields]


def is_tag(part: int | str) -> bool:
    """Whether a part of a location names a choice within a union rather than a key."""
    return part in ("<text>", "<list>", "<endpoint>", "<file>")
