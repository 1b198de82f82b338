# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import ranks

import meron


def test_the_information_of_a_context() -> None:
    def body(ctx: meron.Context) -> tuple[int, int, str]:
        assert repr(ctx) == f"<meron.Context: rank {ctx.rank} of 3, local>"
        return ctx.rank, ctx.world_size, ctx.transport

    assert ranks.threads(3, body) == [(0, 3, "local"), (1, 3, "local"), (2, 3, "local")]


def test_one_rank_needs_nothing() -> None:
    with meron.open() as ctx:
        assert (ctx.rank, ctx.world_size, ctx.transport) == (0, 1, "self")


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"rank": 2, "world_size": 2, "transport": "local"}, meron.ArgumentError, "rank"),
        ({"rank": 0, "world_size": 0}, meron.ArgumentError, "world"),
        ({"rank": 0, "world_size": 1, "transport": "pigeon"}, meron.ArgumentError, "pigeon"),
        ({"rank": 0, "world_size": 2, "transport": "self"}, meron.ArgumentError, "self"),
        ({"rank": 0, "world_size": 2, "transport": "shm", "token": "zz"}, meron.AuthError, "token"),
        ({"rank": 2**40, "world_size": 1}, meron.ArgumentError, "out of range"),
        ({"plan": "zero9"}, meron.ArgumentError, "zero9"),
        ({"plan": '{"preset": '}, meron.ParseError, "line"),
        ({"job": "a\0b"}, meron.ArgumentError, "NUL"),
        ({"timeout": -1.0}, meron.ArgumentError, "timeout"),
        ({"timeout": float("nan")}, meron.ArgumentError, "timeout"),
        ({"log": 3}, TypeError, "log"),
        ({"should_stop": 3}, TypeError, "should_stop"),
        ({"transport": b"self"}, TypeError, "transport"),
    ],
)
def test_bad_options(options: dict[str, object], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        meron.open(**options)  # type: ignore[arg-type]


def test_a_missing_peer_is_named_at_the_deadline() -> None:
    with pytest.raises(meron.DeadlineError, match="1") as caught:
        meron.open(0, 2, "local", job="lonely", timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.operation == "meron.open"


def test_close_is_idempotent_and_everything_raises_after_it(alone: meron.Context) -> None:
    param = alone.param("w", (4,))
    unit = alone.unit("u", [param])
    optimizer = alone.adamw([unit])
    gather = unit.gather()
    future = alone.world.barrier_begin()
    update = alone.update([unit])
    alone.close()
    alone.close()
    assert alone.closed
    assert repr(alone) == "<meron.Context: rank 0 of 1, closed>"
    for use in (
        lambda: alone.param("x", ()),
        lambda: alone.group([0]),
        lambda: alone.unit("v", [param]),
        lambda: alone.adamw([unit]),
        lambda: alone.update([unit]),
        lambda: alone.gather([unit]),
        lambda: alone.stats(),
        lambda: alone.predict(),
        lambda: alone.progress(),
        lambda: alone.flight_record(),
        lambda: alone.world.barrier(),
        lambda: alone.world.status(),
        lambda: alone.world.abort(),
        lambda: param.shard_range,
        lambda: unit.info(),
        lambda: unit.gather(),
        lambda: unit.gradient(param),
        lambda: unit.reduce(),
        lambda: unit.reduced(param),
        lambda: unit.discard(),
        lambda: optimizer.step(),
        lambda: optimizer.lr,
        lambda: setattr(optimizer, "lr", 0.1),
        lambda: optimizer.state(param, "exp_avg"),
        lambda: update.__enter__(),
        lambda: gather[param],
        lambda: alone.__enter__(),
    ):
        with pytest.raises((meron.ClosedError, meron.StaleError)):
            use()
    with pytest.raises((meron.StaleError, meron.ContextError)):
        future.wait()
    gather.release()
    future.release()


def test_an_array_outlives_the_close_of_its_context() -> None:
    ctx = meron.open(0, 1, "self")
    param = ctx.param("w", (1000,))
    unit = ctx.unit("u", [param])
    with ctx.update([unit]) as update:
        update.write(param, np.arange(1000))
        written = update.view(param)
    array = unit.gather()[param]
    life = weakref.ref(ctx._require_open())
    ctx.close()
    assert life() is not None
    np.testing.assert_array_equal(array, np.arange(1000))
    del array, written
    gc.collect()
    assert life() is None


def test_peers_learn_of_an_exception_although_its_traceback_holds_arrays() -> None:
    failure: list[BaseException] = []

    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (8,))
        unit = ctx.unit("u", [param])
        array = unit.gather()[param]
        ctx.world.barrier()
        if ctx.rank == 0:
            array.sum(axis=7)  # AxisError
        begin = time.monotonic()
        with pytest.raises(meron.GroupError) as caught:
            ctx.world.barrier()
        failure.append(caught.value)
        assert time.monotonic() - begin < 2

    with pytest.raises(np.exceptions.AxisError) as caught:
        ranks.threads(2, body, timeout=60)
    assert caught.value.__traceback__ is not None
    assert isinstance(failure[0], meron.AbortedError)
    assert "rank 0 left its context by AxisError" in str(failure[0])


def test_a_context_that_is_dropped_is_closed() -> None:
    ctx = meron.open(0, 1, "self")
    param = ctx.param("w", (4,))
    unit = ctx.unit("u", [param])
    life = weakref.ref(ctx._require_open())
    del ctx, param
    gc.collect()
    assert life() is not None, "a unit keeps its context"
    del unit
    gc.collect()
    assert life() is None


@pytest.mark.parametrize("plan", ["zero0", "zero1", "zero2", "zero3", "mics(1)", "hpz(1)"])
def test_counters_equal_the_prediction(plan: str) -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (1000,))
        unit = ctx.unit("u", [param])
        optimizer = ctx.adamw([unit])
        predicted = ctx.predict(micro_batches=2, gathers_per_micro_batch=3)
        # Only the first step begins with values that no rank has to fetch.
        for _ in range(2):
            before = ctx.stats()
            for boundary in (False, True):
                for _ in range(3):
                    unit.gather().release()
                unit.gradient(param)[:] = 1
                unit.reduce(boundary=boundary)
            optimizer.step()
        after = ctx.stats()
        links = ("gather_mapped_bytes", "gather_copied_bytes", "reduce_bytes")
        for name in (*links, "inter_node_gather_bytes", "inter_node_reduce_bytes"):
            grown = getattr(after, name) - getattr(before, name)
            assert grown == getattr(predicted, name), name
        for name in ("param_bytes", "gradient_bytes", "optimizer_bytes", "peak_bytes"):
            assert getattr(after, name) == getattr(predicted, name), name
        assert after.operations > before.operations

    ranks.threads(2, body, plan=plan)


