# SPDX-License-Identifier: Apache-2.0
"""Torch tensors over the library's memory, and tensors inside nested values."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

from meron import errors
from meron._memory import Memory
from meron._native import ffi
from meron.dtypes import CODES, NAMES, DTypeName
from meron.torch.residency.copy_on_write import CopyOnWrite
from meron.torch.torch_internals import refuse_writes, without_transforms

DTYPES: dict[DTypeName, torch.dtype] = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}
NAMES_OF_TORCH = {dtype: name for name, dtype in DTYPES.items()}
CODES_OF_TORCH = {dtype: CODES[name] for name, dtype in DTYPES.items()}

# To find a write to a param in use: see docs/torch.md. Not always on, because compiled code, LSTMs
# and numpy() ask for writable pointers too.
CHECK_WRITES = os.environ.get("MERON_CHECK_WRITES", "0") not in ("", "0")


def dtype_name(dtype: torch.dtype, what: str) -> DTypeName:
    """ "f32", "bf16" or "f16"; ArgumentError naming `what` for other types."""
    if dtype not in NAMES_OF_TORCH:
        raise errors.argument(
            f"{what} is {dtype}: Meron shards float32, bfloat16 and float16",
            subject=what,
            advice="Convert it before sharding, or leave it out with ignored_params.",
        )
    return NAMES_OF_TORCH[dtype]


def tensor_of(
    view: Any, shape: tuple[int, ...], keep: Any, copies: CopyOnWrite | None = None
) -> torch.Tensor:
    """The memory of a `meron_view` as a tensor of `shape`, which keeps `keep` alive.

    Torch has no read-only tensors. If the view is read-only, a write to the tensor goes to a copy
    that `copies` finds; without `copies` it is a segmentation fault. With CHECK_WRITES it raises
    torch's RuntimeError "Cannot access data pointer", as does anything that asks for a writable
    pointer only to read.
    """
    dtype = DTYPES[NAMES[view.dtype]]
    size = dtype.itemsize
    for length in shape:
        size *= length
    with torch.inference_mode(False), without_transforms():
        if size == 0:
            return torch.empty(shape, dtype=dtype, device="cpu")
        address = int(ffi.cast("uintptr_t", view.data))
        copied = None if copies is None or view.writable else copies.view(address, size)
        memory = (
            np.asarray(Memory(address, (size,), "|u1", True, keep)) if copied is None else copied
        )
        tensor = torch.from_numpy(memory).view(dtype).view(shape)
        if CHECK_WRITES and not view.writable:
            refuse_writes(tensor)
        return tensor


@cache
def placeholder(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The tensor of a param out of use: its shape, and memory of one element.

    Its class refuses reads and writes (guard.py). Those of one shape are one object, which a pass
    finds in the cache.
    """
    return one_element(dtype, device).expand(shape)


def one_element(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """NaN, in memory of its own."""
    with torch.inference_mode(False), without_transforms():
        return torch.full((), float("nan"), dtype=dtype, device=device)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in arguments or results: in tuples, lists, mappings and dataclasses."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name, None))


def map_tensors(value: Any, function: Any) -> Any:
    """`value` with `function` applied to the tensors in it; containers are made anew."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, function) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, function) for item in value)
    if type(value) is dict:
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value
