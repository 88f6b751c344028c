"""The toy models' two tokenizers: they split text differently, as those of real model families do."""

from __future__ import annotations

import string
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

Cut = Literal["characters", "digit-pairs"]
"""`characters`: each is one token. `digit-pairs`: two digits in a row are one token, from the left."""

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " \n"


def make_tokenizer(cut: Cut) -> PreTrainedTokenizerFast:
    """A tokenizer for printable ASCII that puts one BOS in front of a text and decodes without loss."""
    pairs = [(first, second) for first in string.digits for second in string.digits]
    merges = pairs if cut == "digit-pairs" else []
    tokens = [*SPECIAL.values(), *CHARACTERS, *(first + second for first, second in merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}

    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=SPECIAL["unk_token"]))
    if cut == "digit-pairs":
        # Pairs are cut off from the left before BPE, so 3126 is 31 26 whatever the order of the merges.
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\d{2}"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    bos = SPECIAL["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **SPECIAL)
