# SPDX-License-Identifier: Apache-2.0
"""copy.deepcopy of an engine's model is a plain model with all values."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import meron.torch as mt
from meron import zero
from meron.torch.sharding import unit_of
from model import (
    RANK,
    RANKS,
    Model,
    assert_equal_weights,
    batches_of,
    config,
    engine_step,
    loss_of,
    on_device,
    plain_step,
    sgd,
    twins,
)

pytestmark = [pytest.mark.ranks(1, 2), on_device(1)]


def assert_plain(model: torch.nn.Module, of: torch.nn.Module) -> None:
    assert type(model) is type(of)
    for (name, param), other in zip(model.named_parameters(), of.parameters(), strict=True):
        assert type(param) is torch.nn.Parameter and unit_of(param) is None, name
        assert param.requires_grad == other.requires_grad, name
        assert torch.equal(param.detach().cpu(), mt.full_param(other)), name


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_copy_is_plain_and_independent(stage: int) -> None:
    model, plain = twins()
    model.shift.requires_grad_(False)
    plain.shift.requires_grad_(False)
    engine = zero.initialize(model=model, config=config(stage))[0]
    own = sgd(plain)
    first, second = batches_of(2)
    engine_step(engine, [first])
    plain_step(plain, own, [first])
    for _ in range(2):
        copied: Any = copy.deepcopy(engine.module)
        assert_plain(copied, model)
        assert copied.head.weight is copied.embed.weight
    before = copied.embed.weight.detach().clone()
    engine_step(engine, [second])
    plain_step(plain, own, [second])
    assert torch.equal(before, copied.embed.weight)
    assert_equal_weights(model, plain, 1e-5)
    place = copied.embed.weight.device
    loss_of(copied, first[0][RANK].to(place), first[1][RANK].to(place)).backward()
    assert copied.embed.weight.grad is not None
    with torch.no_grad():
        copied.embed.weight.mul_(2)
    assert_equal_weights(model, plain, 1e-5)
    assert isinstance(copy.deepcopy(engine), Model)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_one_rank_copies_alone_below_stage_3(stage: int) -> None:
    model, _ = twins()
    engine = zero.initialize(model=model, config=config(stage))[0]
    copied = copy.deepcopy(engine.module) if RANK == RANKS - 1 else None
    engine_step(engine, batches_of(1))
    assert engine.global_steps == 1 and (copied is None or type(copied) is Model)


def test_one_rank_copies_alone_what_is_gathered() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config(3))[0]
    with zero.GatheredParameters(list(model.parameters())):
        copied: Any = copy.deepcopy(engine.module) if RANK == 0 else None
    if copied is not None:
        for param, expected in zip(copied.parameters(), plain.parameters(), strict=True):
            assert torch.equal(param.detach().cpu(), expected)
    engine_step(engine, batches_of(1))


def test_a_copy_can_get_an_engine() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config(3))[0]
    other = zero.initialize(model=copy.deepcopy(engine.module), config=config(2))[0]
    for each in (engine, other):
        engine_step(each, batches_of(1))
    plain_step(plain, sgd(plain), batches_of(1))
    for each in (engine, other):
        assert_equal_weights(each.module, plain, 1e-5)
