"""For a vLLM server on CPUs: `--worker-extension-cls hacrl.agents.backends.vllm_plain_weights.PlainWeights`.

On CPUs vLLM packs weights for oneDNN, in a form that cannot be compared with what it should hold. It imports
this module in the process that holds the model, before it loads it.
"""

from __future__ import annotations

import vllm._custom_ops

vllm._custom_ops._supports_onednn = False


class PlainWeights:
    """Keeps the weights as they are loaded; it adds nothing else to vLLM's worker."""
