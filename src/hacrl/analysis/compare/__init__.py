"""Comparisons of methods: the same agents, prompts and seeds under each, and what the difference is."""
