# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import numpy as np
import pytest
import ranks

import meron

PLANS = ["zero0", "zero1", "zero2", "zero3"]
SIZES = (1000, 7, 1, 0)


def make(ctx: meron.Context, dtype: str = "f32") -> meron.Unit:
    return ctx.unit("u", [ctx.param(f"w{size}", size, dtype) for size in SIZES])


def gradient_of(rank: int, micro_batch: int, size: int) -> np.ndarray:
    """Integers. Their sums are exact in any order."""
    return np.arange(size, dtype=np.float32) % 50 + rank + 10 * micro_batch


def expected(count: int, micro_batches: int, size: int) -> np.ndarray:
    return sum(
        (gradient_of(r, m, size) for r in range(count) for m in range(micro_batches)),
        np.zeros(size, np.float32),
    )


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_sums_over_ranks_and_micro_batches(plan: str, staged: bool, micro_batches: int) -> None:
    def body(ctx: meron.Context) -> None:
        unit = make(ctx)
        for micro_batch in range(micro_batches):
            grads = {p: gradient_of(ctx.rank, micro_batch, p.size) for p in unit.params}
            if not staged:
                for param, grad in grads.items():
                    unit.gradient(param)[...] += grad
            boundary = micro_batch == micro_batches - 1
            unit.reduce(grads if staged else None, op="sum", boundary=boundary)
        for param in unit.params:
            part = unit.reduced(param)
            assert part.dtype == np.float32
            total = expected(2, micro_batches, param.size)
            np.testing.assert_array_equal(
                part, total[param.shard_range.start : param.shard_range.stop]
            )
        unit.discard()

    ranks.threads(2, body, plan=plan)


def test_mean_and_divisor() -> None:
    def body(ctx: meron.Context) -> None:
        unit = make(ctx)
        unit.gradient(unit.params[0])[:] = 8 * (1 + ctx.rank)
        unit.reduce(divisor=4)
        assert (unit.reduced(unit.params[0]) == 3).all()
        assert (unit.reduced(unit.params[1]) == 0).all(), "params without a gradient count as zero"

    ranks.threads(2, body)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
def test_gradients_of_other_types(alone: meron.Context, dtype: type) -> None:
    unit = make(alone)
    param = unit.params[1]
    unit.reduce({param: np.arange(7, dtype=dtype)})
    np.testing.assert_array_equal(unit.reduced(param), np.arange(7))


def test_bf16_gradients(alone: meron.Context) -> None:
    unit = make(alone, "bf16")
    param = unit.params[1]
    values = np.arange(7, dtype=np.float32) / 4
    unit.reduce({param: meron.from_float32(values, "bf16")})
    np.testing.assert_array_equal(unit.reduced(param), values)


def test_gradient_starts_at_zero_and_may_skip_that(alone: meron.Context) -> None:
    unit = make(alone)
    param = unit.params[0]
    for _ in range(2):
        place = unit.gradient(param)
        assert place.shape == param.shape
        assert (place == 0).all()
        place += 1
        unit.reduce()
        unit.discard()
    unit.gradient(param, overwrite=True)[:] = 5
    unit.reduce()
    assert (unit.reduced(param) == 5).all()


def test_the_place_of_a_gradient_is_lent(alone: meron.Context) -> None:
    unit = make(alone)
    param = unit.params[0]
    place = unit.gradient(param)
    assert place.ctypes.data == unit.gradient(param).ctypes.data
    unit.reduce()
    with pytest.raises(ValueError, match="read-only"):
        place[0] = 1
    part = unit.reduced(param)
    part *= 2
    unit.discard()
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 1


def test_states(alone: meron.Context) -> None:
    unit = make(alone)
    param = unit.params[0]
    with pytest.raises(meron.StateError):
        unit.reduced(param)
    with pytest.raises(meron.StateError):
        unit.discard()
    unit.reduce()
    with pytest.raises(meron.StateError):
        unit.gradient(param)
    with pytest.raises(meron.StateError):
        unit.reduce()
    unit.discard()
    free = alone.param("free", (3,))
    with pytest.raises(meron.StateError):
        unit.gradient(free)
    frozen = alone.param("frozen", (3,), frozen=True)
    still = alone.unit("still", [frozen])
    with pytest.raises(meron.StateError):
        still.gradient(frozen)
    with pytest.raises(meron.StateError):
        still.reduce()


