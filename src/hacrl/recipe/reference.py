"""The table of keys in `docs/recipe.md`: `python -m hacrl.recipe.reference` prints it."""

from __future__ import annotations

from pydantic.fields import FieldInfo

from hacrl.recipe.fields import Settings
from hacrl.recipe.keys import Key, all_keys, sections_in
from hacrl.recipe.problems import shown


def reference_table() -> str:
    """Every key of a recipe with its default and meaning, in Markdown."""
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *map(_row, all_keys())])


def _row(key: Key) -> str:
    is_section = bool(sections_in(key.field.annotation))
    path = f"**`{key.path}`**" if is_section else f"`{key.path}`"
    return f"| {path} | {_default(key.field)} | {key.field.description} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, Settings):
        return ""
    return f"`{_as_yaml(field.default)}`"


def _as_yaml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_as_yaml, value))}]"
    return value if isinstance(value, str) else shown(value)


if __name__ == "__main__":
    print(reference_table())
