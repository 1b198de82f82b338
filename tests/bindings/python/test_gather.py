# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest
import ranks

import meron
from meron._native import ffi, lib, new

PLANS = ["zero0", "zero1", "zero2", "zero3"]
SHAPES = [(100, 7), (13,), (), (0, 5), (1,)]


def fill(ctx: meron.Context, dtype: str = "f32") -> tuple[meron.Unit, list[np.ndarray]]:
    """A unit of params of all SHAPES, and their values."""
    params = [ctx.param(f"w{i}", shape, dtype) for i, shape in enumerate(SHAPES)]
    unit = ctx.unit("u", params)
    values = [np.arange(param.size).reshape(param.shape) % 97 for param in params]
    with ctx.update([unit]) as update:
        for param, value in zip(params, values):
            update.write(param, value)
    return unit, values


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("mode", ["view", "copy"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_every_rank_has_the_whole(plan: str, mode: str, dtype: str) -> None:
    def body(ctx: meron.Context) -> None:
        unit, values = fill(ctx, dtype)
        with unit.gather(mode) as full:
            for param, value in zip(unit.params, values):
                array = full[param]
                assert array.shape == param.shape
                assert array.flags.writeable == (mode == "copy")
                np.testing.assert_array_equal(meron.to_float32(array), value)

    ranks.threads(3, body, plan=plan)


def test_into_the_callers_arrays() -> None:
    def body(ctx: meron.Context) -> None:
        unit, values = fill(ctx)
        wanted = unit.params[:2]
        into = {param: np.empty(param.shape, np.float32) for param in wanted}
        with unit.gather(into=into) as full:
            for param, value in zip(wanted, values):
                assert full[param] is into[param]
                np.testing.assert_array_equal(into[param], value)
            with pytest.raises(meron.ArgumentError, match="w2"):
                full[unit.params[2]]

    ranks.threads(2, body)


def fill_flats(ctx: meron.Context) -> tuple[meron.Unit, dict[str, np.ndarray[Any, Any]]]:
    """A unit of three flats, and the values of its params."""
    params = [
        ctx.param("bias", (3,)),
        ctx.param("half", (2, 5), "bf16"),
        ctx.param("ids", (4,), frozen=True),
        ctx.param("weight", (4, 7)),
        ctx.param("empty", (0, 2), "bf16"),
    ]
    values = {
        param.name: np.arange(param.size, dtype=np.float32).reshape(param.shape) + number
        for number, param in enumerate(params)
    }
    unit = ctx.unit("u", params)
    with ctx.update([unit]) as update:
        for param in params:
            update.write(param, values[param.name])
    return unit, values


def test_flats_tell_their_layout(alone: meron.Context) -> None:
    unit, _ = fill_flats(alone)
    bias, half, ids, weight, empty = unit.params
    trained, halves, frozen = unit.flats
    assert [flat.dtype_name for flat in unit.flats] == ["f32", "bf16", "f32"]
    assert [flat.shape for flat in unit.flats] == [(64,), (32,), (32,)]
    assert [flat.frozen for flat in unit.flats] == [False, False, True]
    assert [flat.index for flat in unit.flats] == [0, 1, 2]
    assert trained.ranges == {bias: range(3), weight: range(32, 60)}
    assert halves.ranges == {half: range(10), empty: range(32, 32)}
    assert frozen.ranges == {ids: range(4)}
    assert repr(trained) == "<meron.Flat 'flat 0 of u': f32 (64,), 2 params>"


@pytest.mark.parametrize("plan", ["zero0", "zero3"])
def test_into_flats_of_the_callers(plan: str) -> None:
    def body(ctx: meron.Context) -> None:
        unit, values = fill_flats(ctx)
        into = {flat: np.full(flat.shape, -1, flat.dtype) for flat in unit.flats}
        with unit.gather(into=into) as full:
            for flat, array in into.items():
                for param, place in flat.ranges.items():
                    part = full[param]
                    assert part.shape == param.shape
                    assert part.size == 0 or np.shares_memory(part, array)
                    np.testing.assert_array_equal(meron.to_float32(part), values[param.name])
                    np.testing.assert_array_equal(
                        meron.to_float32(array[place.start : place.stop]),
                        values[param.name].ravel(),
                    )
        assert unit.info().leases == 0

    ranks.threads(2, body, plan=plan)


def test_flats_and_params_mix(alone: meron.Context) -> None:
    unit, values = fill_flats(alone)
    bias, half, ids, weight, _ = unit.params
    into: dict[meron.Param | meron.Flat, Any] = {
        unit.flats[0]: np.empty(64, np.float32),
        ids: np.empty(4, np.float32),
    }
    with unit.gather(into=into) as full:
        np.testing.assert_array_equal(full[weight], values["weight"])
        assert full[ids] is into[ids]
        with pytest.raises(meron.ArgumentError, match="half"):
            full[half]
    into[bias] = np.empty(3, np.float32)
    with pytest.raises(meron.DuplicateError, match=r"'bias'.*flat 0 of unit 'u'"):
        unit.gather(into=into)


def test_wrong_arrays_for_a_flat(alone: meron.Context) -> None:
    unit, _ = fill_flats(alone)
    flat = unit.flats[0]
    for array in (np.zeros(63, np.float32), np.zeros(64), np.zeros((64, 1), np.float32)):
        with pytest.raises(meron.ArgumentError, match="flat 0 of u is float32 of shape"):
            unit.gather(into={flat: array})
    with pytest.raises(meron.ArgumentError, match="not contiguous"):
        unit.gather(into={flat: np.zeros(128, np.float32)[::2]})
    other = alone.unit("v", [alone.param("other", (3,))])
    with pytest.raises(meron.ArgumentError, match=r"'u'.*not gathered"):
        other.gather(into={flat: np.zeros(64, np.float32)})
    with pytest.raises(meron.ArgumentError, match="has no param 'flat'"):
        unit.gather(into={"flat": np.zeros(64, np.float32)})
    assert unit.info().leases == 0


def test_modes_may_differ_between_ranks() -> None:
    def body(ctx: meron.Context) -> None:
        unit, values = fill(ctx)
        with unit.gather("copy" if ctx.rank else "view") as full:
            np.testing.assert_array_equal(full[unit.params[0]], values[0])

    ranks.threads(2, body)


def test_a_view_is_the_librarys_memory(alone: meron.Context) -> None:
    unit, _ = fill(alone)
    param = unit.params[0]
    with unit.gather() as one, unit.gather() as two:
        view = new("meron_view *")
        assert lib.meron_gather_view(view, one._handle, param._handle, ffi.NULL) == 0
        address = int(ffi.cast("uintptr_t", view.data))
        array = one[param]
        assert array.ctypes.data == address == two[param].ctypes.data
        assert not array.flags.owndata
        assert array.base is not None


def test_ranks_read_the_same_memory() -> None:
    """Under zero3 a gather makes no copy: the views of all ranks have one address."""

    def body(ctx: meron.Context) -> int:
        unit, _ = fill(ctx)
        with unit.gather() as full:
            address = int(full[unit.params[0]].ctypes.data)
            ctx.world.barrier()
        return address

    assert len(set(ranks.threads(2, body))) == 1


def test_a_copy_is_the_callers_and_outlives_the_gather(alone: meron.Context) -> None:
    unit, values = fill(alone)
    param = unit.params[0]
    with unit.gather("copy") as full:
        array = full[param]
    array += 1
    assert full[param] is array
    with unit.gather() as full:
        np.testing.assert_array_equal(full[param], values[0])


def test_a_view_cannot_be_written(alone: meron.Context) -> None:
    unit, _ = fill(alone)
    with unit.gather() as full:
        array = full[unit.params[0]]
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_after_the_release(alone: meron.Context) -> None:
    unit, _ = fill(alone)
    param = unit.params[0]
    with unit.gather() as full:
        pass
    for use in (
        lambda: full[param],
        lambda: full.dlpack(param),
        lambda: full.dlpack(param).__dlpack__(max_version=(1, 0)),
    ):
        with pytest.raises(meron.StaleError, match="released"):
            use()
    full.release()
    given_up = unit.gather_begin()
    given_up.release()
    for use in (given_up.wait, given_up.done, lambda: given_up[param]):
        with pytest.raises(meron.StaleError, match="released"):
            use()


def test_an_array_keeps_its_gather(alone: meron.Context) -> None:
    unit, values = fill(alone)
    param = unit.params[0]
    array = unit.gather()[param][1:]
    gc.collect()
    assert unit.info().leases == 1
    with pytest.raises(meron.StateError, match="'u'"), alone.update([unit]):
        pass
    np.testing.assert_array_equal(array, values[0][1:])
    del array
    gc.collect()
    assert unit.info().leases == 0
    with alone.update([unit]):
        pass


def test_asynchronous() -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (1000,))
        unit = ctx.unit("u", [param])
        with ctx.update([unit]) as update:
            update.write(param, np.arange(1000))
            if ctx.rank == 1:
                time.sleep(0.2)  # what it owns is published late
        gather = unit.gather_begin()
        if ctx.rank == 0:
            with pytest.raises(meron.StateError, match="not full"):
                gather[param]
            assert not gather.wait(timeout=0.01)
        while not gather.done():
            time.sleep(0.001)
        assert gather.wait(0)
        np.testing.assert_array_equal(gather[param], np.arange(1000))
        gather.release()

    ranks.threads(2, body)


def test_several_units_at_once(alone: meron.Context) -> None:
    params = [alone.param(f"w{i}", (i + 1,)) for i in range(3)]
    units = [alone.unit(f"u{i}", [param]) for i, param in enumerate(params)]
    with alone.gather(units) as full:
        assert [full[param].shape for param in params] == [(1,), (2,), (3,)]
        assert [unit.info().leases for unit in units] == [1, 1, 1]
    with alone.gather(units, "copy") as full:
        assert [full[param].shape for param in params] == [(1,), (2,), (3,)]
    with pytest.raises(meron.DuplicateError):
        alone.gather([units[0], units[0]])
    with pytest.raises(meron.ArgumentError):
        alone.gather([])
    with pytest.raises(TypeError, match="Unit"):
        alone.gather(params)  # type: ignore[arg-type]


def test_wrong_arguments(alone: meron.Context) -> None:
    unit, _ = fill(alone)
    param = unit.params[0]
    other = alone.param("other", (3,))
    alone.unit("v", [other])
    with pytest.raises(meron.ArgumentError, match="sideways"):
        unit.gather("sideways")
    with pytest.raises(meron.ArgumentError, match="copy"):
        unit.gather("copy", into={})
    for array in (
        np.zeros((7, 100), np.float32),
        np.zeros((100, 7)),
        np.zeros((7, 100), np.float32).T,
    ):
        with pytest.raises(meron.ArgumentError, match="w0"):
            unit.gather(into={param: array})
    with pytest.raises(meron.ArgumentError):
        unit.gather(into={other: np.zeros(3, np.float32)})
    with unit.gather() as full, pytest.raises(meron.ArgumentError, match="other"):
        full[other]
    assert unit.info().leases == 0


def test_a_gather_in_an_update(alone: meron.Context) -> None:
    unit, _ = fill(alone)
    with alone.update([unit]), pytest.raises(meron.StateError):
        unit.gather()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_nothing_makes_a_gathered_view_writable(alone: meron.Context, dtype: str) -> None:
    unit, _ = fill(alone, dtype)
    with unit.gather() as full:
        view = full[unit.params[0]]
        inner = view
        while isinstance(inner.base, np.ndarray):
            inner = inner.base
        arrays = [
            view,
            view[1:],
            view.view(np.uint8),
            inner,
            np.asarray(view),
            np.asarray(inner.base),
        ]
        arrays += [view.T, view.reshape(-1), np.broadcast_to(view, (2, *view.shape))]
        if dtype == "f32":  # NumPy has no buffers and no DLPack of bfloat16
            arrays += [np.frombuffer(view.data, np.float32)]
            arrays += [np.from_dlpack(full.dlpack(unit.params[0]))]
            with pytest.raises(TypeError):
                memoryview(view).cast("B")[0] = 1
            with pytest.raises(BufferError):
                np.from_dlpack(view).__dlpack__()  # of a version that knows no read-only memory
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 2
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.setflags(write=True)
