# SPDX-License-Identifier: Apache-2.0
"""Element types: names ("f32", "bf16", "f16"), NumPy's types, and conversion of bf16.

NumPy has no bfloat16. When the package `ml_dtypes` is installed, bf16 tensors have its
`bfloat16`; otherwise they are arrays of uint16 that hold the bits, and `to_float32` and
`from_float32` convert.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from meron import errors
from meron._native import lib

Array = npt.NDArray[Any]

try:
    import ml_dtypes

    BFLOAT16: np.dtype[Any] | None = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BFLOAT16 = None

CODES = {"f32": lib.MERON_F32, "bf16": lib.MERON_BF16, "f16": lib.MERON_F16}
NAMES = {code: name for name, code in CODES.items()}
SIZES = {name: lib.meron_dtype_size(code) for name, code in CODES.items()}
# The types of the arrays that the library's memory is shown as.
NUMPY: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "bf16": BFLOAT16 if BFLOAT16 is not None else np.dtype(np.uint16),
    "f16": np.dtype(np.float16),
}
ALIASES = {
    **{name: name for name in CODES},
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
}


def dtype_name(dtype: Any) -> str:
    """ "f32", "bf16" or "f16" for such a name, NumPy's name of it, or a NumPy type."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name not in ALIASES:
        raise errors.argument(f"unknown dtype {dtype!r}: f32, bf16 and f16 are known")
    return ALIASES[name]


def code_of_array(array: Array) -> int | None:
    """The library's code for an array's element type, None where it has none.

    uint16 counts as the bits of bf16 only if there is no bfloat16 type.
    """
    for name, dtype in NUMPY.items():
        if array.dtype == dtype:
            return int(CODES[name])
    return None


def as_source(value: npt.ArrayLike, shape: tuple[int, ...], name: str) -> tuple[Array, int]:
    """`value` as a contiguous array that the library can read, and its dtype's code.

    Types of f32, bf16 and f16 pass as they are; other numbers are converted to f32. The shape must
    be the tensor's.
    """
    array = np.asarray(value)
    require_shape(array.shape, shape, name)
    code = code_of_array(array)
    if code is None:
        if array.dtype.kind not in "fiub":
            raise errors.argument(
                f"{name}: an array of {array.dtype} holds no real numbers", subject=name
            )
        array, code = array.astype(np.float32), int(lib.MERON_F32)
    return np.ascontiguousarray(array).reshape(shape), code


def require_shape(found: tuple[int, ...], shape: tuple[int, ...], name: str) -> None:
    """ArgumentError unless an array has the tensor's shape."""
    if found != shape:
        raise errors.argument(
            f"{name} has shape {shape}, the array has {found}",
            subject=name,
            advice="Reshape the array to the tensor's shape.",
        )


def require_writable(array: Array, what: str) -> None:
    """ArgumentError or TypeError unless the library may write to the array's memory in order."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{what} must be a NumPy array, not {type(array).__name__}")
    if not array.flags.c_contiguous:
        raise errors.argument(
            f"{what} is not contiguous", advice="Pass numpy.ascontiguousarray(...) of it."
        )
    if not array.flags.writeable:
        raise errors.argument(f"{what} is read-only", advice="Pass a copy of it.")
    if not array.dtype.isnative:
        raise errors.argument(f"{what} has the other byte order: {array.dtype.str}")


def to_float32(array: Array) -> npt.NDArray[np.float32]:
    """The values of an f32, bf16 or f16 array as a new float32 array of the same shape.

    An array of uint16 is taken for the bits of bf16. Every value is kept exactly.
    """
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32)


def from_float32(array: npt.ArrayLike, dtype: str | Any) -> Array:
    """Values rounded to `dtype` (to nearest, ties to even), as a new array of the same shape.

    For "bf16" the array is of `ml_dtypes.bfloat16` where that is installed, else of uint16.
    """
    name = dtype_name(dtype)
    values = np.asarray(array, dtype=np.float32)
    if name != "bf16":
        return values.astype(NUMPY[name])
    bits = np.ascontiguousarray(values).reshape(values.shape).view(np.uint32)
    # Half of the last kept place, and one more where that place is odd: ties go to even. A NaN
    # stays one: rounding could carry its mantissa away.
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(
        16
    )
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    result = np.where(np.isnan(values), quiet, rounded).astype(np.uint16)
    return result if BFLOAT16 is None else result.view(BFLOAT16)
