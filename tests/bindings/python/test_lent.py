# SPDX-License-Identifier: Apache-2.0
"""Lent arrays, and their slices, reshapes, tensors and buffers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranks
import torch

import meron

DERIVED: dict[str, Callable[[Any], Any]] = {
    "slice": lambda array: array[1:],
    "reshape": lambda array: array.reshape(-1, 1),
    "bits": lambda array: array.view(np.uint32),
    "transpose": lambda array: array.T[::-1],
    "row": lambda array: array[:1],
    "of the base": lambda array: array.base[:],
    "memoryview of a slice": lambda array: memoryview(array[1:]),
    "tensor of a slice": lambda array: torch.from_numpy(array[:]),
    "dlpack of a slice": lambda array: np.from_dlpack(array[:]),
    "iterator of a slice": lambda array: array[:].flat,
}


def make(ctx: meron.Context, name: str = "w", dtype: str = "f32") -> tuple[meron.Param, meron.Unit]:
    param = ctx.param(name, (8,), dtype)
    return param, ctx.unit(f"unit of {name}", [param])


def values(unit: meron.Unit, param: meron.Param) -> list[float]:
    with unit.gather() as full:
        return meron.to_float32(full[param]).tolist()


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
def test_nothing_is_published_while_a_derived_array_lives(
    alone: meron.Context, derive: Callable[[Any], Any], kept: bool
) -> None:
    param, unit = make(alone)
    with (
        pytest.raises(meron.StateError, match=r"derived from update\.view\('w'\) is still alive"),
        alone.update([unit]) as update,
    ):
        array = update.view(param)
        array[:] = 3
        late = derive(array)
        if not kept:
            del array
    assert (unit.info().state, unit.info().version) == ("updating", 0)
    del late
    update.publish()
    assert values(unit, param) == [3] * 8
    assert unit.info().version == 1


@pytest.mark.parametrize("plan", ["zero1", "zero3"])
def test_no_rank_sees_a_late_write_to_published_values(plan: str) -> None:
    def body(ctx: meron.Context) -> None:
        param, unit = make(ctx)
        update = ctx.update([unit])
        with pytest.raises(meron.StateError, match="delete it"), update:
            array = update.view(param)
            late = array[:]
            array[:] = 2
        late[:] = 3
        del late
        update.publish()
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 9
        assert values(unit, param) == [3] * 8
        ctx.world.barrier()

    ranks.threads(2, body, plan=plan)


def test_an_update_that_is_dropped_unpublished_names_its_rank() -> None:
    def body(ctx: meron.Context) -> None:
        param, unit = make(ctx)
        if ctx.rank == 0:
            update = ctx.update([unit])
            try:
                with update:
                    late = update.view(param)[:]
            except meron.StateError:
                late[:] = 9
            del update, late
        else:
            with ctx.update([unit]) as update:
                update.write(param, np.ones(8))
        with pytest.raises(meron.AbortedError, match="rank 0 gave up the update"):
            values(unit, param)

    ranks.threads(2, body)


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
def test_no_reduction_begins_while_a_derived_array_lives(
    alone: meron.Context, derive: Callable[[Any], Any]
) -> None:
    param, unit = make(alone)
    array = unit.gradient(param)
    array[:] = 1
    late = derive(array)
    with pytest.raises(meron.StateError, match=r"unit\.gradient\('w'\).*copy what you need"):
        unit.reduce()
    del late
    unit.reduce()
    assert unit.reduced(param).tolist() == [1] * 8


@pytest.mark.parametrize("plan", ["zero1", "zero3"])
def test_a_late_write_never_reaches_a_running_reduction(plan: str) -> None:
    def body(ctx: meron.Context) -> None:
        param, unit = make(ctx)
        optimizer = ctx.sgd([unit], lr=1.0)
        late = unit.gradient(param)[:]
        late[:] = 1
        with pytest.raises(meron.StateError, match="'w'"):
            unit.reduce()
        del late
        unit.reduce()
        optimizer.step()
        assert values(unit, param) == [-1] * 8
        ctx.world.barrier()

    ranks.threads(2, body, plan=plan)


@pytest.mark.parametrize("end", ["step", "consume", "discard"])
def test_a_reduced_gradient_is_returned_before_it_ends(alone: meron.Context, end: str) -> None:
    param, unit = make(alone)
    optimizer = alone.sgd([unit], lr=1.0)
    unit.reduce({param: np.ones(8)})
    array = unit.reduced(param)
    late = array[2:]
    call = optimizer.step if end == "step" else getattr(unit, end)
    with pytest.raises(meron.StateError, match=r"unit\.reduced\('w'\)"):
        call()
    assert unit.info().reduced
    late *= 2
    del late
    call()
    assert not array.flags.writeable
    assert not unit.info().reduced


def test_no_step_is_taken_while_an_array_derived_from_a_state_lives(alone: meron.Context) -> None:
    param, unit = make(alone)
    optimizer = alone.adamw([unit])
    unit.reduce({param: np.ones(8)})
    array = optimizer.state(param, "exp_avg")
    late = array[:1]
    with pytest.raises(meron.StateError, match=r"optimizer\.state\('w', 'exp_avg'\)"):
        optimizer.step()
    assert optimizer.steps == 0
    del late
    optimizer.step()
    assert optimizer.steps == 1


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_no_flag_makes_a_returned_array_writable(alone: meron.Context, dtype: str) -> None:
    param, unit = make(alone, dtype=dtype)
    with alone.update([unit]) as update:
        array = update.view(param)
    for each in (array, array.base, array[:]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            each.flags.writeable = True


def test_a_scalar_is_counted_too(alone: meron.Context) -> None:
    param = alone.param("scalar", ())
    unit = alone.unit("u", [param])
    array = unit.gradient(param)
    late = array.reshape(1)
    with pytest.raises(meron.StateError, match="'scalar'"):
        unit.reduce()
    late[0] = 2
    del late
    unit.reduce()
    assert unit.reduced(param).tolist() == [2]


def test_variables_lists_and_loops_are_no_derived_arrays(alone: meron.Context) -> None:
    param, unit = make(alone)
    arrays = [unit.gradient(each) for each in unit.params]
    both = list(zip(unit.params, arrays))
    for array in arrays:
        array += 1
        array[2:] *= 2
        array.reshape(2, 4)[0] += 1
    unit.reduce()
    assert unit.reduced(param).sum() == 18
    assert not both[0][1].flags.writeable


@pytest.mark.parametrize("kind", ["update", "slice", "gathered", "gradient", "reduced"])
def test_a_unit_is_not_destroyed_while_an_array_shows_it(alone: meron.Context, kind: str) -> None:
    param, unit = make(alone)
    array: Any
    if kind in ("update", "slice"):
        with alone.update([unit]) as update:
            array = update.view(param)
        array = array[:] if kind == "slice" else array
    elif kind == "gathered":
        full = unit.gather()
        array = full[param]
        full.release()
    else:
        array = unit.gradient(param)
        unit.reduce()
        array = unit.reduced(param) if kind == "reduced" else array
        unit.discard()
    with pytest.raises(meron.StateError, match=r"unit 'unit of w'.*1 array"):
        unit.destroy()
    del array
    unit.destroy()


def test_the_gradient_of_another_unit_is_refused(alone: meron.Context) -> None:
    param, unit = make(alone)
    other, _other_unit = make(alone, "other")
    for ask in (unit.gradient, unit.reduced):
        with pytest.raises(meron.ArgumentError, match=r"other.*is in another unit"):
            ask(other)
    unit.gradient(param)[:] = 1


def test_an_array_of_a_state_keeps_its_optimizer(alone: meron.Context) -> None:
    param, unit = make(alone)
    optimizer = alone.adamw([unit])
    alive = weakref.ref(optimizer)
    array = optimizer.state(param, "exp_avg")
    del optimizer
    assert alive() is not None
    array[:] = 1
    del array
    assert alive() is None
