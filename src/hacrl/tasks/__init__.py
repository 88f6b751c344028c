"""Prompts with checkable answers."""
