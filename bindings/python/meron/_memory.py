# SPDX-License-Identifier: Apache-2.0
"""Memory of the library as NumPy arrays, without copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from meron._native import ffi
from meron.dtypes import NAMES, NUMPY, SIZES, Array, DTypeName


class Memory:
    """The base of a NumPy array: the address of the memory, and the object that keeps it alive."""

    __slots__ = ("__array_interface__", "keep")

    def __init__(self, address: int, shape: tuple[int, ...], kind: str, writable: bool, keep: Any):
        self.__array_interface__ = {
            "version": 3,
            "data": (address, not writable),
            "shape": shape,
            "typestr": kind,
        }
        self.keep = keep


# An array is made as one of plain NumPy types first: the interface cannot name bfloat16.
TYPESTR = {"f32": "<f4", "bf16": "<u2", "f16": "<f2"}


def as_array(view: Any, shape: tuple[int, ...], keep: Any) -> Array:
    """The memory of a `meron_view` as an array of `shape`; the array keeps `keep` alive."""
    name = NAMES[view.dtype]
    address = int(ffi.cast("uintptr_t", view.data))
    array: Array = np.asarray(Memory(address, shape, TYPESTR[name], bool(view.writable), keep))
    return array if array.dtype == NUMPY[name] else array.view(NUMPY[name])


def byte_count(dtype: DTypeName, count: int) -> int:
    return int(SIZES[dtype]) * count
