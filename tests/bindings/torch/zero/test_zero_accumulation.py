# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation: sums, their divisor and dtype, counters, and coalesced reductions."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
import torch

import meron
from meron import zero
from model import (
    RANK,
    RANKS,
    Scale,
    assert_equal_weights,
    config,
    data,
    loss_of,
    plain_step,
    scale_engine,
    twins,
    weight_of,
)

pytestmark = pytest.mark.ranks(2)


UNMANAGED: dict[str, Any] = {
    "managed_gradient_accumulation": False,
    "gradient_accumulation_steps": 4,
}


def test_divides_unmanaged_gradients_by_the_configured_steps() -> None:
    for stage in range(4):
        model, engine = scale_engine(stage, **UNMANAGED)
        for _ in range(4):
            assert float(engine.backward(engine())) == weight_of(model) / 4
        engine.step()
        assert weight_of(model) == -1.0, stage
        for _ in range(2):
            engine().backward()  # as engine.backward does
        assert float(zero.safe_get_full_grad(model.weight)[0]) == 0.5
        engine.step()
        assert weight_of(model) == -1.5, stage
        for _ in range(3):  # the caller divides by the number of micro-batches
            loss = engine() / 3
            assert torch.equal(engine.backward(loss, scale_wrt_gas=False), loss.detach())
        engine.step()
        assert abs(weight_of(model) + 2.5) < 1e-6, stage
        assert engine.global_steps == 3
        engine.destroy()


def test_counts_samples_by_backward_passes() -> None:
    model, engine = scale_engine(1, **UNMANAGED)
    samples = 0
    for count in (1, 3, 4):
        for _ in range(count - 1):
            engine.backward(engine())
        (engine() + engine()).backward()  # one pass over several forwards
        samples += 2 * RANKS * count
        engine.step()
        assert engine.global_samples == samples
    engine.backward(engine())
    engine.zero_grad()  # dropped micro-batches are not counted
    engine.backward(model())  # a forward without the engine
    engine.step()
    assert engine.global_samples == samples + 2 * RANKS
    model().backward()
    engine.step()
    assert engine.global_samples == samples + 4 * RANKS
    with engine.no_sync():
        engine.backward(engine())
    engine.backward(engine())
    engine.step()
    assert engine.global_samples == samples + 8 * RANKS
    engine.destroy()
    _, engine = scale_engine(1, gradient_accumulation_steps=3)
    for _ in range(6):
        engine.backward(engine())
        engine.step()
    assert engine.global_samples == 2 * 2 * 3 * RANKS


@pytest.mark.parametrize("stage", range(4))
def test_rejects_a_step_that_would_count_several_backward_passes_as_one(stage: int) -> None:
    model, engine = scale_engine(stage, gradient_accumulation_steps=3)
    for _ in range(3):
        engine().backward()
    with pytest.raises(meron.StateError, match=r"3 backward.*set_gradient_accumulation_boundary"):
        engine.step()
    assert weight_of(model) == 0.0
    engine.set_gradient_accumulation_boundary(True)
    engine.step()
    assert weight_of(model) == -1.0
    engine.destroy()
    model, engine = scale_engine(stage, gradient_accumulation_steps=3)
    for _ in range(3):
        engine().backward()
        engine.step()
    assert weight_of(model) == -1.0


def test_rejects_a_new_batch_size_during_an_accumulation() -> None:
    model, engine = scale_engine(3, **UNMANAGED)
    with engine.no_sync():
        engine.backward(engine())
    with pytest.raises(meron.StateError, match=re.escape("1 micro-batch(es)")):
        engine.set_train_batch_size(2 * RANKS)
    engine.backward(engine())
    engine.step()
    assert weight_of(model) == -0.5
    engine.set_train_batch_size(2 * RANKS)
    engine.backward(engine())
    engine.step()
    assert weight_of(model) == -1.5


def test_reports_whether_the_last_step_was_applied() -> None:
    _, engine = scale_engine(2, gradient_accumulation_steps=2)
    assert not engine.was_step_applied()
    for _ in range(2):
        seen = []
        for _ in range(2):
            engine.backward(engine())
            engine.step()
            seen.append(engine.was_step_applied())
        assert seen == [False, True]
    with pytest.raises(meron.StateError, match="without a backward"):
        engine.step()
    assert not engine.was_step_applied()
    engine.destroy()
    _, engine = scale_engine(2)
    for factor, applied in ((1.0, True), (float("nan"), False), (1.0, True)):
        engine.backward(engine() * factor)
        if applied:
            engine.step()
        else:
            with pytest.raises(meron.NonFiniteError, match="norm"):
                engine.step()
        assert engine.was_step_applied() == applied


# Gradients of micro-batches whose sum needs more than the 8 bits of bf16.
UNEVEN = (256.0, 1.0, 1.0, 1.0, 1.0)
BF16: dict[str, Any] = {"bf16": {"enabled": True}}


def uneven_sum(stage: int, unsynced: bool = False, **others: Any) -> float:
    """Returns the sum that an accumulation makes of them."""
    model, engine = scale_engine(stage, gradient_accumulation_steps=len(UNEVEN), **others)
    engine.set_gradient_accumulation_boundary(True)
    with engine.no_sync() if unsynced else contextlib.nullcontext():
        for factor in UNEVEN[:-1]:
            engine.backward(engine() * factor)
    engine.backward(engine() * UNEVEN[-1])
    gradient = zero.safe_get_full_grad(model.weight)
    engine.step()
    engine.destroy()
    return round(float(gradient[0]) * len(UNEVEN), 3)


def accumulating(dtype: str, **others: Any) -> dict[str, Any]:
    return {"data_types": {"grad_accum_dtype": dtype}, **others}


