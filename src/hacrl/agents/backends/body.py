"""The body of a model: everything but its head."""

from __future__ import annotations

from transformers import PreTrainedModel


def body_of(model: PreTrainedModel) -> PreTrainedModel:
    """What computes the last hidden states.

    `base_model` finds it by a name, and is the model itself where that name is another class's, as in Llama 4
    without its vision tower. Then it is the part that is a model of its own.
    """
    body: PreTrainedModel = model.base_model
    if body is not model:
        return body
    return next((part for part in model.children() if isinstance(part, PreTrainedModel)), model)
