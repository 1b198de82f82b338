# SPDX-License-Identifier: Apache-2.0
"""from_pretrained of transformers within zero.Init."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from meron import checkpointing, zero
from meron.torch.sharding import unit_of
from model import RANK, RANKS, assert_equal_weights, config, sgd

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.ranks(2)


def test_loads_models_of_transformers(tmp_path: Path) -> None:
    transformers.logging.set_verbosity_error()
    sizes = {"vocab_size": 19, "num_hidden_layers": 2, "num_attention_heads": 2}
    kinds: list[tuple[str, Any]] = [
        ("Llama", {"hidden_size": 16, "intermediate_size": 24, "tie_word_embeddings": True}),
        ("GPT2", {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 19}),
        ("Bert", {"hidden_size": 16, "intermediate_size": 24}),
    ]
    for kind, options in kinds:
        options = options if kind == "GPT2" else {**sizes, **options}
        path = tmp_path / kind
        if RANK == 0:
            torch.manual_seed(0)
            chosen = getattr(transformers, f"{kind}Config")(**options)
            getattr(transformers, f"{kind}Model")(chosen).save_pretrained(path)
        zero.comm.barrier()
        with zero.Init(config_dict_or_path=config()):
            model = transformers.AutoModelForSequenceClassification.from_pretrained(path)
        assert all(unit_of(param) is not None for param in model.parameters())
        state = zero.full_state_dict(model)
        plain = transformers.AutoModelForSequenceClassification.from_pretrained(path)
        fresh = [name for name in state if not torch.equal(state[name], plain.state_dict()[name])]
        assert all(name.startswith(("score", "classifier")) for name in fresh), fresh


def test_generates_and_checkpoints_activations() -> None:
    """Tokens of unsharded params and losses of checkpointed blocks equal those of plain torch."""
    chosen = transformers.LlamaConfig(
        vocab_size=19,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(chosen)
    torch.manual_seed(0)
    plain = transformers.LlamaForCausalLM(chosen)
    engine, *_ = zero.initialize(model=model, config=config())
    tokens = torch.randint(1, 19, (2, 5), generator=torch.Generator().manual_seed(RANK))

    def generate(from_: Any, count: int) -> torch.Tensor:
        return from_.generate(tokens, max_new_tokens=count, min_new_tokens=count, do_sample=False)

    operations = engine.sharding.context.stats().operations
    with zero.unwrap_model_for_generation(engine) as unwrapped:
        begun = engine.sharding.context.stats().operations
        found = generate(unwrapped, 3 + 2 * RANK)  # ranks stop at different lengths
        assert engine.sharding.context.stats().operations == begun > operations
    assert torch.equal(found, generate(plain, 3 + 2 * RANK))

    losses = []
    for checkpoint in (None, checkpointing.checkpoint):
        if checkpoint is not None:
            engine.module.gradient_checkpointing_enable()
            for part in engine.module.modules():
                if hasattr(part, "_gradient_checkpointing_func"):
                    part._gradient_checkpointing_func = checkpoint
            checkpointing.configure(profile=True)
        engine.train()
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        losses.append([loss.detach(), *map(zero.safe_get_full_grad, engine.module.parameters())])
        engine.zero_grad()
    assert all(map(torch.equal, *losses))
    assert checkpointing.profile_summary().recomputations == 2


SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "conv_dim": (8, 8),
    "conv_stride": (4, 2),
    "conv_kernel": (4, 2),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "apply_spec_augment": False,
    "layerdrop": 0.0,
    **dict.fromkeys(
        ("hidden_dropout", "attention_dropout", "feat_proj_dropout", "activation_dropout"), 0.0
    ),
}


@pytest.mark.parametrize("kind", ["Wav2Vec2", "Hubert"])
@pytest.mark.parametrize("loaded", [False, True], ids=["built", "loaded"])
def test_speech_models_train_as_in_plain_torch(kind: str, loaded: bool, tmp_path: Path) -> None:
    """Their convolution of positions has weight_norm, which a parent applies in its __init__."""
    chosen = getattr(transformers, f"{kind}Config")(**SIZES)
    build = getattr(transformers, f"{kind}Model")
    torch.manual_seed(0)
    plain = build(chosen)
    if loaded and RANK == 0:
        plain.save_pretrained(tmp_path)
    zero.comm.barrier()
    torch.manual_seed(0)
    with zero.Init(config_dict_or_path=config()):
        model = build.from_pretrained(tmp_path) if loaded else build(chosen)
    engine = zero.initialize(model=model, config=config())[0]
    assert_equal_weights(model, plain, 0)
    optimizer = sgd(plain)
    plain.train(model.training)
    for step in range(3):
        sound = [
            torch.randn(2, 200, generator=torch.Generator().manual_seed(10 * step + rank))
            for rank in range(RANKS)
        ]
        engine.backward(engine(sound[RANK]).last_hidden_state.square().mean())
        engine.step()
        optimizer.zero_grad()
        for each in sound:
            (plain(each).last_hidden_state.square().mean() / RANKS).backward()
        optimizer.step()
    assert_equal_weights(model, plain, 1e-6)
