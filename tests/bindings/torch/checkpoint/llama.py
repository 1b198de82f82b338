# SPDX-License-Identifier: Apache-2.0
"""A Llama of transformers: built on meta, loaded into shards, trained, saved, loaded, written out.

llama.py FOLDER TIED    (on every rank)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import meron
import meron.torch as mt


def main() -> None:
    folder, tied = Path(sys.argv[1]), sys.argv[2] == "tied"
    rank = int(os.environ["MERON_RANK"])
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
        tie_word_embeddings=tied,
    )
    tokens = torch.arange(12).reshape(1, 12)
    torch.manual_seed(0)
    reference = LlamaForCausalLM(config).eval()
    if rank == 0:  # before the others come through shard()
        reference.save_pretrained(folder / "published", max_shard_size="100KB")
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    mt.shard(model, units=LlamaDecoderLayer, init="defer")
    try:
        model(tokens)
    except meron.StateError as error:
        assert "has no values yet" in str(error)
    else:
        raise AssertionError("a model without values ran")
    mt.load_pretrained(model, folder / "published")
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, reference(tokens).logits)

    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    model.train()
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    handle = mt.save(folder / "runs", "step-1", model, optimizer, step=1, background=True)
    losses = []
    for turn in range(2):
        if turn == 1:
            handle.wait()
            assert mt.load(folder / "runs", None, model, optimizer).step == 1
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append((loss.item(), model(tokens, labels=tokens).loss.item()))
    assert losses[0] == losses[1], losses

    mt.save_pretrained(model, folder / "out")
    if rank == 0:
        again = LlamaForCausalLM.from_pretrained(folder / "out")
        assert again(tokens, labels=tokens).loss.item() == losses[1][1]


if __name__ == "__main__":
    main()
