# SPDX-License-Identifier: Apache-2.0
"""A tokenizer, the config of a small LLaMA, and texts, which are all made here."""

from __future__ import annotations

import os
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

RANK = int(os.environ["RANK"])
LETTERS = "abcdefghijklmnopqrst"
SPECIAL = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}


def tokenizer(*added: str) -> PreTrainedTokenizerFast:
    """A token is a letter, a special token, or one of the added words."""
    words = {word: number for number, word in enumerate([*SPECIAL.values(), *LETTERS, *added])}
    plain = Tokenizer(models.WordLevel(words, unk_token=SPECIAL["unk_token"]))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=plain, **SPECIAL)


def llama(words: int = len(SPECIAL) + len(LETTERS), **more: Any) -> LlamaConfig:
    """Two layers of width 16."""
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    chosen = {"vocab_size": words, **shape, **heads, **ids, "initializer_range": 0.1, **more}
    return LlamaConfig(**chosen)


def texts(count: int, *added: str) -> list[str]:
    """Letters in their order, each text from another letter and with another stride."""
    words = [*LETTERS, *added]
    return [
        " ".join(words[(begin + (begin % 3 + 1) * i) % len(words)] for i in range(12))
        for begin in range(count)
    ]
