# SPDX-License-Identifier: Apache-2.0
"""Element types: names ("f32", "bf16", "f16"), NumPy's types, and conversion of bf16.

NumPy has no bfloat16. `bfloat16` is the type of bf16 tensors here: that of the package `ml_dtypes`
if it is installed, else a type of 16 bits with which NumPy cannot compute. `to_float32` and
`from_float32` convert, and `bits.view(meron.bfloat16)` declares bits to be bf16's. An array of
uint16 holds whole numbers, as for NumPy, whatever is installed.
"""

from __future__ import annotations

import sys
from typing import Any, Literal, Union

import numpy as np
import numpy.typing as npt

from meron import errors
from meron._native import lib

Array = npt.NDArray[Any]
# Element types: their short names, NumPy's names of them, and types of NumPy.
DTypeName = Literal["f32", "bf16", "f16"]
DType = Union[DTypeName, Literal["float32", "bfloat16", "float16"], "np.dtype[Any]", "type[Any]"]

BITS: np.dtype[Any] = np.dtype([("bf16", "<u2")])

try:
    import ml_dtypes

    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    bfloat16 = BITS

CODES: dict[DTypeName, int] = {"f32": lib.MERON_F32, "bf16": lib.MERON_BF16, "f16": lib.MERON_F16}
# Those that only an all-reduce takes, by NumPy's names.
NUMBERS = {"f8": int(lib.MERON_F64), "i8": int(lib.MERON_I64)}
NAMES = {code: name for name, code in CODES.items()}
SIZES = {name: lib.meron_dtype_size(code) for name, code in CODES.items()}
# The types of the arrays that the library's memory is shown as.
NUMPY: dict[DTypeName, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "bf16": bfloat16,
    "f16": np.dtype(np.float16),
}
ALIASES: dict[str, DTypeName] = {
    **{name: name for name in CODES},
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
}


def dtype_name(dtype: DType) -> DTypeName:
    """ "f32", "bf16" or "f16" for such a name, NumPy's name, or a type of NumPy or PyTorch."""
    if isinstance(dtype, str):
        name: str = dtype
    else:
        try:
            kind = np.dtype(dtype)
            name = "bf16" if kind == BITS else kind.name
        except TypeError:  # of PyTorch, such as torch.bfloat16
            name = str(dtype).removeprefix("torch.")
    if name not in ALIASES:
        raise errors.argument(f"unknown dtype {dtype!r}: f32, bf16 and f16 are known")
    return ALIASES[name]


def code_of_array(array: Array) -> int | None:
    """The library's code for an array's element type, None where it has none."""
    if array.dtype == BITS:
        return int(CODES["bf16"])
    for name, dtype in NUMPY.items():
        if array.dtype == dtype:
            return int(CODES[name])
    return None


def as_source(
    value: npt.ArrayLike, shape: tuple[int, ...], name: str, exact_range: bool = True
) -> tuple[Array, int]:
    """`value` as a contiguous array that the library can read, and its dtype's code.

    Types of f32, bf16 and f16 pass as they are; other numbers are converted to f32. The shape must
    be the tensor's. Raises ArgumentError for masked elements, and for finite numbers beyond f32's
    unless they may become infinite (`exact_range` is False).
    """
    array = as_numbers(value, name)
    require_shape(array.shape, shape, name)
    code = code_of_array(array)
    if code is None:
        array, code = narrowed(array, name, exact_range), int(lib.MERON_F32)
    return np.ascontiguousarray(array).reshape(shape), code


def as_float32(value: npt.ArrayLike, name: str) -> npt.NDArray[np.float32]:
    """`value` as a contiguous array of f32. Raises as `as_source`."""
    array = as_numbers(value, name)
    if code_of_array(array) is None:
        return np.ascontiguousarray(narrowed(array, name, True))
    return np.ascontiguousarray(to_float32(array))


def as_numbers(value: npt.ArrayLike, name: str) -> Array:
    """`value` as an array of real numbers. ArgumentError for one with masked elements."""
    if np.ma.is_masked(value):
        raise errors.argument(
            f"{name}: the array has masked elements",
            subject=name,
            advice="Pass array.filled(...) of it.",
        )
    array = as_array(value)
    if code_of_array(array) is None and array.dtype.kind not in "fiub":
        raise errors.argument(
            f"{name}: an array of {array.dtype} holds no real numbers", subject=name
        )
    return array


def as_array(value: Any) -> Array:
    """numpy.asarray, also of tensors of PyTorch in bf16, and of such that require a gradient."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return np.asarray(value)
    tensor = value.detach()
    if tensor.dtype is torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(bfloat16))
    return np.asarray(tensor)


def narrowed(array: Array, name: str, exact_range: bool) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):
        result = array.astype(np.float32)
    if exact_range and array.dtype.kind == "f" and array.dtype.itemsize > 4:
        lost = np.isinf(result) & np.isfinite(array)
        if lost.any():
            raise errors.argument(
                f"{name}: {array[lost].flat[0]} is beyond the largest f32", subject=name
            )
    return result


def require_no_references(dtype: np.dtype[Any], what: str) -> None:
    """ArgumentError for elements that are references, which mean nothing in files or elsewhere."""
    if dtype.hasobject:
        raise errors.argument(
            f"{what} has elements of {dtype}, which are references to this process's objects",
            advice="Pass an array of numbers, or the bytes of pickle.dumps.",
        )


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
        raise TypeError(
            f"{what} must be a NumPy array, not a {type(array).__name__}. numpy.asarray(...) of a "
            "tensor in the host's memory shares that memory"
        )
    if isinstance(array, np.ma.MaskedArray):
        raise errors.argument(f"{what} is a masked array", advice="Pass array.filled(...) of it.")
    require_no_references(array.dtype, what)
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

    An array of uint16 is taken for the bits of bf16 here, as `Checkpoint.read` returns them. Every
    value is kept exactly.
    """
    if array.dtype in (np.uint16, BITS):
        bits = array.view(np.uint16).astype(np.uint32)
        return (bits << np.uint32(16)).view(np.float32)
    return array.astype(np.float32)


def from_float32(array: npt.ArrayLike, dtype: DType) -> Array:
    """Values rounded to `dtype` (to nearest, ties to even), as a new array of the same shape.

    For "bf16" the array is of `meron.bfloat16`.
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
    return result.view(bfloat16)
