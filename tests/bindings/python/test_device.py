# SPDX-License-Identifier: Apache-2.0
"""Devices, by the emulated one: streams, tiers, gradients from its memory, an allocator."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import meron


class Pool(meron.DeviceAllocator):
    """Memory of the host, which is what the emulated device takes."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.held: dict[int, Any] = {}
        self.most = most

    def allocate(self, size: int, stream: int) -> int | None:
        if size > self.most:
            return None
        memory = np.empty(size + 256, np.uint8)
        pointer = (memory.ctypes.data + 255) // 256 * 256
        self.held[pointer] = memory
        return pointer

    def release(self, pointer: int, size: int, stream: int) -> None:
        del self.held[pointer]


def open_emulated(**options: Any) -> meron.Context:
    return meron.open(0, 1, "self", timeout=20.0, device="emulated", **options)


def make(ctx: meron.Context) -> tuple[meron.Param, meron.Unit]:
    param = ctx.param("w", (3, 4))
    unit = ctx.unit("u", [param])
    with ctx.update([unit]) as update:
        update.write(param, np.arange(12).reshape(3, 4))
    return param, unit


VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_a_stream_waits_and_the_host_need_not() -> None:
    with open_emulated() as ctx:
        assert ctx.device == "emulated"
        param, unit = make(ctx)
        full = unit.gather_begin()
        assert full.wait_stream() and full.wait_stream(0, timeout=1.0)
        np.testing.assert_array_equal(full[param], VALUES)
        up = ctx.stats().device_up_bytes
        assert up >= VALUES.nbytes
        with unit.gather() as other:
            np.testing.assert_array_equal(other[param], VALUES)
            assert other[param].ctypes.data == full[param].ctypes.data
        with unit.gather(tier="host") as other:
            np.testing.assert_array_equal(other[param], VALUES)
            assert other[param].ctypes.data != full[param].ctypes.data
        assert ctx.stats().device_up_bytes == up
        full.release_on_stream()
        full.release_on_stream()
        assert unit.info().leases == 0
        for use in (lambda: full[param], full.wait_stream):
            with pytest.raises(meron.StaleError):
                use()


def test_numpy_takes_it_by_dlpack() -> None:
    with open_emulated() as ctx:
        param, unit = make(ctx)
        full = unit.gather_begin()
        full.wait_stream()
        tensor = full.dlpack(param)
        assert (tensor.shape, tensor.dtype_name) == ((3, 4), "f32")
        assert tensor.pointer == full[param].ctypes.data
        assert tensor.__dlpack_device__() == (1, 0)  # its memory is the host's
        array = np.from_dlpack(tensor)
        full.release_on_stream()
        np.testing.assert_array_equal(array, VALUES)
        assert unit.info().leases == 1


def test_gradients_from_its_memory() -> None:
    with open_emulated() as ctx:
        param, unit = make(ctx)
        with unit.gather() as full:
            future = unit.reduce_begin({param: full[param]})
            assert future.wait()
            np.testing.assert_array_equal(unit.reduced(param), VALUES.ravel())
            unit.discard()
            down = ctx.stats().device_down_bytes
            assert down >= VALUES.nbytes
            array = meron.DeviceArray(full.dlpack(param).pointer, (3, 4), "f32")
            unit.reduce({param: array}, stream=0)
            np.testing.assert_array_equal(unit.reduced(param), VALUES.ravel())
            assert ctx.stats().device_down_bytes == 2 * down
            unit.discard()
            with pytest.raises(meron.ArgumentError, match="shape"):
                unit.reduce({param: meron.DeviceArray(array.pointer, (4, 3))})


