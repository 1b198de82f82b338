# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys

import numpy as np
import pytest
from conftest import run_python

import meron
from meron import dtypes


def test_bf16_bits_are_exact_in_float32() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = meron.to_float32(bits)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values.view(np.uint32), bits.astype(np.uint32) << 16)
    back = meron.from_float32(values, "bf16").view(np.uint16)
    finite = ~np.isnan(values)
    np.testing.assert_array_equal(back[finite], bits[finite])
    assert np.isnan(meron.to_float32(back[~finite])).all()


def test_rounding_is_to_nearest_and_ties_to_even() -> None:
    one = 0x3F800000
    cases = {
        one + 0x7FFF: 0x3F80,
        one + 0x8000: 0x3F80,  # a tie: to even, down
        one + 0x8001: 0x3F81,
        one + 0x18000: 0x3F82,  # a tie: to even, up
        0x7F7FFFFF: 0x7F80,  # the largest float32 rounds to infinity
        0xFF800000: 0xFF80,
        0x00000001: 0x0000,
    }
    source = np.array(list(cases), np.uint32).view(np.float32)
    rounded = meron.from_float32(source, "bf16").view(np.uint16)
    assert rounded.tolist() == list(cases.values())


def test_it_agrees_with_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = np.random.default_rng(7).integers(0, 1 << 32, 100_000, np.uint32)
    values = bits.view(np.float32)
    values = values[~np.isnan(values)]
    ours = meron.from_float32(values, "bf16").view(np.uint16)
    theirs = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_shapes_are_kept(shape: tuple[int, ...]) -> None:
    values = np.ones(shape, np.float32)
    for name in ("bf16", "f16", "f32"):
        array = meron.from_float32(values, name)
        assert array.shape == shape
        np.testing.assert_array_equal(meron.to_float32(array), values)
    assert meron.from_float32(values.T, "bf16").shape == values.T.shape


def test_sizes_are_the_librarys() -> None:
    assert dtypes.SIZES == {"f32": 4, "bf16": 2, "f16": 2}
    for name, dtype in dtypes.NUMPY.items():
        assert dtype.itemsize == dtypes.SIZES[name]


def test_without_ml_dtypes_bf16_has_a_type_of_its_own() -> None:
    source = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, meron
with meron.open(0, 1, "self") as ctx:
    param = ctx.param("w", (3,), "bf16")
    unit = ctx.unit("u", [param])
    with ctx.update([unit]) as update:
        update.write(param, meron.from_float32([1, 2, 3], "bf16"))
    with unit.gather() as full:
        array = full[param]
        assert array.dtype == meron.bfloat16 != np.uint16, array.dtype
        assert meron.to_float32(array).tolist() == [1, 2, 3]
        assert array.view(np.uint16).tolist() == [0x3F80, 0x4000, 0x4040]
        try:
            array + array
        except TypeError:
            pass
        else:
            raise AssertionError("NumPy added bits")
    copies = {param: np.empty(3, meron.bfloat16)}
    unit.gather(into=copies).release()
    assert meron.to_float32(copies[param]).tolist() == [1, 2, 3]
    try:
        unit.gather(into={param: np.empty(3, np.uint16)})
    except meron.ArgumentError as error:
        assert "meron.bfloat16" in str(error)
    else:
        raise AssertionError("numbers were taken for bits")
    place = unit.gradient(param, overwrite=True)
    place[...] = meron.from_float32(meron.to_float32(place) + 1, "bf16")
    unit.reduce()
    assert unit.reduced(param).tolist() == [1, 1, 1]
    assert ctx.param("v", 2, meron.bfloat16).dtype_name == "bf16"
    metric = meron.from_float32([1.5], "bf16")
    assert meron.to_float32(ctx.world.all_reduce(metric)).tolist() == [1.5]
"""
    done = run_python(source)
    assert done.returncode == 0, done.stderr


def test_unknown_names() -> None:
    with pytest.raises(meron.ArgumentError, match="f64"):
        meron.from_float32([1.0], "f64")
    assert "meron" in sys.modules
