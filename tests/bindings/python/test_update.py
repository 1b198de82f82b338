# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
import ranks

import meron


def test_parts_are_written_in_place() -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (10, 10))
        unit = ctx.unit("u", [param])
        with ctx.update([unit]) as update:
            part = update.view(param)
            assert part.shape == (len(param.shard_range),)
            part[:] = np.asarray(param.shard_range)
        with unit.gather() as full:
            np.testing.assert_array_equal(full[param].ravel(), np.arange(100))

    ranks.threads(3, body)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6).reshape(2, 3),
        np.arange(6, dtype=np.float64).reshape(3, 2).T,
        np.arange(6, dtype=np.float16).reshape(2, 3),
        [[True, False, True]] * 2,
        [[0, 1, 2], [3, 4, 5]],
    ],
)
def test_values_of_other_types(alone: meron.Context, value: object) -> None:
    param = alone.param("w", (2, 3))
    unit = alone.unit("u", [param])
    with alone.update([unit]) as update:
        update.write(param, value)  # type: ignore[arg-type]
    with unit.gather() as full:
        np.testing.assert_array_equal(full[param], np.asarray(value))


def test_wrong_values_leave_everything_usable(alone: meron.Context) -> None:
    param = alone.param("w", (2, 3))
    other = alone.param("other", (2, 3))
    unit = alone.unit("u", [param])
    alone.unit("v", [other])
    with alone.update([unit]) as update:
        with pytest.raises(meron.ArgumentError, match="shape"):
            update.write(param, np.zeros((3, 2)))
        with pytest.raises(meron.ArgumentError, match="complex"):
            update.write(param, np.zeros((2, 3), complex))
        with pytest.raises(meron.ArgumentError, match="other"):
            update.write(other, np.zeros((2, 3)))
        with pytest.raises(meron.ArgumentError, match="other"):
            update.view(other)
        update.write(param, np.ones((2, 3)))
    with unit.gather() as full:
        assert (full[param] == 1).all()


def test_elements_that_are_not_written_keep_their_values(alone: meron.Context) -> None:
    one, two = alone.param("one", (3,)), alone.param("two", (3,))
    unit = alone.unit("u", [one, two])
    with alone.update([unit]) as update:
        update.write(one, [1, 1, 1])
        update.write(two, [2, 2, 2])
    with alone.update([unit]) as update:
        update.write(two, [3, 3, 3])
    with unit.gather() as full:
        assert full[one].tolist() == [1, 1, 1]
        assert full[two].tolist() == [3, 3, 3]
    assert unit.info().version == 2


def test_an_exception_before_the_first_write_publishes_unchanged_values() -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (8,))
        unit = ctx.unit("u", [param])
        with pytest.raises(meron.ArgumentError), ctx.update([unit]) as update:
            update.write(param, np.zeros(7))
        with unit.gather() as full:
            assert (full[param] == 0).all()
        assert unit.info().version == 1
        ctx.world.barrier()

    ranks.threads(2, body)


@pytest.mark.parametrize("by_view", [False, True])
def test_an_exception_after_a_write_breaks_the_group(by_view: bool) -> None:
    def body(ctx: meron.Context) -> None:
        params = [ctx.param("w", (8,)), ctx.param("b", (8,))]
        unit = ctx.unit("u", params)
        with ctx.update([unit]) as update:
            for param in params:
                update.write(param, np.ones(8))
        if ctx.rank == 1:
            with pytest.raises(ZeroDivisionError), ctx.update([unit]) as update:
                if by_view:
                    part = update.view(params[0])
                    part[:] = 3
                else:
                    update.write(params[0], np.full(8, 3))
                raise ZeroDivisionError
            if by_view:
                with pytest.raises(ValueError, match="read-only"):
                    part[:] = 4
        with pytest.raises(meron.AbortedError, match=r"rank 1 gave up the update of unit 'u'"):
            if ctx.rank == 0:
                with ctx.update([unit]) as update:
                    for param in params:
                        update.write(param, np.full(8, 3))
            with unit.gather() as full:
                raise AssertionError(f"a version of half its values: {full[params[0]]}")
        assert unit.info().version < 3 - (ctx.rank == 1)

    ranks.threads(2, body)


def test_the_own_error_is_raised_even_if_the_context_is_closed(alone: meron.Context) -> None:
    unit = alone.unit("u", [alone.param("w", (8,))])
    with pytest.raises(ZeroDivisionError), alone.update([unit]):
        alone.close()
        raise ZeroDivisionError


def test_late_writes_are_refused(alone: meron.Context) -> None:
    param = alone.param("w", (4,))
    unit = alone.unit("u", [param])
    with alone.update([unit]) as update:
        part = update.view(param)
        part[:] = 1
    with pytest.raises(ValueError, match="read-only"):
        part[:] = 2
    for use in (
        lambda: update.write(param, np.zeros(4)),
        lambda: update.view(param),
        lambda: update.__exit__(None, None, None),
    ):
        with pytest.raises(meron.StaleError, match="with block"):
            use()


def test_states(alone: meron.Context) -> None:
    unit = alone.unit("u", [alone.param("w", (4,))])
    with unit.gather(), pytest.raises(meron.StateError, match="u"), alone.update([unit]):
        pass
    update = alone.update([unit])
    with update:
        with pytest.raises(meron.StateError), alone.update([unit]):
            pass
        with pytest.raises(meron.StateError, match="open already"):
            update.__enter__()
    with pytest.raises(meron.DuplicateError), alone.update([unit, unit]):
        pass
    with pytest.raises(meron.ArgumentError), alone.update([]):
        pass
    with pytest.raises(TypeError, match="Unit"), alone.update([alone]):  # type: ignore[list-item]
        pass
    with alone.update([unit]):
        pass


def test_an_update_waits_for_readers_on_other_ranks() -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (64,))
        unit = ctx.unit("u", [param])
        for version in range(20):
            with unit.gather() as full:
                seen = full[param].copy()
            assert (seen == version).all()
            with ctx.update([unit]) as update:
                update.write(param, np.full(64, version + 1))

    ranks.threads(3, body)