def test_accumulates_gradients_in_the_configured_dtype() -> None:
    exact, rounded = sum(UNEVEN), UNEVEN[0]
    for stage in range(4):
        assert uneven_sum(stage, **accumulating("fp32", **BF16)) == exact, stage
        assert uneven_sum(stage) == exact, stage
    for stage in (2, 3):  # these sum in f32, which is at least as exact
        for dtype in ("fp16", "bf16"):
            assert uneven_sum(stage, **accumulating(dtype)) == exact, stage
            assert uneven_sum(stage, **accumulating(dtype, **BF16)) == exact, stage
    for stage in (0, 1):
        assert uneven_sum(stage, unsynced=True, **accumulating("fp32", **BF16)) == exact, stage
        assert uneven_sum(stage, **accumulating("bf16", **BF16)) == rounded, stage
        assert uneven_sum(stage, **accumulating("bf16")) == rounded, stage
        assert uneven_sum(stage, **accumulating("fp16")) == exact, stage  # 11 bits suffice
        # Gradients are sent in a dtype that is at least as wide as the sums.
        assert uneven_sum(stage, communication_data_type="bf16") == exact, stage
        assert uneven_sum(stage, communication_data_type="fp32", **BF16) == exact, stage
        # Without the key f32, also if one micro-batch is sent in 16 bits.
        assert uneven_sum(stage, **BF16) == exact, stage
        assert uneven_sum(stage, communication_data_type="bf16", **BF16) == exact, stage


def test_rejects_unsynchronized_sums_that_would_round() -> None:
    for stage in (2, 3):
        assert uneven_sum(stage, unsynced=True) == sum(UNEVEN)
        with pytest.raises(meron.UnsupportedError, match="grad_accum_dtype"):
            uneven_sum(stage, unsynced=True, **accumulating("fp32", **BF16))
        assert uneven_sum(stage, unsynced=True, **BF16) == UNEVEN[0]


def test_reduces_once_for_several_backward_passes() -> None:
    generator = torch.Generator().manual_seed(1)
    batches = [data(generator) for _ in range(3)]
    for stage in range(4):
        for fp16 in (False, True):
            block = {"fp16": {"enabled": True, "initial_scale_power": 8}} if fp16 else {}
            model, plain = twins()
            settings = config(stage, gradient_accumulation_steps=3, **block)
            engine = zero.initialize(model=model, config=settings)[0]
            begun = engine.sharding.context.stats().reduce_bytes
            with engine.coalesce_grad_reduction():
                for batch in batches:
                    engine.backward(loss_of(engine, batch[0][RANK], batch[1][RANK]))
                kept = not fp16 or stage < 2  # 16-bit gradients are added in f32, in the shards
                assert RANKS != 2 or (engine.sharding.context.stats().reduce_bytes == begun) == kept
                with pytest.raises(meron.StateError, match="no_sync"):
                    engine.step()
            assert RANKS != 2 or engine.sharding.context.stats().reduce_bytes > begun
            with (
                pytest.raises(meron.StateError, match="were not used"),
                engine.coalesce_grad_reduction(),
            ):
                pass
            assert engine.is_gradient_accumulation_boundary()
            engine.step()
            assert engine.was_step_applied() and engine.global_steps == 1
            assert not engine.is_gradient_accumulation_boundary()
            plain_step(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)
            assert_equal_weights(model, plain, 1e-3 if fp16 else 1e-6)
            engine.destroy()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_coalesced_reduction_adds_in_f32(stage: int) -> None:
    """1 + 64 x 2^-9: in bf16, whose step above 1 is 2^-7, each addend would be lost."""
    found = []
    for coalesced in (False, True):
        model = Scale()
        optimizer = {"type": "SGD", "params": {"lr": 1.0}}
        keys = {"bf16": {"enabled": True}, "gradient_accumulation_steps": 65}
        settings = config(
            stage, optimizer=optimizer, data_types={"grad_accum_dtype": "fp32"}, **keys
        )
        engine = zero.initialize(model=model, config=settings)[0]
        with engine.coalesce_grad_reduction() if coalesced else contextlib.nullcontext():
            for turn in range(65):
                engine.backward(engine() * (1.0 if turn == 0 else 2.0**-9) * 65)
                if not coalesced:
                    engine.step()
        if coalesced:
            engine.step()
        value = zero.safe_get_full_fp32_param(model.weight)
        assert value is not None
        found.append(value)
        engine.destroy()
    assert torch.equal(*found) and torch.allclose(found[0], torch.tensor(-1.125), atol=1e-6)


def test_rejects_misuse_of_a_coalesced_reduction() -> None:
    model, engine = scale_engine(2)
    wrong = pytest.raises(meron.StateError, match=re.escape("no_sync() within no_sync()"))
    with engine.no_sync(), wrong, engine.coalesce_grad_reduction():
        pass
    with engine.coalesce_grad_reduction():
        pass  # without a backward
    with pytest.raises(meron.StateError, match="without a backward"):
        engine.step()
    with pytest.raises(OSError, match="on purpose"), engine.coalesce_grad_reduction():
        engine.backward(engine())
        raise OSError("on purpose")
    engine.zero_grad()
    with engine.coalesce_grad_reduction():
        engine.backward(engine())
    engine.zero_grad()
    with engine.coalesce_grad_reduction():
        engine.backward(engine())
        engine.backward(engine())
    engine.step()
    assert weight_of(model) == -2.0
    engine.destroy()
    _, engine = scale_engine(2, managed_gradient_accumulation=False)
    with pytest.raises(meron.StateError, match="managed"), engine.coalesce_grad_reduction():
        pass
