# SPDX-License-Identifier: Apache-2.0
"""Gradients that are read and replaced between backward and step."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from model import RANK, RANKS, config, on_device, scale_engine, weight_of

pytestmark = [pytest.mark.ranks(2), on_device(1)]

SIZE = 700  # so that each rank has a shard
Gradient = Callable[[nn.Parameter, torch.Tensor], None]


def set_local(param: nn.Parameter, value: torch.Tensor) -> None:
    shard_range = param._meron[0].shard_range(param._meron[1])
    zero.safe_set_local_grad(param, value.view(-1)[shard_range.start : shard_range.stop])


def set_in_place(param: nn.Parameter, value: torch.Tensor) -> None:
    part = mt.local_grad(param)
    shard_range = param._meron[0].shard_range(param._meron[1])
    part.copy_(value.view(-1)[shard_range.start : shard_range.stop])


def set_vectorized(param: nn.Parameter, value: torch.Tensor) -> None:
    zero.safe_update_full_grad_vectorized([param], lambda _gradient, _param: value)


SETTERS: list[Gradient] = [
    zero.safe_set_full_grad,
    mt.set_full_grad,
    set_local,
    set_in_place,
    set_vectorized,
]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(SIZE))
        self.second = nn.Parameter(torch.zeros(SIZE))

    def forward(self) -> torch.Tensor:
        return (self.first.float() + 2 * self.second.float()).sum()


def engine_of(stage: int, own: bool, **others: Any) -> tuple[Two, Any]:
    """Returns an engine with its own SGD, or with that of torch."""
    model = Two()
    block = {"type": "SGD", "params": {"lr": 1.0, "maximize": not own}}
    settings = config(stage, optimizer=block, gradient_clipping=1.0, **others)
    engine = zero.initialize(model=model, config=settings)[0]
    assert isinstance(engine.optimizer, mt.EngineOptimizer) == own
    return model, engine


def step_with(engine: Any, param: nn.Parameter, gradient: float, setter: Gradient) -> None:
    engine.backward(engine())
    setter(param, torch.full((SIZE,), gradient))
    engine.step()


def test_steps_with_gradients_set_by_the_caller() -> None:
    """The new gradients decide on the reported norm, on clipping and on overflow."""
    for stage in range(4):
        for own in (True, False):
            for setter in SETTERS:
                model, engine = engine_of(stage, own)
                for gradient in (100.0, 0.0):
                    before = [zero.safe_get_full_fp32_param(p) for p in (model.first, model.second)]
                    step_with(engine, model.first, gradient, setter)
                    norm = math.sqrt(SIZE * (gradient**2 + 2.0**2))
                    where = (stage, own, setter, gradient)
                    assert math.isclose(engine.get_global_grad_norm(), norm, rel_tol=1e-6), where
                    for param, old, value in zip(
                        (model.first, model.second), before, (gradient, 2.0), strict=True
                    ):
                        moved = (zero.safe_get_full_fp32_param(param) - old).abs()
                        assert torch.allclose(moved, torch.full((SIZE,), value / norm)), where
                engine.destroy()


def test_clips_gradients_once() -> None:
    """After clip_grad_norm_ the optimizer's max_norm changes nothing."""
    for plan in ("zero0", "zero3"):
        model = Two()
        mt.shard(model, plan=plan)
        optimizer = mt.SGD(model, lr=1.0, max_norm=1.0)
        model().backward()
        norm = mt.clip_grad_norm_(model, 1.0)
        assert math.isclose(norm, math.sqrt(5 * SIZE), rel_tol=1e-6)
        optimizer.step()
        assert math.isclose(optimizer.grad_norm, 1.0, rel_tol=1e-5)
        moved = torch.cat([mt.full_param(param) for param in model.parameters()])
        assert math.isclose(moved.norm(), 1.0, rel_tol=1e-5)


