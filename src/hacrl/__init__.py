"""Train several different language models together with reinforcement learning (HACRL / HACPO)."""

# `python -m hacrl` runs this file while the working directory is still first on the path (see `__main__.py`):
# so nothing at all is imported here, not even `typing`.

TYPE_CHECKING = False  # type checkers take it for true

__version__ = "0.1.0"
__all__ = ["Recipe", "Trainer", "load_recipe", "train"]

if TYPE_CHECKING:
    from hacrl.recipe import Recipe, load_recipe
    from hacrl.training.trainer import Trainer, train


def __getattr__(name: str) -> object:
    """Import what is asked for: `import hacrl` alone stays fast."""
    if name in ("Recipe", "load_recipe"):
        from hacrl import recipe

        return getattr(recipe, name)
    if name in ("Trainer", "train"):
        from hacrl.training import trainer

        return getattr(trainer, name)
    raise AttributeError(f"module 'hacrl' has no attribute {name!r}")
