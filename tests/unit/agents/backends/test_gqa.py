import json

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from hacrl.agents.backends.gqa import NAME, gqa_attention
from hacrl.agents.backends.prefix_cache import CachedDecoder
from helpers_train import make_agent


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 1), (3, 3)])
def test_one_token_attends_as_in_transformers(heads, kv_heads):
    torch.manual_seed(0)
    module = torch.nn.Module()
    module.num_key_value_groups = heads // kv_heads
    query, key = torch.randn(5, heads, 1, 8), torch.randn(5, kv_heads, 7, 8)
    value = torch.randn(5, kv_heads, 7, 8)
    mask = torch.arange(7) >= torch.tensor([0, 3, 6, 1, 0])[:, None]
    for scaling in (None, 0.3):
        arguments = (module, query, key, value, mask[:, None, None])
        with torch.inference_mode():
            expected, _ = sdpa_attention_forward(*arguments, scaling=scaling)
            actual, _ = gqa_attention(*arguments, scaling=scaling)
        torch.testing.assert_close(actual, expected)


def test_only_models_that_share_heads_are_switched_and_nothing_of_it_is_saved(tmp_path):
    from transformers import AutoModelForCausalLM

    models = {
        arch: AutoModelForCausalLM.from_pretrained(make_agent(tmp_path / arch, 1, arch=arch))
        for arch in ("qwen3", "llama", "gpt2")
    }
    for model in models.values():
        CachedDecoder(model)
    used = {arch: model.config._attn_implementation for arch, model in models.items()}
    assert used == {"qwen3": NAME, "llama": "sdpa", "gpt2": "sdpa"}
    models["qwen3"].save_pretrained(tmp_path / "saved")
    assert NAME not in json.dumps(json.loads((tmp_path / "saved" / "config.json").read_text()))
