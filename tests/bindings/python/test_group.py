# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
import ranks

import meron


def test_broadcast_copies_the_root() -> None:
    def body(ctx: meron.Context) -> None:
        for root in range(3):
            array = np.full((4, 5), ctx.rank, np.int64)
            assert ctx.world.broadcast(array, root) is array
            assert (array == root).all()

    ranks.threads(3, body)


def test_broadcast_of_nothing_and_of_a_scalar() -> None:
    def body(ctx: meron.Context) -> None:
        ctx.world.broadcast(np.empty(0, np.float32))
        scalar = np.array(float(ctx.rank))
        ctx.world.broadcast(scalar, 1)
        assert scalar == 1

    ranks.threads(2, body)


def test_all_reduce() -> None:
    values = np.arange(30, dtype=np.float32).reshape(3, 10) / 7
    total = (values[0] + values[1]) + values[2]  # in the order of the ranks, as is promised

    def body(ctx: meron.Context) -> bytes:
        array = values[ctx.rank].copy()
        assert ctx.world.all_reduce(array) is array
        np.testing.assert_array_equal(array, total)
        mean = ctx.world.all_reduce(values[ctx.rank].copy(), "mean")
        np.testing.assert_allclose(mean, total / 3, rtol=1e-6)
        return mean.tobytes()

    assert len(set(ranks.threads(3, body))) == 1


def test_all_reduce_of_half_precision() -> None:
    def body(ctx: meron.Context) -> None:
        array = np.full(8, 1.5 + ctx.rank, np.float16)
        assert (ctx.world.all_reduce(array) == np.float16(4.0)).all()

    ranks.threads(2, body)


def test_all_reduce_of_numbers_that_no_tensor_has() -> None:
    def body(ctx: meron.Context) -> None:
        count = np.array([2**52 + ctx.rank], np.int64)
        assert ctx.world.all_reduce(count.copy())[0] == 3 * 2**52 + 3
        assert ctx.world.all_reduce(count.copy(), "max")[0] == 2**52 + 2
        wide = np.full(3, 0.1, np.float64)
        assert (ctx.world.all_reduce(wide.copy()) == 0.1 + 0.1 + 0.1).all()
        assert (ctx.world.all_reduce(wide * ctx.rank, "min") == 0).all()
        assert (ctx.world.all_reduce(wide * ctx.rank, "mean") == (0.1 + 0.2) / 3).all()

    ranks.threads(3, body)


def test_all_reduce_of_a_number_returns_one_of_its_type() -> None:
    def body(ctx: meron.Context) -> None:
        for number, total in (
            (1.5 + ctx.rank, 4.0),
            (2**52 + ctx.rank, 2**53 + 1),
            (np.float32(1.5), np.float32(3)),
            (np.float16(0.5), np.float16(1)),
            (np.int64(ctx.rank), np.int64(1)),
        ):
            found = ctx.world.all_reduce(number)
            assert (found, type(found)) == (total, type(total))
        assert ctx.world.all_reduce(float(ctx.rank), "max") == 1.0
        assert ctx.world.all_reduce(ctx.rank, "min") == 0

    ranks.threads(2, body)


def test_all_reduce_keeps_nan() -> None:
    def body(ctx: meron.Context) -> None:
        for dtype in (np.float16, np.float32, np.float64):
            for op in ("max", "min"):
                array = np.array([np.nan if ctx.rank == 1 else 1.0, ctx.rank], dtype)
                ctx.world.all_reduce(array, op)
                assert np.isnan(array[0])
                assert array[1] == (2 if op == "max" else 0)

    ranks.threads(3, body)


def test_all_reduce_names_what_it_does_not_take() -> None:
    with meron.open(transport="self") as ctx:
        with pytest.raises(meron.ArgumentError, match="mean of i64"):
            ctx.world.all_reduce(np.zeros(3, np.int64), "mean")
        with pytest.raises(meron.ArgumentError, match="int32"):
            ctx.world.all_reduce(np.zeros(3, np.int32))
        with pytest.raises(meron.ArgumentError, match="sum, mean, max, min"):
            ctx.world.all_reduce(np.zeros(3), "product")


def test_ranks_that_reduce_other_types_are_named() -> None:
    def body(ctx: meron.Context) -> None:
        array = np.zeros(3, np.float64 if ctx.rank == 0 else np.int64)
        with pytest.raises(meron.MismatchError, match="i64 sum" if ctx.rank == 0 else "f64 sum"):
            ctx.world.all_reduce(array)

    ranks.threads(2, body)


def test_groups() -> None:
    def body(ctx: meron.Context) -> None:
        group = ctx.group([2, 0])
        if ctx.rank == 1:
            assert group is None
            return
        assert group is not None
        assert (group.rank, group.size) == ({2: 0, 0: 1}[ctx.rank], 2)
        assert repr(group) == f"<meron.Group: rank {group.rank} of 2>"
        array = np.array([ctx.rank], np.float32)
        group.broadcast(array, 0)  # the group's rank 0 is the world's rank 2
        assert array[0] == 2
        group.barrier()
        assert group.status() is None

    ranks.threads(3, body)


