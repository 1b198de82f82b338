# SPDX-License-Identifier: Apache-2.0
"""Paths, memory and numbers of the caller's, as the library's functions for files take them."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from meron import errors
from meron._native import ffi
from meron.dtypes import require_no_references

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


@dataclass(frozen=True)
class Taken:
    """Memory as the library takes it, and what keeps it there."""

    data: Any
    bytes: int
    keep: Any


def take(memory: Any, writable: bool) -> Taken:
    """Memory of the caller's; ArgumentError for what cannot be read into, or written from."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(memory, torch.Tensor):
        return take_tensor(memory)
    if isinstance(memory, np.ndarray):
        # Not by the buffer protocol, which knows no bfloat16.
        require_no_references(memory.dtype, "the array")
        if not memory.flags.c_contiguous:
            raise not_contiguous("array")
        if writable and not memory.flags.writeable:
            raise errors.argument("the array is read-only: pass one that may be written")
        return Taken(ffi.cast("void *", memory.ctypes.data), memory.nbytes, memory)
    try:
        view = memoryview(memory)
    except TypeError:
        raise TypeError(
            "an array, a tensor or something with the buffer protocol is needed, not "
            f"{type(memory).__name__}"
        ) from None
    with view:
        if "O" in re.sub(":[^:]*:", "", view.format):  # but for the names of fields
            raise errors.argument(f"a {type(memory).__name__} of references to Python's objects")
        if not view.c_contiguous:
            raise not_contiguous("memory")
        if writable and view.readonly:
            raise errors.argument(f"a {type(memory).__name__} is read-only: pass a bytearray, say")
        bytes_ = view.nbytes
    held = ffi.from_buffer(memory)  # so that it does not move
    return Taken(ffi.cast("void *", held), bytes_, held)


def take_tensor(tensor: Any) -> Taken:
    if tensor.device.type != "cpu":
        raise errors.argument(
            f"the tensor is on {tensor.device}: pass one in host memory",
            advice="copy it to host memory (tensor.cpu()), or from there",
        )
    if not tensor.is_contiguous():
        raise not_contiguous("tensor")
    bytes_ = tensor.numel() * tensor.element_size()
    return Taken(ffi.cast("void *", tensor.data_ptr()), bytes_, tensor)


def not_contiguous(what: str) -> errors.ArgumentError:
    return errors.argument(f"the {what} is not contiguous: pass one that is, or a copy")


def path_bytes(path: Path) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise errors.argument(f"a path holds a NUL character: {path!r}")
    return name


def number(name: str, value: int, bound: int) -> int:
    if not 0 <= value < bound:
        raise errors.argument(f"{name} is {value}: give 0 to {bound - 1}")
    return int(value)
