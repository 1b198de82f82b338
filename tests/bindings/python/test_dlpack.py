# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

import meron
from meron._capsule import borrow

capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
capsule_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]


def make(ctx: meron.Context, shape: tuple[int, ...], dtype: str = "f32") -> meron.Unit:
    param = ctx.param("w", shape, dtype)
    unit = ctx.unit("u", [param])
    with ctx.update([unit]) as update:
        update.write(param, np.arange(param.size).reshape(shape))
    return unit


@pytest.mark.parametrize("shape", [(), (5,), (3, 4, 2), (0, 3)])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_numpy_takes_it_without_a_copy(
    alone: meron.Context, shape: tuple[int, ...], dtype: str
) -> None:
    unit = make(alone, shape, dtype)
    (param,) = unit.params
    with unit.gather() as full:
        array = np.from_dlpack(full.dlpack(param))
        np.testing.assert_array_equal(array, full[param])
        assert array.dtype == full[param].dtype
        assert array.shape == shape
        assert not array.flags.writeable
        if param.size:
            assert array.ctypes.data == full[param].ctypes.data


def test_a_tensor_has_a_lease_of_its_own(alone: meron.Context) -> None:
    unit = make(alone, (4,))
    (param,) = unit.params
    with unit.gather() as full:
        array = np.from_dlpack(full.dlpack(param))
        assert unit.info().leases == 2
    assert unit.info().leases == 1
    assert array.tolist() == [0, 1, 2, 3]
    with pytest.raises(meron.StateError, match="u"), alone.update([unit]):
        pass
    del array
    gc.collect()
    assert unit.info().leases == 0


def test_an_unused_capsule_releases_its_lease(alone: meron.Context) -> None:
    unit = make(alone, (4,))
    with unit.gather() as full:
        for _ in range(1000):
            capsule = full.dlpack(unit.params[0]).__dlpack__(max_version=(1, 0))
        assert capsule_is_valid(capsule, b"dltensor_versioned")
        assert unit.info().leases == 2
        del capsule
        assert unit.info().leases == 1


def test_the_device_is_the_cpu(alone: meron.Context) -> None:
    unit = make(alone, (4,))
    with unit.gather() as full:
        tensor = full.dlpack(unit.params[0])
        assert tensor.__dlpack_device__() == (1, 0)
        assert tensor.__dlpack__(max_version=(1, 3), dl_device=(1, 0)) is not None


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"max_version": (0, 8)},
        {"max_version": (1, 0), "stream": 1},
        {"max_version": (1, 0), "dl_device": (2, 0)},
    ],
)
def test_unsupported_requests_are_buffer_errors(
    alone: meron.Context, request_: dict[str, object]
) -> None:
    unit = make(alone, (4,))
    with unit.gather() as full, pytest.raises(BufferError):
        full.dlpack(unit.params[0]).__dlpack__(**request_)  # type: ignore[arg-type]
    assert unit.info().leases == 0


def test_own_arrays_go_by_their_own_protocol(alone: meron.Context) -> None:
    unit = make(alone, (4,))
    with unit.gather("copy") as full:
        with pytest.raises(meron.UnsupportedError):
            np.from_dlpack(full.dlpack(unit.params[0]))
        assert np.from_dlpack(full[unit.params[0]]).tolist() == [0, 1, 2, 3]


def test_tensors_may_die_after_the_context() -> None:
    for order in range(2):
        ctx = meron.open(0, 1, "self")
        unit = make(ctx, (4,))
        gather = unit.gather()
        array = np.from_dlpack(gather.dlpack(unit.params[0]))
        capsule = gather.dlpack(unit.params[0]).__dlpack__(max_version=(1, 0))
        if order:
            gather.release()
        ctx.close()
        del ctx, unit, gather
        gc.collect()
        del array, capsule
        gc.collect()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_a_copy_may_be_written(alone: meron.Context, dtype: meron.dtypes.DTypeName) -> None:
    unit = alone.unit("u", [alone.param("w", (2, 2), dtype)])
    with alone.update([unit]) as update:
        update.write("w", np.arange(4).reshape(2, 2))
    full = unit.gather()
    capsule = full.dlpack("w").__dlpack__(max_version=(1, 0), copy=True)
    assert borrow(capsule, "w")[1:] == ((2, 2), dtype)
    if dtype != "bf16":  # which NumPy does not import
        copy = np.from_dlpack(full.dlpack("w"), copy=True)
        copy[:] = 9
        np.testing.assert_array_equal(full["w"], np.arange(4).reshape(2, 2))
        assert unit.info().leases == 1
    unit.reduce({"w": np.ones((2, 2))})
    reduced = np.from_dlpack(unit.reduced_dlpack("w"), copy=True)
    reduced[:] = 9
    assert unit.reduced("w").tolist() == [1] * 4
    unit.discard()
