# SPDX-License-Identifier: Apache-2.0
"""Torch tensors over the library's memory, and tensors inside nested values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch

from meron import errors
from meron._memory import Memory
from meron._native import ffi
from meron.dtypes import CODES, NAMES

DTYPES: dict[str, torch.dtype] = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}
NAMES_OF_TORCH = {dtype: name for name, dtype in DTYPES.items()}
CODES_OF_TORCH = {dtype: CODES[name] for name, dtype in DTYPES.items()}

# Tensors made within it are as those outside of torch.func. One that is made under grad or jvp
# belongs to that transform, and cannot be used after it.
without_transforms: Any = torch._C._DisableFuncTorch


def dtype_name(dtype: torch.dtype, what: str) -> str:
    """ "f32", "bf16" or "f16"; ArgumentError naming `what` for other types."""
    if dtype not in NAMES_OF_TORCH:
        raise errors.argument(
            f"{what} is {dtype}: Meron shards float32, bfloat16 and float16",
            subject=what,
            advice="Convert it before sharding, or leave it out with ignored_params.",
        )
    return NAMES_OF_TORCH[dtype]


def tensor_of(view: Any, shape: tuple[int, ...], keep: Any) -> torch.Tensor:
    """The memory of a `meron_view` as a tensor of `shape`, which keeps `keep` alive.

    Where the view is read-only, a write to the tensor ends the process by a segmentation fault:
    torch knows no read-only tensors.
    """
    dtype = DTYPES[NAMES[view.dtype]]
    size = dtype.itemsize
    for length in shape:
        size *= length
    with torch.inference_mode(False), without_transforms():
        if size == 0:
            return torch.empty(shape, dtype=dtype, device="cpu")
        address = int(ffi.cast("uintptr_t", view.data))
        memory = np.asarray(Memory(address, (size,), "|u1", True, keep))
        return torch.from_numpy(memory).view(dtype).view(shape)


def placeholder(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """What stands for a param that is not at hand: its shape, one NaN, no memory.

    Torch refuses most writes to it, because all elements share one place. So those of one shape are
    one object, which a pass finds in the cache; but a lone element can be written to.
    """
    make = shared_placeholder if prod(shape) != 1 else new_placeholder
    return make(shape, dtype, device)


def new_placeholder(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    with torch.inference_mode(False), without_transforms():
        return torch.full((), float("nan"), dtype=dtype, device=device).expand(shape)


@cache
def shared_placeholder(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    made = new_placeholder(shape, dtype, device)
    if made.numel() and device.type == "cpu":  # the host would have to wait to look elsewhere
        element = made.as_strided((1,), (1,)).view(torch.uint8).numpy()
        shared.append((made, element, element.tobytes()))
    return made


# Placeholders with their one element's bytes, as they are and as they should be.
shared: list[tuple[torch.Tensor, np.ndarray[Any, np.dtype[np.uint8]], bytes]] = []


def overwritten() -> list[torch.Tensor]:
    """Placeholders that were written to (`param.data.zero_()` can), which are mended."""
    found = []
    for made, element, wanted in shared:
        if element.tobytes() != wanted:
            element[:] = np.frombuffer(wanted, np.uint8)
            found.append(made)
    return found


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in what a module took or gave: in tuples, lists, mappings and dataclasses."""
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
