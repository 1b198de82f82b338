# SPDX-License-Identifier: Apache-2.0
"""A Llama of transformers, from published weights to weights for transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import meron
import meron.torch as mt

pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


@pytest.mark.ranks(2, deadline=240)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "free"])
def test_llama_loads_trains_resumes_and_exports(rank: int, tmp_path: Path, tied: bool) -> None:
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
    if rank == 0:  # before the other rank passes shard()
        reference.save_pretrained(tmp_path / "published", max_shard_size="100KB")
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    mt.shard(model, units=LlamaDecoderLayer, init="defer")
    with pytest.raises(meron.StateError, match="has no values yet"):
        model(tokens)
    mt.load_pretrained(model, tmp_path / "published")
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, reference(tokens).logits)

    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    model.train()
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    handle = mt.save(tmp_path / "runs", "step-1", model, optimizer, step=1, background=True)
    losses = []
    for turn in range(2):
        if turn == 1:
            handle.wait()
            assert mt.load(tmp_path / "runs", None, model, optimizer).step == 1
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append((loss.item(), model(tokens, labels=tokens).loss.item()))
    assert losses[0] == losses[1]

    mt.save_pretrained(model, tmp_path / "out")
    if rank == 0:
        again = LlamaForCausalLM.from_pretrained(tmp_path / "out")
        assert again(tokens, labels=tokens).loss.item() == losses[1][1]
