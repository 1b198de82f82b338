# SPDX-License-Identifier: Apache-2.0
"""Norm and clipping of gradients for an optimizer of one's own, and gradients lent by DLPack."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import ranks

import meron

PLANS = ("zero0", "zero1", "zero2", "zero3")


def unit_of(ctx: meron.Context, name: str = "u") -> tuple[meron.Unit, meron.Param]:
    param = ctx.param(f"{name}.w", (37, 13))
    return ctx.unit(name, [param]), param


def gradient(rank: int) -> npt.NDArray[np.float32]:
    values = np.arange(37 * 13, dtype=np.float32).reshape(37, 13)
    return np.asarray(values % 7 - 3 + rank, np.float32)


def reduced_with(unit: meron.Unit, param: meron.Param, values: npt.NDArray[np.float32]) -> None:
    unit.reduce({param: values})


@pytest.mark.parametrize("plan", PLANS)
def test_norm_and_gradients_have_the_bits_of_a_step(plan: str) -> None:
    def body(ctx: meron.Context) -> float:
        (own, w), (engine, v) = unit_of(ctx, "own"), unit_of(ctx, "engine")
        optimizer = ctx.sgd([engine], lr=0.5, max_norm=2.0)
        for unit, param in ((own, w), (engine, v)):
            reduced_with(unit, param, gradient(ctx.rank))
        norm = ctx.clip_gradients([own], 2.0)
        with ctx.update([own]) as update:
            update.view(w)[:] -= own.reduced(w) * np.float32(0.5)
        own.consume()
        optimizer.step()
        assert norm == optimizer.norm
        with own.gather() as mine, engine.gather() as theirs:
            assert mine[w].tobytes() == theirs[v].tobytes()
        return norm

    norms = ranks.threads(3, body, plan=plan)
    assert len(set(norms)) == 1


def test_a_gradient_that_is_not_finite_is_named_and_kept() -> None:
    def body(ctx: meron.Context) -> None:
        unit, param = unit_of(ctx)
        values = gradient(ctx.rank)
        if ctx.rank == 1:
            values[2, 3] = np.nan
        reduced_with(unit, param, values)
        before = unit.reduced(param).copy()
        with pytest.raises(meron.NonFiniteError, match=r"'u.w' of unit 'u', element 29"):
            ctx.clip_gradients([unit], 1.0)
        np.testing.assert_array_equal(unit.reduced(param), before)
        unit.discard()

    ranks.threads(2, body)


def test_clip_refuses_what_it_cannot_clip() -> None:
    with meron.open(transport="self") as ctx:
        unit, param = unit_of(ctx)
        with pytest.raises(meron.StateError, match="not reduced"):
            ctx.clip_gradients([unit], 1.0)
        with pytest.raises(meron.ArgumentError, match="unit"):
            ctx.clip_gradients([], 1.0)
        reduced_with(unit, param, gradient(0))
        for bad in (-1.0, float("nan"), float("inf")):
            with pytest.raises(meron.ArgumentError, match="max_norm"):
                ctx.clip_gradients([unit], bad)
        with pytest.raises(meron.DuplicateError):
            ctx.clip_gradients([unit, unit], 1.0)
        assert ctx.clip_gradients([unit], 0) > 0
    with pytest.raises(meron.ClosedError):
        ctx.clip_gradients([unit], 1.0)


def importer() -> Any:
    array = np.zeros(1, np.float32)
    try:
        array.__dlpack__(max_version=(1, 0))
    except TypeError:
        pytest.skip("this NumPy knows no DLPack 1.0")
    return np.from_dlpack


def test_reduced_gradients_are_lent_by_dlpack() -> None:
    from_dlpack = importer()
    with meron.open(transport="self") as ctx:
        unit, param = unit_of(ctx)
        with pytest.raises(meron.StateError, match="not reduced"):
            unit.reduced_dlpack(param)
        reduced_with(unit, param, gradient(0))
        tensor = unit.reduced_dlpack(param)
        array = from_dlpack(tensor)
        np.testing.assert_array_equal(array, gradient(0).reshape(-1))
        for end in (unit.consume, unit.discard):
            with pytest.raises(meron.StateError, match="lent to 1 DLPack tensor"):
                end()
        with pytest.raises(meron.StateError):
            unit.destroy()
        part = array[3:]
        del array
        gc.collect()
        with pytest.raises(meron.StateError, match="lent"):
            unit.consume()
        del part
        gc.collect()
        unit.consume()
        with pytest.raises(meron.StateError, match="not reduced"):
            from_dlpack(tensor)


def test_a_step_waits_for_lent_gradients() -> None:
    from_dlpack = importer()
    with meron.open(transport="self") as ctx:
        unit, param = unit_of(ctx)
        optimizer = ctx.sgd([unit], lr=1.0)
        reduced_with(unit, param, gradient(0))
        array = from_dlpack(unit.reduced_dlpack(param))
        with pytest.raises(meron.StateError, match="step the optimizer"):
            optimizer.step()
        if array.flags.writeable:
            array[:] = 0
        del array
        gc.collect()
        optimizer.step()


def test_the_plan_of_a_context_can_be_asked() -> None:
    with meron.open(transport="self", plan="zero2") as ctx:
        assert meron.Plan.parse(ctx.plan_json()) == meron.Plan.preset("zero2")


def test_gradients_on_a_device_have_the_bits_of_a_step() -> None:
    tiers = {name: {"tier": "device"} for name in ("param", "gradient", "optimizer")}
    plan = meron.Plan.parse({"preset": "zero3", **tiers})
    with meron.open(transport="self", device="emulated", plan=plan) as ctx:
        (own, w), (engine, v) = unit_of(ctx, "own"), unit_of(ctx, "engine")
        optimizer = ctx.sgd([engine], lr=0.5, max_norm=2.0)
        for unit, param in ((own, w), (engine, v)):
            reduced_with(unit, param, gradient(0))
        assert ctx.clip_gradients([own], 2.0) > 2.0
        clipped = own.reduced(w).copy()
        optimizer.step()
        with engine.gather(mode="copy") as full:
            np.testing.assert_array_equal(full[v].reshape(-1), -(clipped * np.float32(0.5)))
        own.discard()
        values = gradient(0)
        values[1, 1] = np.inf
        reduced_with(own, w, values)
        with pytest.raises(meron.NonFiniteError, match="unit 'own'"):
            ctx.clip_gradients([own], 2.0)