def test_gathers_into_its_memory() -> None:
    pool = Pool()
    with open_emulated(allocator=pool) as ctx:
        param, unit = make(ctx)
        other = ctx.param("v", (3, 4))
        unit_of_other = ctx.unit("of v", [other])
        with unit_of_other.gather() as place:  # memory of the device to write to
            into = meron.DeviceArray(place.dlpack(other).pointer, (3, 4))
            with unit.gather(into={param: into}) as full:
                assert full[param] is into
            np.testing.assert_array_equal(place[other], VALUES)
            (flat,) = unit.flats
            whole = meron.DeviceArray(into.pointer, flat.shape)
            with unit.gather(into={flat: whole}) as full:
                part = full[param]
                assert (part.pointer, part.shape) == (into.pointer, (3, 4))
        with pytest.raises(meron.ArgumentError, match="bf16"):
            unit.gather(into={param: meron.DeviceArray(into.pointer, (3, 4), "bf16")})


def test_an_allocator_of_ones_own() -> None:
    pool = Pool()
    with open_emulated(allocator=pool) as ctx:
        param, unit = make(ctx)
        with unit.gather() as full:
            np.testing.assert_array_equal(full[param], VALUES)
            assert any(
                place <= full[param].ctypes.data < place + memory.nbytes
                for place, memory in pool.held.items()
            )
            array = np.from_dlpack(full.dlpack(param))
    assert pool.held  # the tensor outlives the context, and the pool with it
    del array, full
    gc.collect()
    assert not pool.held


def test_an_allocator_that_has_nothing() -> None:
    with open_emulated(allocator=Pool(most=0)) as ctx:
        param, unit = make(ctx)
        with pytest.raises(meron.OutOfMemoryError):
            unit.gather()
        with unit.gather(tier="host") as full:
            np.testing.assert_array_equal(full[param], VALUES)


def test_what_is_refused(alone: meron.Context) -> None:
    for name in ("gpu", "emulated:7", "cuda:x"):
        with pytest.raises(meron.ArgumentError, match=name):
            meron.open(0, 1, "self", device=name)
    with pytest.raises(TypeError, match="DeviceAllocator"):
        meron.open(0, 1, "self", device="emulated", allocator=3)  # type: ignore[arg-type]
    _, unit = make(alone)
    with pytest.raises(meron.ArgumentError, match="tier"):
        unit.gather(tier="moon")
    with unit.gather() as full:
        for call in (full.wait_stream, full.release_on_stream):
            with pytest.raises(meron.ArgumentError, match="device"):
                call()
            with pytest.raises(TypeError, match="stream"):
                call("0")  # type: ignore[arg-type]
            with pytest.raises(meron.ArgumentError, match="stream"):
                call(-1)


class Cuda:
    """An object with the interface of an array on a CUDA device."""

    def __init__(self, **changes: Any) -> None:
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (3, 4), "typestr": "<f4", "data": (0x1000, False), **changes
        }  # fmt: skip


def test_arrays_of_other_frameworks() -> None:
    from meron.device import device_array

    assert device_array(VALUES, 0, "w", "cuda") is None
    found = device_array(Cuda(strides=(16, 4)), 0, "w", "cuda")
    assert found is not None and found.nbytes == 48
    assert (found.pointer, found.shape, found.dtype_name, found.size) == (0x1000, (3, 4), "f32", 12)
    for wrong in (Cuda(strides=(4, 12)), Cuda(typestr="<i4")):
        with pytest.raises(meron.ArgumentError, match="w"):
            device_array(wrong, 0, "w", "cuda")


def test_capsules_of_other_frameworks() -> None:
    from meron._capsule import borrow

    assert borrow(VALUES.__dlpack__(), "w") == (VALUES.ctypes.data, (3, 4), "f32")
    half = VALUES.astype(np.float16)
    assert borrow(half.__dlpack__(max_version=(1, 0)), "w").dtype == "f16"
    with pytest.raises(meron.ArgumentError, match="contiguous"):
        borrow(VALUES.T.__dlpack__(), "w")
    with pytest.raises(meron.ArgumentError, match="elements"):
        borrow(VALUES.astype(np.int32).__dlpack__(), "w")