def test_units_of_two_groups_do_not_share_memory() -> None:
    def body(ctx: meron.Context) -> None:
        group = [ctx.group([0, 1]), ctx.group([2, 3])][ctx.rank // 2]
        weight = ctx.param("w", (4096,), group=group)
        unit = ctx.unit("u", [weight])
        values = np.arange(4096, dtype=np.float32) + 4096 * (ctx.rank // 2)
        with ctx.update([unit]) as update:
            update.write(weight, values)
        ctx.world.barrier()
        with unit.gather() as full:
            np.testing.assert_array_equal(full[weight], values)

    ranks.threads(4, body)


@pytest.mark.parametrize("members", [[0, 0], [0, 7], [-1]])
def test_bad_groups(members: list[int]) -> None:
    def body(ctx: meron.Context) -> None:
        with pytest.raises(meron.ArgumentError):
            ctx.group(members)
        ctx.world.barrier()  # the world still works

    ranks.threads(2, body)


def test_abort_reaches_every_rank_and_stays() -> None:
    def body(ctx: meron.Context) -> None:
        ctx.world.barrier()  # or a rank that is still opening its context gets the error there
        if ctx.rank == 0:
            ctx.world.abort("the data ran out")
        with pytest.raises(meron.AbortedError, match="the data ran out"):
            ctx.world.barrier()
        with pytest.raises(meron.GroupError):
            ctx.world.barrier()
        status = ctx.world.status()
        assert isinstance(status, meron.AbortedError)
        assert "the data ran out" in status.message

    ranks.threads(3, body)


def test_ranks_that_diverge_get_both_calls() -> None:
    def body(ctx: meron.Context) -> None:
        with pytest.raises(meron.MismatchError) as caught:
            if ctx.rank == 0:
                ctx.world.barrier()
            else:
                ctx.world.broadcast(np.zeros(4), 0)
        assert "called barrier" in caught.value.message
        assert "called broadcast" in caught.value.message

    ranks.threads(2, body)


def test_a_closed_peer_is_named() -> None:
    def body(ctx: meron.Context) -> None:
        if ctx.rank == 1:
            return
        with pytest.raises(meron.PeerClosedError) as caught:
            ctx.world.barrier()
        assert caught.value.peer == 1

    ranks.threads(2, body)


def test_a_late_peer_is_named() -> None:
    def body(ctx: meron.Context) -> None:
        if ctx.rank == 1:
            time.sleep(0.6)
            return
        with pytest.raises(meron.DeadlineError) as caught:
            ctx.world.barrier()
        assert caught.value.peer == 1

    ranks.threads(2, body, timeout=0.3)


def test_a_wait_can_be_short() -> None:
    def body(ctx: meron.Context) -> None:
        if ctx.rank == 0:
            future = ctx.world.barrier_begin()
            assert not future.wait(timeout=0.01)
            assert not future.done()
            ctx.world.broadcast(np.zeros(1), 0)
            assert future.wait()
            assert future.wait()
            assert future.done()
        else:
            time.sleep(0.1)
            ctx.world.barrier()
            ctx.world.broadcast(np.zeros(1), 0)

    ranks.threads(2, body)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4), np.float32).T[1:],
        np.zeros(8, np.float32)[::2],
        np.zeros(4, ">f4"),
        np.broadcast_to(np.float32(0), (4,)),
    ],
)
def test_arrays_that_cannot_be_written_in_order(alone: meron.Context, array: np.ndarray) -> None:
    for use in (alone.world.broadcast, alone.world.all_reduce):
        with pytest.raises(meron.ArgumentError):
            use(array)
    alone.world.barrier()


def test_wrong_arguments(alone: meron.Context) -> None:
    with pytest.raises(meron.ArgumentError, match="complex128"):
        alone.world.all_reduce(np.zeros(4, np.complex128))
    with pytest.raises(meron.ArgumentError, match="median"):
        alone.world.all_reduce(np.zeros(4, np.float32), "median")
    with pytest.raises(meron.ArgumentError):
        alone.world.broadcast(np.zeros(4), 1)
    with pytest.raises(TypeError):
        alone.world.broadcast([1.0])  # type: ignore[arg-type]


def test_a_dropped_future_keeps_its_array_until_the_end() -> None:
    def body(ctx: meron.Context) -> None:
        array = np.full(1000, ctx.rank, np.float32)
        alive = weakref.ref(array)
        if ctx.rank == 0:
            ctx.world.all_reduce_begin(array)
            del array
            gc.collect()
            assert alive() is not None
        else:
            time.sleep(0.1)
            ctx.world.all_reduce(array)
            assert (array == 1).all()
            del array
        ctx.world.barrier()
        ctx.progress()
        gc.collect()
        assert alive() is None

    ranks.threads(2, body)


def test_a_released_future(alone: meron.Context) -> None:
    future = alone.world.barrier_begin()
    future.release()
    future.release()
    with pytest.raises(meron.StaleError):
        future.wait()


def test_of_many_that_are_missing_ranges_are_named() -> None:
    def body(ctx: meron.Context) -> str:
        if ctx.rank > 1:
            done.wait()
            return ""
        try:
            with pytest.raises(meron.DeadlineError) as caught:
                ctx.world.barrier()
            return str(caught.value)
        finally:
            done.set()

    done = threading.Event()
    text = ranks.threads(12, body, timeout=0.5)[0]
    assert "ranks 0, 1 arrived; missing: ranks 2-11; ranks 2-11 made call 1, meron.open " in text
    assert ", for 0.5 s so far" in text
