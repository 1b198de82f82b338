# SPDX-License-Identifier: Apache-2.0
"""Memory for tensors that were on the device meta, filled with a pattern, so that what the module
does not write is found and named, rather than published as it was left by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from meron import errors
from meron.torch.sharding import Sharding
from meron.torch.torch_internals import own_buffers

# By bytes of an element: an integer dtype of the size and its pattern. For floating dtypes it is a
# NaN that no operation makes from numbers. bool has only 0 and 1.
WORDS = {
    1: (torch.uint8, 0xA5),
    2: (torch.int16, 0x7FE5),
    4: (torch.int32, 0x7FE5A5A5),
    8: (torch.int64, 0x7FFDA5A57FE5A5A5),
}


def words_of(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The same memory as integers, and the pattern of one."""
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    dtype, pattern = WORDS[flat.element_size()]
    return flat.view(dtype), pattern


def unwritten(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A new tensor on the CPU that is filled with the pattern."""
    tensor = torch.empty(tuple(shape), dtype=dtype, device="cpu")
    words, pattern = words_of(tensor)
    words.fill_(pattern)
    return tensor


def is_unwritten(tensor: torch.Tensor) -> bool:
    """True if any element still has the pattern; for short integers, if all elements have it."""
    if tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
        return False
    words, pattern = words_of(tensor.cpu())
    same = words == pattern
    size = tensor.element_size()
    short = size == 1 or (size == 2 and not tensor.is_floating_point())
    common = short and tensor.dtype is not torch.bool  # numbers may have the value
    return bool(same.all() if common else same.any())


def check_written(sharding: Sharding, tensors: Mapping[str, torch.Tensor]) -> None:
    """StateError on all ranks that names the tensors that one of them has not written. Collective:
    all ranks pass the same names."""
    if not tensors:
        return
    flags = np.array([is_unwritten(tensor) for tensor in tensors.values()], np.float32)
    if sharding.context.world_size > 1:
        sharding.context.world.all_reduce(flags)
    lost = [name for name, flag in zip(tensors, flags) if flag]
    if lost:
        more = f" and {len(lost) - 8} more" if len(lost) > 8 else ""
        raise errors.StateError(
            f"{len(lost)} tensors were on the device meta, and reset_parameters left them, or a "
            f"part of them, without values: {', '.join(lost[:8])}{more}",
            subject=lost[0],
            advice="Have the reset_parameters of the class that makes them fill them, beside what "
            "it inherits; or build the module on the CPU.",
        )


def share_buffers(sharding: Sharding, part: torch.nn.Module, names: Sequence[str]) -> None:
    """Gives buffers that a module has just filled the values of rank 0. Collective."""
    buffers = own_buffers(part)
    for name in names if sharding.context.world_size > 1 else ():
        buffer = buffers[name]
        if buffer is not None and buffer.layout is torch.strided:
            buffers[name] = sharding.broadcast(buffer).view(buffer.shape).to(buffer.device)
