"""Prompts with checkable answers."""

from hacrl.tasks.loader import load
from hacrl.tasks.task import Task, TaskError

__all__ = ["Task", "TaskError", "load"]
