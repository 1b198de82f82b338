# SPDX-License-Identifier: Apache-2.0
"""Futures in an event loop: the context's descriptor says when to look at them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
import ranks

import meron


class Events:
    """Awaits Meron's futures in asyncio: `await events.end(future)`."""

    def __init__(self, context: meron.Context) -> None:
        self._context = context
        self._pending: list[tuple[meron.Future, asyncio.Future[None]]] = []

    async def __aenter__(self) -> Events:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._context.event_fd(), self._look)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop.remove_reader(self._context.event_fd())  # before the context is closed

    async def end(self, future: meron.Future) -> None:
        ended = self._loop.create_future()
        self._pending.append((future, ended))
        self._look()  # it may have ended already
        await ended

    def _look(self) -> None:
        self._context.progress()  # clears the descriptor, and advances what can be
        for pair in list(self._pending):
            future, ended = pair
            try:
                if not future.done():
                    continue
                ended.set_result(None)
            except meron.Error as error:
                ended.set_exception(error)
            self._pending.remove(pair)


def run(body: Callable[[meron.Context, Events], Awaitable[None]], **options: object) -> None:
    """Runs `body` in a loop of each of two ranks, which are threads."""

    async def main(ctx: meron.Context) -> None:
        async with Events(ctx) as events:
            await asyncio.wait_for(body(ctx, events), 20)

    ranks.threads(2, lambda ctx: asyncio.run(main(ctx)), **options)


def test_a_loop_awaits_futures_beside_other_tasks() -> None:
    ticks: list[float] = []

    async def body(ctx: meron.Context, events: Events) -> None:
        async def tick() -> None:
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.005)

        beside = asyncio.create_task(tick())
        if ctx.rank == 1:
            await asyncio.sleep(0.1)  # rank 0 waits meanwhile, and its loop runs on
        values = np.full(4, 1.0 + ctx.rank, np.float32)
        await events.end(ctx.world.all_reduce_begin(values))
        assert values.tolist() == [3.0] * 4
        beside.cancel()

    run(body)
    assert len(ticks) > 10


def test_a_loop_awaits_several_futures_in_the_order_in_which_they_end() -> None:
    async def body(ctx: meron.Context, events: Events) -> None:
        first, second = ctx.group([0, 1]), ctx.group([0, 1])
        order: list[str] = []

        async def barrier(group: meron.Group, name: str) -> None:
            await events.end(group.barrier_begin())
            order.append(name)

        if ctx.rank == 0:
            await asyncio.gather(barrier(first, "first"), barrier(second, "second"))
            assert order == ["second", "first"]
        else:
            await barrier(second, "second")
            await asyncio.sleep(0.05)
            await barrier(first, "first")

    run(body)


def test_futures_and_gathers_are_awaited() -> None:
    async def main(ctx: meron.Context) -> None:
        unit = ctx.unit("u", [ctx.param("w", 4)])
        if ctx.rank == 1:
            await asyncio.sleep(0.1)  # rank 0 waits meanwhile
        values = np.full(4, 1.0 + ctx.rank, np.float32)
        assert await ctx.world.all_reduce_begin(values) is None
        assert values.tolist() == [3.0] * 4
        full = await unit.gather_begin()
        assert full["w"].tolist() == [0.0] * 4
        full.release()
        first, second = ctx.group([0, 1]), ctx.group([0, 1])
        await asyncio.gather(first.barrier_begin(), second.barrier_begin())
        assert not ctx._watchers
        if ctx.rank == 1:
            ctx.world.barrier()
            return
        waiting = asyncio.ensure_future(awaited(ctx.world.barrier_begin()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not ctx._watchers

    ranks.threads(2, lambda ctx: asyncio.run(asyncio.wait_for(main(ctx), 20)))


async def awaited(future: meron.Future) -> None:
    await future


def test_a_task_gets_the_error_of_a_peer() -> None:
    async def main(ctx: meron.Context) -> None:
        if ctx.rank == 1:
            await asyncio.sleep(0.05)
            ctx.world.abort("enough")
            return
        with pytest.raises(meron.AbortedError, match="enough"):
            await ctx.world.barrier_begin()

    ranks.threads(2, lambda ctx: asyncio.run(asyncio.wait_for(main(ctx), 20)))


def test_a_task_gets_the_error_of_a_context_that_was_closed() -> None:
    closed = threading.Event()

    async def main(ctx: meron.Context) -> None:
        waiting = asyncio.ensure_future(awaited(ctx.world.barrier_begin()))
        await asyncio.sleep(0)
        ctx.close()
        with pytest.raises(meron.Error, match="closed"):
            await waiting
        closed.set()

    def body(ctx: meron.Context) -> None:
        if ctx.rank == 1:
            closed.wait(20)
        else:
            asyncio.run(asyncio.wait_for(main(ctx), 20))

    ranks.threads(2, body)


def test_a_loop_gets_the_error_of_a_peer() -> None:
    async def body(ctx: meron.Context, events: Events) -> None:
        if ctx.rank == 1:
            await asyncio.sleep(0.05)
            ctx.world.abort("enough")
            return
        with pytest.raises(meron.AbortedError, match="enough"):
            await events.end(ctx.world.barrier_begin())

    run(body)


def test_the_descriptor_is_closed_with_its_context() -> None:
    with meron.open(0, 1, "self") as ctx:
        fd = ctx.event_fd()
        assert ctx.event_fd() == fd
        assert not os.get_blocking(fd)
        assert not os.get_inheritable(fd)
    with pytest.raises(OSError):
        os.fstat(fd)
    with pytest.raises(meron.Error):
        ctx.event_fd()


# ---- Waiting without a loop ----------------------------------------------------------------------


def test_wait_any_returns_the_index_of_one_that_has_ended() -> None:
    go = threading.Event()

    def body(ctx: meron.Context) -> None:
        first, second = ctx.group([0, 1]), ctx.group([0, 1])
        if ctx.rank == 1:
            second.barrier()
            go.wait()
            first.barrier()
            return
        futures = [first.barrier_begin(), second.barrier_begin()]
        assert meron.wait_any(futures) == 1
        futures[1].release()
        with pytest.raises(meron.StaleError, match=r"futures\[1\] was released"):
            meron.wait_any(futures)
        assert meron.wait_any(futures[:1], timeout=0.01) is None
        go.set()
        assert meron.wait_any(futures[:1]) == 0
        futures[0].wait()

    ranks.threads(2, body)


def test_wait_any_counts_a_failed_one_and_refuses_none() -> None:
    with meron.open(0, 1, "self") as ctx:
        weight = ctx.param("w", (4,))
        unit = ctx.unit("u", [weight])
        optimizer = ctx.adamw([unit])
        unit.reduce_begin({weight: np.full(4, np.nan, np.float32)})
        step = optimizer.step_begin()
        assert meron.wait_any([step]) == 0
        with pytest.raises(meron.NonFiniteError):
            step.wait()
        with pytest.raises(meron.HandleError):
            meron.wait_any([])
