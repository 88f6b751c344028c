"""Prompts with checkable answers."""

from hacrl.tasks.loader import from_rows, load
from hacrl.tasks.task import Task, TaskError

__all__ = ["Task", "TaskError", "from_rows", "load"]