def test_wrong_arguments(alone: meron.Context) -> None:
    unit = make(alone)
    param = unit.params[0]
    other = alone.param("other", (3,))
    alone.unit("v", [other])
    for use in (
        lambda: unit.reduce(op="product"),
        lambda: unit.reduce({param: np.zeros(999)}),
        lambda: unit.reduce({param: ["a"] * 1000}),
        lambda: unit.reduce({other: np.zeros(3)}),
        lambda: unit.reduce(divisor=0),
        lambda: unit.reduce(divisor=float("nan")),
    ):
        with pytest.raises(meron.ArgumentError):
            use()
    unit.reduce({})
    assert (unit.reduced(param) == 0).all()


def test_reduce_and_reduce_finish_wait_and_raise_what_failed() -> None:
    begun = threading.Event()

    def body(ctx: meron.Context) -> None:
        unit = make(ctx)
        param = unit.params[0]
        for call in (unit.reduce, unit.reduce_finish):
            if call == unit.reduce_finish:
                unit.reduce({param: np.full(param.shape, 1)}, boundary=False)
            if ctx.rank == 0:
                threading.Timer(0.05, begun.set).start()
            else:
                assert begun.wait(20)
                begun.clear()
            call(op="sum")
            assert unit.info().reduced, "it has ended"
            unit.discard()
        ctx.world.barrier()
        if ctx.rank == 0:  # rank 1 closes instead
            with pytest.raises(meron.PeerClosedError, match="reduce of unit 'u' failed"):
                unit.reduce()

    ranks.threads(2, body)


@pytest.mark.parametrize("plan", PLANS)
def test_one_wait_for_many_units(plan: str) -> None:
    begun = threading.Event()

    def body(ctx: meron.Context) -> None:
        params = [ctx.param(name, 100) for name in "abc"]
        at_once, summed, idle = units = [ctx.unit(f"unit {p.name}", [p]) for p in params]
        assert ctx.wait_reductions(units, timeout=0), "nothing was begun"
        if ctx.rank == 1:
            assert begun.wait(20)
        at_once.reduce_begin({params[0]: np.full(100, 2 * ctx.rank)})
        summed.reduce_begin({params[1]: np.full(100, 4 * ctx.rank)}, boundary=False)
        summed.reduce_finish_begin(op="sum")
        if ctx.rank == 0:
            assert not ctx.wait_reductions((unit for unit in units), timeout=0.001)
            begun.set()
        assert ctx.wait_reductions(units)
        assert ctx.wait_reductions([idle], timeout=0)
        assert (at_once.reduced(params[0]) == 1).all()
        assert (summed.reduced(params[1]) == 4).all()

    ranks.threads(2, body, plan=plan)


def test_a_wait_for_units_that_cannot_be() -> None:
    def body(ctx: meron.Context) -> None:
        unit = make(ctx)
        with pytest.raises(meron.ArgumentError, match="no unit"):
            ctx.wait_reductions([])
        with pytest.raises(meron.ArgumentError, match="timeout"):
            ctx.wait_reductions([unit], timeout=-1)
        with pytest.raises(TypeError, match=r"meron\.Unit"):
            ctx.wait_reductions(unit.params)  # type: ignore[arg-type]
        with meron.open(0, 1, "self") as other, pytest.raises(meron.HandleError, match="another"):
            ctx.wait_reductions([unit, make(other)])
        ctx.world.barrier()
        if ctx.rank == 0:  # rank 1 closes instead
            unit.reduce_begin()
            with pytest.raises(meron.PeerClosedError):
                ctx.wait_reductions([unit])
        ctx.close()
        with pytest.raises(meron.ClosedError):
            ctx.wait_reductions([unit])

    ranks.threads(2, body)
