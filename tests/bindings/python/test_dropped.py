# SPDX-License-Identifier: Apache-2.0
"""Operations that fail after their futures were dropped: a later call raises their errors."""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ranks

import meron


def failing_step(ctx: meron.Context, name: str = "u") -> meron.Future:
    """A step on gradients that are NaN."""
    unit = ctx.units.get(name) or ctx.unit(name, [ctx.param(f"{name}.w", 8)])
    optimizer = ctx.adamw([unit])
    unit.reduce({f"{name}.w": np.full(8, np.nan, np.float32)})
    return optimizer.step_begin()


def test_the_next_call_raises_the_error_of_a_dropped_step_on_all_ranks() -> None:
    def body(ctx: meron.Context) -> None:
        kept = ctx.unit("kept", [ctx.param("v", 8)])
        for number, begin in enumerate(
            (
                lambda: ctx.world.barrier(),
                lambda: kept.gather(),
                lambda: ctx.update([kept]).__enter__(),
                lambda: kept.reduce({"v": np.ones(8)}),
            )
        ):
            failing_step(ctx, f"u{number}")
            with pytest.raises(meron.NonFiniteError, match=r"step .* No call has waited for it"):
                begin()
            ctx.world.barrier()  # once; and the ranks are in step

    ranks.threads(2, body)


def test_a_context_that_is_left_raises_the_error_of_a_dropped_step() -> None:
    with pytest.raises(meron.NonFiniteError), meron.open(0, 1, "self") as ctx:
        failing_step(ctx)
    assert ctx.closed


def test_another_exception_goes_before_that_of_a_dropped_step() -> None:
    with pytest.raises(KeyError), meron.open(0, 1, "self") as ctx:
        failing_step(ctx)
        raise KeyError


def test_close_logs_the_error_of_a_dropped_step(caplog: pytest.LogCaptureFixture) -> None:
    ctx = meron.open(0, 1, "self", log=lambda *_: None)
    failing_step(ctx)
    ctx.close()
    assert [(each.name, each.levelno) for each in caplog.records] == [("meron", logging.ERROR)]
    assert "'u.w'" in caplog.text


def test_errors_that_were_raised_or_that_later_calls_have_are_not_told_again() -> None:
    def body(ctx: meron.Context) -> None:
        future = failing_step(ctx)
        with pytest.raises(meron.NonFiniteError):
            future.wait()
        del future
        ctx.world.barrier()
        pair = ctx.group([0, 1])
        pair.barrier()
        if ctx.rank == 0:
            pair.barrier_begin()
            pair.abort("enough")
        ctx.world.barrier()

    ranks.threads(2, body)


def test_futures_that_succeed_are_dropped_without_a_word(alone: meron.Context) -> None:
    unit = alone.unit("u", [alone.param("w", 8)])
    for _ in range(10):
        unit.reduce_begin({"w": np.ones(8)}, boundary=False)
        alone.world.all_reduce_begin(np.ones(8))
    alone.progress()
    assert not alone._dropped


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("held", [True, False])
def test_a_context_that_is_left_waits_for_its_save_and_raises_the_error(
    tmp_path: Path, held: bool
) -> None:
    ctx = meron.open(0, 1, "self")
    ctx.unit("u", [ctx.param("w", 1 << 16)])
    with small_files(), pytest.raises(meron.NoSpaceError, match=r"Context\.save failed"), ctx:
        future = ctx.save_begin(tmp_path, "a")
        if not held:
            del future
    assert ctx.closed


def test_a_save_that_was_cancelled_and_dropped_raises_nothing(tmp_path: Path) -> None:
    with meron.open(0, 1, "self") as ctx:
        ctx.unit("u", [ctx.param("w", 1 << 20)])
        ctx.save_begin(tmp_path, "a")
        ctx.cancel_save()
        ctx.world.barrier()
