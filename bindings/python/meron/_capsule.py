# SPDX-License-Identifier: Apache-2.0
"""DLPack's capsules: tensors in memory that a library has lent to another one."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from meron import errors
from meron._native import ffi
from meron.dtypes import Array, DTypeName

NAME = b"dltensor_versioned"
NAME_BEFORE_1 = b"dltensor"
CUDA = 2  # kDLCUDA
BFLOAT = 4  # kDLBfloat
IS_COPIED = 2  # DLPACK_FLAG_BITMASK_IS_COPIED
DTYPES: dict[tuple[int, int, int], DTypeName] = {  # by code, bits and lanes
    (2, 32, 1): "f32",
    (4, 16, 1): "bf16",
    (2, 16, 1): "f16",
}

# DLPack's structs: of version 1, and the tensor, with which the struct before version 1 begins.
ffi.cdef(
    """
    typedef struct {
      void *data;
      int32_t device_type, device_id;
      int32_t ndim;
      uint8_t code, bits;
      uint16_t lanes;
      int64_t *shape, *strides;
      uint64_t byte_offset;
    } meron_python_tensor;
    typedef struct meron_python_managed {
      uint32_t major, minor;
      void *manager_ctx;
      void (*deleter)(struct meron_python_managed *);
      uint64_t flags;
      meron_python_tensor tensor;
    } meron_python_managed;
    """
)

for type_name in ("meron_python_managed *", "meron_python_tensor *"):
    ffi.typeof(type_name)  # parsed now, as those of _native

python = ctypes.pythonapi
Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, Destructor)(
    ("PyCapsule_New", python)
)
# The destructor's capsule is past its last reference: it is only ever a bare address here.
capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", python)
)
capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", python)
)


def give_back(
    capsule: int,
    is_valid: Any = capsule_is_valid,
    pointer: Any = capsule_pointer,
    cast: Any = ffi.cast,
    name: bytes = NAME,
) -> None:
    """Frees the tensor of a capsule that dies; one that was consumed has another name by then."""
    if is_valid(capsule, name):
        managed = cast("meron_python_managed *", pointer(capsule, name))
        if managed.deleter:
            managed.deleter(managed)


destructor = Destructor(give_back)
# Capsules may die after this module: what they call must not.
python.Py_IncRef(ctypes.py_object(destructor))


class Borrowed(NamedTuple):
    """The tensor of a capsule. Valid as long as the capsule."""

    address: int
    shape: tuple[int, ...]
    dtype: DTypeName


def borrow(capsule: Any, what: str) -> Borrowed:
    """The dense tensor in a capsule of another library, which stays that capsule's.

    Raises ArgumentError for strides, elements and versions that the library does not take.
    """
    address = id(capsule)  # of the object itself, as the C functions take it
    if capsule_is_valid(address, NAME):
        managed = ffi.cast("meron_python_managed *", capsule_pointer(address, NAME))
        if managed.major != 1:
            raise errors.argument(f"{what}: DLPack version {managed.major}", subject=what)
        tensor = managed.tensor
    elif capsule_is_valid(address, NAME_BEFORE_1):
        pointer = capsule_pointer(address, NAME_BEFORE_1)
        tensor = ffi.cast("meron_python_tensor *", pointer)[0]
    else:
        raise TypeError(f"{what}: __dlpack__ gave no capsule of a tensor")
    dtype = DTYPES.get((tensor.code, tensor.bits, tensor.lanes))
    if dtype is None:
        raise errors.argument(f"{what} has elements that are not f32, bf16 or f16", subject=what)
    shape = tuple(tensor.shape[0 : tensor.ndim]) if tensor.ndim else ()
    step = 1
    for axis in reversed(range(len(shape))):
        if tensor.strides and shape[axis] != 1 and tensor.strides[axis] != step:
            raise errors.argument(
                f"{what} is not contiguous", subject=what, advice="Pass x.contiguous() of it."
            )
        step *= shape[axis]
    address = int(ffi.cast("uintptr_t", tensor.data)) + tensor.byte_offset
    return Borrowed(address, shape, dtype)


def copied(array: Array, dtype: DTypeName) -> Any:
    """A capsule of a copy of an array, which may be written."""
    bits = np.array(array, copy=True)
    if dtype == "bf16":
        bits = bits.view(np.uint16)
    capsule = bits.__dlpack__(max_version=(1, 0))
    managed = ffi.cast("meron_python_managed *", capsule_pointer(id(capsule), NAME))
    managed.flags |= IS_COPIED
    if dtype == "bf16":  # which NumPy cannot name
        managed.tensor.code = BFLOAT
    return capsule