def test_an_infinity_set_by_the_caller_is_an_overflow() -> None:
    for stage in range(4):
        for own in (True, False):
            for block in (
                {"fp16": {"enabled": True, "initial_scale_power": 4, "hysteresis": 1}},
                {"bf16": {"enabled": True}},
                {},
            ):
                model, engine = engine_of(stage, own, **block)
                for value in (math.inf, math.nan):
                    where = (stage, own, block, value)
                    if block:
                        step_with(engine, model.first, value, zero.safe_set_full_grad)
                        assert not engine.was_step_applied(), where
                    else:
                        with pytest.raises(meron.NonFiniteError, match="norm"):
                            step_with(engine, model.first, value, zero.safe_set_full_grad)
                    for param in (model.first, model.second):
                        assert not zero.safe_get_full_fp32_param(param).any(), where
                assert engine.skipped_steps == (2 if block else 0)
                # An infinity that is replaced by a finite gradient is no overflow.
                engine.backward(engine() * math.inf)
                for param in (model.first, model.second):
                    zero.safe_set_full_grad(param, torch.ones(SIZE))
                engine.step()
                assert engine.was_step_applied()
                assert zero.safe_get_full_fp32_param(model.first).isfinite().all()
                assert math.isclose(engine.get_global_grad_norm(), math.sqrt(2 * SIZE))
                engine.destroy()


def test_an_infinity_on_one_rank_fails_the_step_on_all() -> None:
    model, engine = engine_of(3, True)
    engine.backward(engine())
    for param in (model.first, model.second):
        part = mt.local_grad(param)
        if RANK == RANKS - 1:
            part.fill_(math.inf)
    with pytest.raises(meron.NonFiniteError, match="norm"):
        engine.step()
    assert not zero.safe_get_full_fp32_param(model.second).any()


ONES = torch.ones(SIZE)
ASK: list[Callable[[nn.Parameter], object]] = [
    zero.safe_get_full_grad,
    zero.safe_get_local_grad,
    lambda param: zero.safe_set_full_grad(param, ONES),
    lambda param: zero.safe_set_local_grad(param, ONES),
    lambda param: zero.safe_update_full_grad_vectorized([param], lambda gradient, _: gradient),
]


def test_rejects_reads_of_gradients_that_no_sync_defers() -> None:
    """The rejected read does not end the accumulation. A hook sees the rank's own gradients."""
    for stage in range(4):
        model, engine = engine_of(stage, True)
        own: list[torch.Tensor] = []
        hook = model.first.register_hook(own.append)
        with engine.no_sync():
            for _ in range(2):
                engine.backward(engine())
                for ask in ASK:
                    for part in ("no_sync", "param.register_hook(function)"):
                        with pytest.raises(meron.StateError, match=re.escape(part)):
                            ask(model.first)
        assert len(own) == 2 and torch.equal(sum(own), 2 * ONES), stage
        hook.remove()
        engine.backward(engine())
        gradient = zero.safe_get_full_grad(model.first)
        assert torch.equal(gradient, 3 * ONES), stage
        engine.step()
        assert math.isclose(engine.get_global_grad_norm(), math.sqrt(SIZE * (9 + 36)))
        engine.destroy()


class Update:
    """Scales each gradient by the factor of its param."""

    def __init__(self, factors: dict[nn.Parameter, float]) -> None:
        self.factors = factors
        self.seen: list[int] = []

    def __call__(self, gradient: torch.Tensor, param: nn.Parameter) -> torch.Tensor:
        self.seen.append(id(param))
        assert gradient.shape == param.shape == param.ds_shape
        return gradient * self.factors[param]


def test_update_functions_get_the_params_themselves() -> None:
    for stage in (1, 3):
        model, engine = engine_of(stage, True)
        update = Update({model.first: 3.0, model.second: 0.5})
        engine.backward(engine())
        alone = nn.Parameter(torch.ones(2))
        zero.safe_update_full_grad_vectorized([model.first, alone, model.second], update)
        assert update.seen == [id(model.first), id(model.second)]
        assert torch.equal(zero.safe_get_full_grad(model.first), 3 * ONES)
        assert torch.equal(zero.safe_get_full_grad(model.second), ONES)
        for wrong in (torch.ones(1), None):
            with pytest.raises(meron.ArgumentError, match=re.escape(".first")):
                zero.safe_update_full_grad_vectorized([model.first], lambda *_, wrong=wrong: wrong)
        engine.step()
        engine.destroy()


@pytest.mark.parametrize("stage", range(4))
def test_an_engine_obeys_what_is_written_to_param_grad(stage: int) -> None:
    model, engine = scale_engine(stage)
    for drop in (model.zero_grad, lambda: setattr(model.weight, "grad", None)):
        engine.backward(engine() * 1e3)
        with pytest.raises(meron.StateError, match=r"weight.*set_full_grad"):
            model.weight.grad = torch.ones(tuple(model.weight.shape))
        drop()
        assert zero.safe_get_full_grad(model.weight) is None
        engine.zero_grad()
    engine.backward(engine())
    engine.step()
    assert weight_of(model) == -1.0
