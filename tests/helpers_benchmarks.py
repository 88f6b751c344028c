"""A workload small enough for tests: the real code on a model of a few thousand parameters."""

from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.real_models import RealModel
from benchmarks.workload import Workload
from hacrl.analysis.simulate.synthetic import Size
from helpers_sharing import byte_level_bpe, metaspace_bpe

TINY = Workload(
    Size(hidden=32, layers=2, heads=2, vocab=20), eos_hazard=0.2, max_new=6, prompts=4, samples=4, seed=3
)


def small_model(directory: Path, *, chat: bool = True) -> RealModel:
    """A directory like a real model's, with a chat template or without."""
    tokenizer = byte_level_bpe() if chat else metaspace_bpe()
    tokenizer.save_pretrained(directory)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    tokens = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0, "bos_token_id": None}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape, **tokens)).save_pretrained(directory)
    return RealModel(str(directory))
