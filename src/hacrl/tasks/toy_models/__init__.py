"""Toy models: tiny language models that are trained in seconds on first use and kept in a cache."""
