# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import time

import numpy as np
import pytest
import ranks

import meron

SIZE = 1000
PLANS = ["zero0", "zero1", "zero2", "zero3"]


def make(ctx: meron.Context, count: int = 4) -> list[meron.Unit]:
    units = [ctx.unit(f"u{i}", [ctx.param(f"w{i}", SIZE)]) for i in range(count)]
    with ctx.update(units) as update:
        for i, unit in enumerate(units):
            update.write(unit.params[0], np.full(SIZE, i))
    return units


def run_pass(schedule: meron.Schedule, order: list[int], kind: int = 0) -> None:
    schedule.start_pass(kind)
    for index in order:
        assert schedule.enter(index)
        assert (schedule.view(schedule.units[index].params[0]) == index).all()
        schedule.leave(index)


@pytest.mark.parametrize("plan", PLANS)
def test_second_pass_is_gathered_ahead(plan: str) -> None:
    def body(ctx: meron.Context) -> None:
        schedule = ctx.schedule(make(ctx), persist_elements=0, max_reuse_elements=0)
        order = [0, 1, 2, 3, 2, 1, 0]
        run_pass(schedule, order)
        assert schedule.info().ahead == 0
        run_pass(schedule, order)
        info = schedule.info()
        assert (info.units, info.passes, info.uses) == (4, 2, 14)
        assert info.deviations == info.entered == 0
        assert info.ahead >= 3
        schedule.drop()
        assert schedule.info().live_elements == 0

    ranks.threads(2, body, plan=plan)


def test_small_units_stay_until_they_are_dropped() -> None:
    def body(ctx: meron.Context) -> None:
        units = make(ctx)
        schedule = ctx.schedule(units)
        run_pass(schedule, [0, 1, 2, 3])
        assert schedule.info().live_elements == 4 * SIZE
        with pytest.raises(meron.StateError, match="leased"):
            ctx.update(units).__enter__()
        schedule.drop()
        with ctx.update(units):
            pass

    ranks.threads(2, body)


def test_uses_are_counted(alone: meron.Context) -> None:
    units = make(alone)
    schedule = alone.schedule(units, persist_elements=0)
    param = units[0].params[0]
    schedule.start_pass()
    schedule.enter(0)
    schedule.enter(0)
    schedule.leave(0)
    assert schedule.view(param)[0] == 0
    assert not schedule.view(param).flags.writeable
    with pytest.raises(meron.StateError, match="u0"):
        schedule.start_pass()
    with pytest.raises(meron.StateError, match="u0"):
        schedule.drop()
    schedule.leave(0)
    with pytest.raises(meron.StateError, match="u0"):
        schedule.leave(0)
    with pytest.raises(meron.StateError, match="u0"):
        schedule.view(param)
    assert units[0].info().leases == 0


def test_reset_after_an_exception(alone: meron.Context) -> None:
    units = make(alone)
    schedule = alone.schedule(units)
    schedule.start_pass()
    schedule.enter(1)
    schedule.reset()
    assert schedule.info().entered == schedule.info().live_elements == 0
    run_pass(schedule, [0, 1])


def test_arguments(alone: meron.Context) -> None:
    units = make(alone)
    with pytest.raises(meron.ArgumentError):
        alone.schedule([])
    with pytest.raises(meron.DuplicateError):
        alone.schedule([units[0], units[0]])
    with pytest.raises(meron.ArgumentError, match="prefetch"):
        alone.schedule(units, prefetch_elements=-1)
    schedule = alone.schedule(units[:2])
    assert schedule.index(units[1]) == 1
    with pytest.raises(KeyError):
        schedule.index(units[2])
    with pytest.raises(meron.ArgumentError, match="2 units"):
        schedule.enter(2)
    with pytest.raises(meron.ArgumentError, match="2 units"):
        schedule.leave(2)
    with pytest.raises(meron.ArgumentError, match="kind"):
        schedule.start_pass(16)
    with pytest.raises(meron.ArgumentError, match="w3"):
        schedule.view(units[3].params[0])


def test_release_gives_everything_back(alone: meron.Context) -> None:
    units = make(alone)
    schedule = alone.schedule(units)
    schedule.enter(0)
    schedule.release()
    schedule.release()
    assert units[0].info().leases == 0
    for use in (schedule.enter, schedule.leave):
        with pytest.raises(meron.StaleError):
            use(0)
    with pytest.raises(meron.StaleError):
        schedule.drop()
    another = alone.schedule(units)
    another.enter(0)
    del another
    gc.collect()
    assert units[0].info().leases == 0


def test_a_closed_context() -> None:
    with meron.open(0, 1, "self") as ctx:
        schedule = ctx.schedule(make(ctx))
        schedule.enter(0)
    for use in (lambda: schedule.enter(0), lambda: schedule.leave(0), schedule.info):
        with pytest.raises(meron.ClosedError):
            use()


def test_ranks_that_differ_get_an_error() -> None:
    def body(ctx: meron.Context) -> None:
        schedule = ctx.schedule(make(ctx), persist_elements=0)
        with pytest.raises(meron.MismatchError, match=r"'u1'.*'u2'|'u2'.*'u1'"):
            run_pass(schedule, [0, 1 + ctx.rank, 3])
            ctx.world.barrier()

    ranks.threads(2, body)


def test_a_timeout_leaves_the_unit_not_entered() -> None:
    def body(ctx: meron.Context) -> None:
        units = make(ctx)
        schedule = ctx.schedule(units, persist_elements=0)
        ctx.world.barrier()
        if ctx.rank == 1:
            with ctx.update(units[:1]) as update:
                time.sleep(0.1)
                update.write(units[0].params[0], np.full(SIZE, 0))
        else:
            update = ctx.update(units[:1])
            with update:
                pass
        schedule.start_pass()
        tries = 1
        while not schedule.enter(0, timeout=0.01):
            assert schedule.info().entered == 0
            tries += 1
        assert schedule.info().uses == 1
        assert ctx.rank == 1 or tries > 1
        schedule.leave(0)

    ranks.threads(2, body)
