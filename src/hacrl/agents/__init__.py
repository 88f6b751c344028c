"""One agent: a causal language model, its tokenizer and its optimiser."""
