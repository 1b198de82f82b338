# SPDX-License-Identifier: Apache-2.0
"""In-place writes to an engine's params between steps, at the stages whose params are readable."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meron
from meron import zero
from model import (
    RANK,
    assert_equal_weights,
    batches_of,
    config,
    engine_step,
    on_device,
    plain_step,
    sgd,
    twins,
)

pytestmark = [pytest.mark.ranks(1, 2), on_device(1, MERON_ZERO_TIERS="host")]

STAGES = [0, 1, 2]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("client", [False, True])
def test_clipped_weights_train_on(stage: int, client: bool) -> None:
    model, plain = twins()
    settings = config(stage, gradient_accumulation_steps=2)
    if client:
        del settings["optimizer"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if client else None
    engine = zero.initialize(model=model, config=settings, optimizer=optimizer)[0]
    own = sgd(plain)
    for seed in range(3):
        batches = batches_of(2, seed)
        engine_step(engine, batches)
        plain_step(plain, own, batches)
        for each in (model, plain):
            for param in each.parameters():
                with torch.no_grad():
                    param.data.clamp_(-0.5, 0.5)
        assert_equal_weights(model, plain, 1e-5)


@pytest.mark.parametrize("stage", STAGES)
def test_an_engine_without_optimizer_holds_an_average(stage: int) -> None:
    model, plain = twins()
    mean, expected = twins()
    engine = zero.initialize(model=model, config=config(3))[0]
    settings = config(stage)
    del settings["optimizer"]
    average = zero.initialize(model=mean, config=settings)[0]
    own = sgd(plain)
    for batch in batches_of(2):
        engine_step(engine, [batch])
        plain_step(plain, own, [batch])
        with torch.no_grad():
            for param, other in zip(model.parameters(), mean.parameters()):
                with zero.GatheredParameters(param):
                    other.data.mul_(0.9).add_(param.data.to(other.device), alpha=0.1)
            for param, other in zip(plain.parameters(), expected.parameters()):
                other.data.mul_(0.9).add_(param.data, alpha=0.1)
    assert_equal_weights(mean, expected, 1e-6)
    with torch.no_grad():
        average.eval()
        x = batches_of(1)[0][0][RANK]
        value = average(x.to(engine.device)).cpu()
    torch.testing.assert_close(value, expected(x).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stage", STAGES)
def test_clips_16_bit_weights_without_loss_of_small_updates(stage: int) -> None:
    """A step of 1e-4 is far below the step of bf16 at 1."""
    model, _ = twins()
    settings = config(
        stage,
        bf16={"enabled": True},
        optimizer={"type": "AdamW", "params": {"lr": 1e-4}},
    )
    engine = zero.initialize(model=model, config=settings)[0]
    first = zero.safe_get_full_fp32_param(model.blocks[0].norm.weight)
    assert first is not None
    for batch in batches_of(4):
        engine_step(engine, [batch])
        for param in model.parameters():
            param.data.clamp_(-2.0, 2.0)
    last = zero.safe_get_full_fp32_param(model.blocks[0].norm.weight)
    assert last is not None and (last - first).abs().max() > 2e-4


def test_refuses_writes_at_stage_3_and_to_shards() -> None:
    for stage in (2, 3):
        model, plain = twins()
        engine = zero.initialize(model=model, config=config(stage))[0]
        param: Any = model.shift
        with pytest.raises(meron.StateError, match="safe_set_local_fp32_param"):
            param.ds_tensor.add_(1.0)
        if stage == 3:
            with pytest.raises(meron.StateError, match="shift' is sharded"):
                param.data.add_(1.0)
        batches = batches_of(1)
        engine_step(engine, batches)
        plain_step(plain, sgd(plain), batches)
        assert_equal_weights(model, plain, 1e-5)
