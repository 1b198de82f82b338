# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, and the should_stop and log callbacks."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import ranks

import meron

REACTION = 2.0  # seconds within which a wait must end


def after(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def with_a_silent_peer(body: Callable[[meron.Context], None], **options: object) -> None:
    """Runs `body` on this thread as rank 0 of 2; rank 1 opens its context and does nothing."""
    done = threading.Event()
    opened: list[meron.Context] = []

    def silent() -> None:
        with meron.open(1, 2, "local", job="silent", timeout=20) as ctx:
            opened.append(ctx)
            done.wait()

    peer = threading.Thread(target=silent)
    peer.start()
    try:
        with meron.open(0, 2, "local", job="silent", **{"timeout": 20, **options}) as ctx:
            body(ctx)
    finally:
        done.set()
        peer.join()


def waits(ctx: meron.Context) -> dict[str, Callable[[], object]]:
    future = ctx.world.barrier_begin()
    return {
        "future": future.wait,
        "barrier": ctx.world.barrier,
        "all_reduce": lambda: ctx.world.all_reduce(np.zeros(4, np.float32)),
    }


@pytest.mark.parametrize("name", ["future", "barrier", "all_reduce"])
def test_ctrl_c_ends_a_wait(name: str) -> None:
    def body(ctx: meron.Context) -> None:
        wait = waits(ctx)[name]
        timer = after(0.3, interrupt)
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert time.monotonic() - begin < REACTION
        timer.join()
        assert ctx.world.status() is None, "the group is whole"

    with_a_silent_peer(body)


def test_many_ctrl_c_leave_the_group_whole() -> None:
    count = int(os.environ.get("MERON_TEST_INTERRUPTS", "40"))
    generator = random.Random(7)
    waiting = threading.Lock()  # free while the other thread is to interrupt; in C, so indivisible
    waiting.acquire()

    def interrupts() -> None:
        for _ in range(count):
            waiting.acquire()
            time.sleep(0.001 + generator.random() * 0.05)
            interrupt()

    def body(ctx: meron.Context) -> None:
        barrier = ctx.world.barrier_begin()
        # One thread for all: what dies while a signal is on its way may swallow its exception.
        thread = threading.Thread(target=interrupts)
        thread.start()
        for _ in range(count):
            with pytest.raises(KeyboardInterrupt):
                waiting.release()
                barrier.wait()
        thread.join()
        assert ctx.world.status() is None

    with_a_silent_peer(body, timeout=600)


def test_ctrl_c_ends_a_gather_and_an_update() -> None:
    def rank_0(ctx: meron.Context, unit: meron.Unit) -> None:
        after(0.3, interrupt)
        with pytest.raises(KeyboardInterrupt):
            unit.gather()
        after(0.3, interrupt)
        with pytest.raises(KeyboardInterrupt), ctx.update([unit]):
            pass

    done = threading.Event()
    failures: list[BaseException] = []

    def make(rank: int) -> tuple[meron.Context, meron.Unit]:
        ctx = meron.open(rank, 2, "local", job="stuck", timeout=20)
        param = ctx.param("w", (100,))
        return ctx, ctx.unit("u", [param])

    def peer() -> None:
        try:
            ctx, unit = make(1)
            with ctx, ctx.update([unit]):
                done.wait()  # what rank 0 waits for is not published
        except meron.GroupError:
            pass  # rank 0 gave its update up
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=peer)
    thread.start()
    ctx, unit = make(0)
    with ctx:
        with ctx.update([unit]):
            pass
        rank_0(ctx, unit)
        done.set()
        thread.join()
    assert not failures


def test_ctrl_c_ends_an_open() -> None:
    timer = after(0.3, interrupt)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        meron.open(0, 2, "local", job="nobody comes", timeout=20)
    assert time.monotonic() - begin < REACTION
    timer.join()


def test_an_interrupted_wait_can_continue() -> None:
    def body(ctx: meron.Context) -> None:
        future = ctx.world.barrier_begin()
        after(0.2, interrupt)
        with pytest.raises(KeyboardInterrupt):
            future.wait()
        assert not future.wait(timeout=0.01)
        assert not future.done()

    with_a_silent_peer(body)


def test_other_signal_handlers_run_during_a_wait() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: seen.append(number))
    try:

        def body(ctx: meron.Context) -> None:
            after(0.2, lambda: signal.raise_signal(signal.SIGUSR1))
            assert not ctx.world.barrier_begin().wait(timeout=1)

        with_a_silent_peer(body)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]


