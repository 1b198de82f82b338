# SPDX-License-Identifier: Apache-2.0
"""`resize_token_embeddings` of transformers at stage 3: before, with and after an engine."""

from __future__ import annotations

import copy
import itertools
import os
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations import HfDeepSpeedConfig

import meron

FOLDER = Path(sys.argv[1])
WORDS, MORE = 30, 37
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.0,
    "zero_optimization": {"stage": 3},
}
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def batches(count: int, words: int = MORE) -> list[torch.Tensor]:
    """Tokens of each micro-batch, for each rank."""
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, words, (RANKS, 2, 8), generator=generator) for _ in range(count)]


def adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def resized(model: Any, mean: bool) -> Any:
    torch.manual_seed(7 if mean else 7 + RANK)  # without a mean, rank 0's initialisation counts
    if RANK == 0 or mean or hasattr(model.lm_head.weight, "ds_id"):
        model.resize_token_embeddings(MORE, mean_resizing=mean)
    return model


def train_alone(model: Any, steps: int) -> list[float]:
    """One process that computes the micro-batches of all ranks."""
    optimizer, losses = adam(model), []
    for tokens in batches(steps):
        optimizer.zero_grad()
        of_ranks = [model(input_ids=part, labels=part).loss for part in tokens]
        (sum(of_ranks) / RANKS).backward()
        optimizer.step()
        losses.append(float(of_ranks[RANK]))
    return losses


def train(engine: Any, steps: int, words: int = MORE) -> list[float]:
    losses = []
    for tokens in batches(steps, words):
        loss = engine(input_ids=tokens[RANK], labels=tokens[RANK]).loss
        engine.backward(loss)
        engine.step()
        losses.append(float(loss))
    return losses


def full(model: Any) -> dict[str, torch.Tensor]:
    """Copies of all values. Collective."""
    names = dict(model.named_parameters())
    with deepspeed.zero.GatheredParameters(names.values()):
        return {name: param.detach().clone() for name, param in names.items()}


def check_before_an_engine(plain: Any, folder: Path, mean: bool) -> None:
    torch.manual_seed(7)
    plain.resize_token_embeddings(MORE, mean_resizing=mean)
    model = resized(AutoModelForCausalLM.from_pretrained(folder), mean)
    assert model.config.vocab_size == model.lm_head.weight.shape[0] == MORE
    tied = model.lm_head.weight is model.get_input_embeddings().weight
    assert tied == plain.config.tie_word_embeddings
    engine, *_ = deepspeed.initialize(model=model, optimizer=adam(model), config=CONFIG)
    for scope in engine.sharding.scopes:
        units = scope.units if scope.module in {*model.modules()} else []
        sizes = {handle.shape[0] for unit in units for handle in unit.handles}
        assert WORDS not in sizes, "the old embeddings are in use"
    before = dict(plain.named_parameters())
    for name, value in full(model).items():
        assert torch.equal(value, before[name]), name
    found, expected = train(engine, 4), train_alone(plain, 4)
    assert max(abs(a - b) for a, b in zip(found, expected)) < 1e-5, (found, expected)
    for name, value in full(model).items():
        torch.testing.assert_close(value, before[name].detach(), rtol=1e-3, atol=1e-4, msg=name)
    engine.destroy()


def check_with_an_engine(folder: Path) -> None:
    """It is refused, the model trains on, and can be resized once its engine is destroyed."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    twin = AutoModelForCausalLM.from_pretrained(folder)
    engines = [
        deepspeed.initialize(model=each, optimizer=adam(each), config=CONFIG)[0]
        for each in (model, twin)
    ]
    for _ in range(2):
        try:
            model.resize_token_embeddings(MORE)
        except meron.StateError as error:
            assert "Resize embeddings" in str(error) and "engine.destroy()" in str(error), error
        else:
            raise AssertionError("a param of an optimizer was replaced")
    assert model.config.vocab_size == model.lm_head.weight.shape[0] == WORDS
    assert train(engines[0], 2, WORDS) == train(engines[1], 2, WORDS)
    engines[0].destroy()
    resized(model, True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=adam(model), config=CONFIG)
    losses = train(engine, 3)
    assert all(torch.isfinite(torch.tensor(losses)))
    assert full(model)["model.embed_tokens.weight"].shape[0] == MORE


def main() -> None:
    deepspeed.init_distributed()
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0}
    cases: list[tuple[Any, Path, bool]] = []
    for tied, mean in itertools.product((False, True), (False, True)):
        torch.manual_seed(0)
        options = {**shape, **heads, "vocab_size": WORDS, "tie_word_embeddings": tied}
        plain = LlamaForCausalLM(LlamaConfig(**options))
        folder = FOLDER / f"tied-{tied}"
        if RANK == 0 and mean:
            plain.save_pretrained(folder)
        cases.append((copy.deepcopy(plain), folder, mean))
    deepspeed.comm.barrier()
    for plain, *_ in cases:
        assert not hasattr(plain.lm_head.weight, "ds_id")
    for plain, folder, mean in cases:
        without_config = copy.deepcopy(plain)
        active = HfDeepSpeedConfig(CONFIG)  # for as long as this object lives
        check_before_an_engine(without_config, folder, mean)
        if mean:
            check_with_an_engine(folder)
        del active
    print(f"rank {RANK} done", flush=True)


main()
