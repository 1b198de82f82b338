# SPDX-License-Identifier: Apache-2.0
"""Callbacks: their functions, their lifetime, and failures that the user has not seen."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import meron

RULE = "which may only look and release"


class Asked:
    """A should_stop that runs `ask` once, when a call has begun to wait."""

    def __init__(self) -> None:
        self.ask: Callable[[], object] | None = None
        self.asked = threading.Event()

    def __call__(self) -> bool:
        ask, self.ask = self.ask, None
        if ask is not None:
            try:
                ask()
            finally:
                self.asked.set()
        return False


def while_rank_0_waits(ask: Callable[[meron.Context], object]) -> None:
    """Runs `ask` in should_stop, while rank 0 waits for a barrier that rank 1 joins later."""
    asked = Asked()

    def rank(number: int) -> None:
        options = {"should_stop": asked} if number == 0 else {}
        with meron.open(number, 2, "local", job="asked", timeout=20, **options) as ctx:
            ctx.world.barrier()
            if number == 0:
                asked.ask = lambda: ask(ctx)
            else:
                assert asked.asked.wait(10)
            ctx.world.barrier()
            ctx.world.barrier()
            assert ctx.world.status() is None, "the group is whole"

    peer = threading.Thread(target=rank, args=(1,))
    peer.start()
    try:
        rank(0)
    finally:
        asked.asked.set()
        peer.join()


def test_should_stop_may_not_begin_or_wait() -> None:
    calls: dict[str, Callable[[meron.Context], object]] = {
        "barrier_begin": lambda ctx: ctx.world.barrier_begin(),
        "barrier": lambda ctx: ctx.world.barrier(),
        "param": lambda ctx: ctx.param("new", 4),
        "all_reduce": lambda ctx: ctx.world.all_reduce(np.zeros(4, np.float32)),
        "group": lambda ctx: ctx.group([0, 1]),
        "progress": lambda ctx: ctx.progress(),
        "open": lambda ctx: meron.open(0, 1, "self"),
    }
    refused: dict[str, str] = {}

    def ask(ctx: meron.Context) -> None:
        for name, call in calls.items():
            try:
                call(ctx)
            except meron.StateError as error:
                refused[name] = str(error)

    while_rank_0_waits(ask)
    assert refused.keys() == calls.keys()
    for name, text in refused.items():
        assert f"from the should_stop callback, {RULE}" in text, name


def test_should_stop_may_look() -> None:
    seen: list[object] = []

    def ask(ctx: meron.Context) -> None:
        seen.extend([ctx.stats().param_bytes, ctx.flight_record(), ctx.world.status()])

    while_rank_0_waits(ask)
    assert len(seen) == 3


def test_log_may_not_begin() -> None:
    refused: list[str] = []

    def log(_level: int, _message: str) -> None:
        try:
            meron.open(0, 1, "self")
        except meron.StateError as error:
            refused.append(str(error))

    with meron.open(0, 1, "self", plan="mics(1)", log=log):
        pass
    assert refused
    assert f"from the log callback, {RULE}" in refused[0]


def test_close_waits_for_should_stop() -> None:
    inside, left = threading.Event(), threading.Event()

    def stop() -> bool:
        if not inside.is_set():
            inside.set()
            time.sleep(0.5)
            left.set()
        return False

    done = threading.Event()

    def silent() -> None:
        with meron.open(1, 2, "local", job="closing", timeout=20):
            done.wait()

    peer = threading.Thread(target=silent)
    peer.start()
    try:
        ctx = meron.open(0, 2, "local", job="closing", timeout=20, should_stop=stop)
        future = ctx.world.barrier_begin()

        def wait() -> None:
            with pytest.raises((meron.ClosedError, meron.StaleError)):
                future.wait()

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert inside.wait(10)
        ctx.close()
        assert left.is_set(), "close returned while should_stop was running"
        waiter.join()
    finally:
        done.set()
        peer.join()


def failing_step(ctx: meron.Context) -> meron.Future:
    weight = ctx.param("w", 8)
    unit = ctx.unit("u", [weight])
    optimizer = ctx.adamw([unit])
    unit.reduce_begin({weight: np.full(8, np.nan, np.float32)})
    return optimizer.step_begin()


def test_a_step_whose_error_was_raised_is_not_logged() -> None:
    lines: list[tuple[int, str]] = []
    with meron.open(0, 1, "self", log=lambda level, text: lines.append((level, text))) as ctx:
        with pytest.raises(meron.NonFiniteError):
            failing_step(ctx).wait()
        ctx.world.barrier()
    assert [text for level, text in lines if level == logging.ERROR] == []


def test_without_log_the_logger_meron_gets_the_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = meron.open(0, 1, "self")
    ctx.save(tmp_path, "a")
    saving = ctx.save_begin(tmp_path, "a")
    ctx.close()
    assert [(each.name, each.levelno) for each in caplog.records] == [("meron", logging.ERROR)]
    assert "its last save has failed" in caplog.text
    del saving


def test_without_log_and_handlers_the_lines_go_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("meron")
    monkeypatch.setattr(logger, "propagate", False)
    assert not logger.hasHandlers()
    ctx = meron.open(0, 1, "self")
    ctx.save(tmp_path, "a")
    saving = ctx.save_begin(tmp_path, "a")
    ctx.close()
    assert "meron: the context is closed, and its last save has failed" in capfd.readouterr().err
    del saving


def test_the_name_of_a_dropped_param_is_free() -> None:
    with meron.open(0, 1, "self") as ctx:
        for size in (4, 5):
            param = ctx.param("again", size)
            del param
        ctx.unit("u", [ctx.param("again", 6)])