def test_the_error_of_a_codec() -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (1000,))
        unit = ctx.unit("u", [param])
        with ctx.update([unit]) as update:
            update.write(param, np.linspace(-1, 1, 1000, dtype=np.float32))
        with unit.gather() as full:
            assert np.abs(full[param] - np.linspace(-1, 1, 1000)).max() < 0.5 / 127 * 1.01
        unit.gradient(param)[:] = np.linspace(1, 2, 1000)
        unit.reduce()
        info = unit.info()
        assert (info.param_codec, info.gradient_codec) == ("int8", "int4")
        assert 0 < info.param_error <= info.param_worst_block * 1.000001 < 0.1
        assert 0 < info.gradient_error <= info.gradient_worst_block * 1.000001 < 0.2

    ranks.threads(2, body, plan="zeropp(1)")


def test_distinguishes_plans_that_differ() -> None:
    plans = ("zeropp(1)", "hpz(1)")

    def rank(number: int) -> str:
        with pytest.raises(meron.MismatchError) as caught:
            ctx = meron.open(number, 2, "local", plans[number], job="plans", timeout=20)
            ctx.world.barrier()
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        for message in pool.map(rank, range(2)):
            assert "param.codec" in message and "int8" in message


def test_a_workload_out_of_range(alone: meron.Context) -> None:
    with pytest.raises(meron.ArgumentError, match="-1"):
        alone.predict(micro_batches=-1)


def test_flight_record_lists_the_calls(alone: meron.Context) -> None:
    alone.world.barrier()
    assert "barrier" in str(alone.flight_record())


def test_progress_advances_without_waiting() -> None:
    def body(ctx: meron.Context) -> None:
        future = ctx.world.barrier_begin()
        while not future.done():
            ctx.progress()

    ranks.threads(2, body)


def test_limits_are_errors_with_figures() -> None:
    with meron.open(0, 1, "self", host_memory_limit=1 << 20) as ctx:
        param = ctx.param("big", (1 << 22,))
        with pytest.raises(meron.OutOfMemoryError, match="unit") as caught:
            ctx.unit("unit", [param])
        assert isinstance(caught.value, MemoryError)
        small = ctx.param("small", (16,))
        with ctx.unit("fits", [small]).gather() as full:
            assert full[small].shape == (16,)


def test_contexts_are_independent() -> None:
    with meron.open(0, 1, "self") as one, meron.open(0, 1, "self") as two:
        param = one.param("w", (2,))
        with pytest.raises(meron.HandleError):
            two.unit("u", [param])
        unit = one.unit("u", [param])
        assert unit.name == two.unit("u", [two.param("w", (3,))]).name


def test_options_of_memory_and_threads() -> None:
    with meron.open(0, 1, "self", arena_reserve=64 << 20, threads=1) as ctx:
        unit = ctx.unit("u", [ctx.param("w", (2,))])
        assert unit.info().state == "partitioned"


def test_many_threads_use_one_context(alone: meron.Context) -> None:
    params = [alone.param(f"w{i}", (64,)) for i in range(4)]
    units = [alone.unit(f"u{i}", [param]) for i, param in enumerate(params)]
    failures: list[BaseException] = []

    def main(unit: meron.Unit, param: meron.Param) -> None:
        try:
            for i in range(200):
                with alone.update([unit]) as update:
                    update.write(param, np.full(64, i))
                with unit.gather() as full:
                    assert (full[param] == i).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=main, args=pair) for pair in zip(units, params)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