def test_the_library_installs_no_signal_handler() -> None:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with meron.open(0, 1, "self") as ctx:
        ctx.world.barrier()
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers


def test_should_stop_ends_a_wait_and_the_operation_continues() -> None:
    stop = threading.Event()

    def body(ctx: meron.Context) -> None:
        future = ctx.world.barrier_begin()
        after(0.2, stop.set)
        begin = time.monotonic()
        with pytest.raises(meron.CancelledError):
            future.wait()
        assert time.monotonic() - begin < REACTION
        stop.clear()
        assert not future.wait(timeout=0.01)

    with_a_silent_peer(body, should_stop=stop.is_set)


def test_an_exception_of_should_stop_is_raised_by_the_wait() -> None:
    class Enough(Exception):
        pass

    def stop() -> bool:
        raise Enough("for today")

    def body(ctx: meron.Context) -> None:
        with pytest.raises(Enough, match="for today"):
            ctx.world.barrier()

    with_a_silent_peer(body, should_stop=stop)


def test_exceptions_of_should_stop_stay_in_their_thread() -> None:
    def body(ctx: meron.Context) -> None:
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                future.wait()
            except BaseException as error:
                failures.append(error)

        future = ctx.world.barrier_begin()
        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(str(error) for error in failures) == sorted(
            str(thread.ident) for thread in threads
        )

    def stop() -> bool:
        raise RuntimeError(threading.get_ident())

    with_a_silent_peer(body, should_stop=stop)


def test_other_threads_run_while_one_waits() -> None:
    counted = 0

    def body(ctx: meron.Context) -> None:
        nonlocal counted
        if ctx.rank == 1:
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                counted += 1
        ctx.world.barrier()

    ranks.threads(2, body)
    assert counted > 1000


def test_log_messages_reach_a_function_and_a_logger(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[tuple[int, str]] = []

    def opens_late(rank: int, log: object) -> None:
        with meron.open(rank, 2, "local", job="logging", timeout=20, log=log) as ctx:
            ctx.world.barrier()
            with contextlib.suppress(meron.AbortedError):
                ctx.world.abort("to have something logged")

    logger = logging.getLogger("meron.test")
    threads = [
        threading.Thread(target=opens_late, args=(0, lambda *line: lines.append(line))),
        threading.Thread(target=opens_late, args=(1, logger)),
    ]
    with caplog.at_level(logging.DEBUG, "meron.test"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for level, message in lines + [(r.levelno, r.message) for r in caplog.records]:
        assert level in (logging.ERROR, logging.WARNING, logging.INFO)
        assert isinstance(message, str)
        assert message


def test_an_exception_of_log_goes_to_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    from meron._callbacks import log_callback
    from meron._native import ffi, lib

    seen: list[BaseException] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: seen.append(info.exc_value))

    def log(_level: int, message: str) -> None:
        raise ValueError(message)

    callback = log_callback(log)
    callback(ffi.NULL, lib.MERON_LOG_WARNING, ffi.new("char[]", "wörds".encode()), 6)
    assert [str(error) for error in seen] == ["wörds"]


def test_wait_step_continues_an_interrupted_wait_for_a_step() -> None:
    interrupted = threading.Event()
    failures: list[BaseException] = []

    def make(rank: int) -> tuple[meron.Context, meron.Unit, meron.Optimizer]:
        ctx = meron.open(rank, 2, "local", job="a step", timeout=60)
        unit = ctx.unit("u", [ctx.param("w", (100,))])
        with ctx.update([unit]):
            pass
        unit.reduce({unit.params[0]: np.ones(100, np.float32)})
        return ctx, unit, ctx.sgd([unit], lr=0.5)

    def peer() -> None:
        try:
            ctx, unit, optimizer = make(1)
            with ctx:
                interrupted.wait(timeout=60)
                optimizer.step()
                with unit.gather():
                    pass
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=peer, daemon=True)
    thread.start()
    ctx, unit, optimizer = make(0)
    with ctx:
        assert optimizer.wait_step()  # there was no step
        after(0.3, interrupt)
        with pytest.raises(KeyboardInterrupt):
            optimizer.step()
        assert not optimizer.wait_step(timeout=0.01)
        with pytest.raises(meron.StateError, match="Wait for the step first"):
            optimizer.step()
        interrupted.set()
        assert optimizer.wait_step()
        assert optimizer.wait_step()
        assert optimizer.steps == 1
        with unit.gather() as gathered:
            np.testing.assert_array_equal(np.asarray(gathered[unit.params[0]]), np.float32(-0.5))
    thread.join()
    assert not failures
