# SPDX-License-Identifier: Apache-2.0
"""Steps of an engine: accumulation boundaries, failures and norms."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import nn

import meron
import meron.torch as mt
from meron import zero
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

pytestmark = [pytest.mark.ranks(1, 3), on_device(1)]

Batch = tuple[torch.Tensor, torch.Tensor]


def backward(engine: Any, batch: Batch) -> None:
    engine.backward(loss_of(engine, batch[0][RANK], batch[1][RANK]))


def test_the_caller_decides_on_the_accumulation_boundary() -> None:
    model, plain = twins()
    settings = config(managed_gradient_accumulation=False, gradient_accumulation_steps=2)
    engine = zero.initialize(model=model, config=settings)[0]
    batches = batches_of(3)
    with pytest.raises(meron.StateError, match="managed_gradient_accumulation"):
        engine.set_gradient_accumulation_boundary(False)
    for batch in batches:
        assert engine.is_gradient_accumulation_boundary()
        loss = loss_of(engine, batch[0][RANK], batch[1][RANK]) / 3
        assert torch.equal(engine.backward(loss, scale_wrt_gas=False), loss.detach())
    engine.step()
    plain_step(plain, sgd(plain), batches)
    assert_equal_weights(model, plain, 1e-6)
    assert engine.global_steps == 1


def test_a_boundary_by_hand_needs_no_steps_between_micro_batches() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config(gradient_accumulation_steps=2))[0]
    batches = batches_of(2)
    for batch in batches:
        engine.set_gradient_accumulation_boundary(batch is batches[-1])
        backward(engine, batch)
    engine.step()
    plain_step(plain, sgd(plain), batches)
    assert_equal_weights(model, plain, 1e-6)


def test_one_no_sync_takes_several_backwards() -> None:
    for fp16 in (False, True):
        model, plain = twins()
        block = {"fp16": {"enabled": True, "initial_scale_power": 8}} if fp16 else {}
        settings = config(gradient_accumulation_steps=3, **block)
        engine = zero.initialize(model=model, config=settings)[0]
        engine.set_gradient_accumulation_boundary(True)
        batches = batches_of(3)
        with engine.no_sync():
            for batch in batches:
                backward(engine, batch)
        engine.step()
        plain_step(plain, sgd(plain), batches)
        assert_equal_weights(model, plain, 1e-3 if fp16 else 1e-6)


def test_a_step_without_gradients_changes_nothing() -> None:
    """As in torch, it applies no weight decay. It does not report the norm of the step before."""
    makes: list[Any] = [
        lambda m: mt.AdamW(m, lr=0.1, weight_decay=0.5),
        lambda m: mt.SGD(m, lr=0.1, momentum=0.9, weight_decay=0.5),
        lambda m: torch.optim.AdamW(m, lr=0.1, weight_decay=0.5),
    ]
    batches = batches_of(1)
    for make in makes:
        model, _ = twins()
        engine = zero.initialize(
            model=model,
            optimizer=make,
            config=config(),
            lr_scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 1),
        )[0]
        backward(engine, batches[0])
        engine.step()
        norm = engine.get_global_grad_norm()
        assert norm > 0 and engine.was_step_applied()
        before = {name: value.clone() for name, value in zero.full_state_dict(model).items()}
        x = torch.ones(2, requires_grad=True)  # a backward that reaches no param
        engine.backward(x.sum())
        engine.step()
        for name, value in zero.full_state_dict(model).items():
            assert torch.equal(value, before[name]), name
        assert engine.get_global_grad_norm() == 0.0 and engine.was_step_applied()
        assert engine.global_steps == 2 and engine.skipped_steps == 0
        assert math.isclose(engine.get_lr()[0], 0.1 * 0.1**2)
        own = engine.optimizer
        if isinstance(own, mt.EngineOptimizer):
            assert own.steps == 1 and own.grad_norm == 0.0
            own.step()
            assert own.steps == 1 and own.grad_norm == 0.0
        backward(engine, batches[0])
        engine.step()
        assert engine.get_global_grad_norm() > 0


def test_a_failed_step_reports_no_old_norm() -> None:
    for make in (lambda m: mt.AdamW(m, lr=0.1), lambda m: torch.optim.SGD(m, lr=0.1)):
        model, _ = twins()
        engine = zero.initialize(model=model, optimizer=make, config=config())[0]
        batch = batches_of(1)[0]
        backward(engine, batch)
        engine.step()
        engine.backward(loss_of(engine, batch[0][RANK], batch[1][RANK]) * float("inf"))
        with pytest.raises(meron.NonFiniteError):
            engine.step()
        assert engine.get_global_grad_norm() == math.inf and not engine.was_step_applied()
        own = engine.optimizer
        assert not isinstance(own, mt.EngineOptimizer) or not math.isfinite(own.grad_norm)


def test_a_new_batch_size_starts_a_new_accumulation() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config(gradient_accumulation_steps=3))[0]
    batches = batches_of(5)
    backward(engine, batches[0])
    engine.step()
    with pytest.raises(meron.StateError, match="micro-batch"):
        engine.set_train_batch_size(4 * RANKS)
    for batch in batches[1:3]:
        backward(engine, batch)
        engine.step()
    engine.set_train_batch_size(4 * RANKS)
    assert engine.gradient_accumulation_steps() == 2
    boundaries = []
    for batch in batches[3:]:
        boundaries.append(engine.is_gradient_accumulation_boundary())
        backward(engine, batch)
        engine.step()
    assert boundaries == [False, True]
    optimizer = sgd(plain)
    plain_step(plain, optimizer, batches[:3])
    plain_step(plain, optimizer, batches[3:])
    assert_equal_weights(model, plain, 1e-6)
    assert engine.global_steps == 2 and engine.global_samples == 6 * RANKS + 4 * RANKS
    with pytest.raises(meron.ArgumentError, match="micro_batch_size"):
        engine.set_train_micro_batch_size(0)
    with pytest.raises(meron.ArgumentError, match="train_batch_size"):
        engine.set_train_batch_size(4 * RANKS + 1)


def test_the_norm_covers_only_the_optimizers_params() -> None:
    model, plain = twins()
    engine = zero.initialize(
        model=model,
        model_parameters=model.blocks.parameters(),
        config=config(gradient_clipping=0.05),
    )[0]
    batch = batches_of(1)[0]
    engine_step(engine, [batch])
    chosen = list(plain.blocks.parameters())
    before = [param.detach().clone() for param in chosen]
    plain_step(plain, torch.optim.SGD(chosen, lr=0.0), [batch])
    norm = torch.nn.utils.clip_grad_norm_(chosen, 0.05)
    assert norm > 0.05 and abs(engine.get_global_grad_norm() - norm) < 1e-5
    for param, old, own in zip(chosen, before, model.blocks.parameters(), strict=True):
        assert torch.allclose(zero.safe_get_full_fp32_param(own), old - 0.1 * param.grad, atol=1e-6)
    assert torch.equal(zero.safe_get_full_fp32_param(model.shift), plain.shift)


class Answer:
    """An output in which nothing looks for tensors."""

    def __init__(self, scores: torch.Tensor) -> None:
        self.scores = scores


class Wrapped(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> Answer:
        return Answer(self.model(x))


def test_plain_backward_starts_from_an_opaque_output() -> None:
    model, plain = twins()
    engine = zero.initialize(model=Wrapped(model), config=config())[0]
    batch = batches_of(1)[0]
    loss_of(lambda x: engine(x).scores, batch[0][RANK], batch[1][RANK]).backward()
    engine.step()
    plain_step(plain, sgd(plain), [batch])
    assert_equal_weights(model, plain, 1e-6)


def test_rejects_a_step_within_a_gather() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config())[0]
    batches = batches_of(1)
    with zero.GatheredParameters(model.blocks[0].up.weight):
        backward(engine, batches[0])
        with pytest.raises(meron.StateError, match=re.escape("blocks.0.up")):
            engine.step()
    engine.step()
    plain_step(plain, sgd(plain), batches)
    assert_equal_weights(model, plain, 1e-6)


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, _gradient: torch.Tensor) -> torch.Tensor:
        raise OSError("on purpose")


def test_trains_after_a_failed_backward() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config())[0]
    batches = batches_of(1)
    hook = model.blocks[0].register_forward_hook(lambda _m, _inputs, output: Fails.apply(output))
    with pytest.raises(OSError, match="on purpose"):
        backward(engine, batches[0])
    hook.remove()
    with pytest.raises(meron.StateError, match="zero_grad"):
        backward(engine, batches[0])
    engine.zero_grad()
    engine_step(engine, batches)
    plain_step(plain, sgd(plain), batches)
    assert_equal_weights(model, plain, 1e-6)


def test_zero_grad_undoes_a_backward() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config())[0]
    batches = batches_of(2)
    backward(engine, batches[0])
    engine.zero_grad()
    with pytest.raises(meron.StateError, match="without a backward"):
        engine.step()
    backward(engine, batches[0])
    engine.zero_grad()
    engine_step(engine, batches[1:])
    plain_step(plain, sgd(plain), batches[1:])
    assert_equal_weights(model, plain, 1e-6)
