# SPDX-License-Identifier: Apache-2.0
"""A tensor as a flat one and back, with the strides that it had.

The strides are kept because kernels choose their order of sums by them: a recomputation from a
tensor of other strides could have other bits.
"""

from __future__ import annotations

import torch


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True if the elements fill one range of memory, each once, in some order of dimensions."""
    expected = 1
    for stride, length in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if stride != expected:
            return False
        expected *= length
    return True


def overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True if two elements may share a place in memory."""
    extent = 0
    for stride, length in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if stride <= extent:
            return True
        extent += stride * (length - 1)
    return False


class Layout:
    """The shape and strides of a tensor. Dimensions of stride 0 (expand) are stored once."""

    __slots__ = ("core", "dense", "shape", "strides")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.core = tuple(
            1 if stride == 0 else n for n, stride in zip(tensor.shape, tensor.stride())
        )
        self.strides = tuple(tensor.stride())
        self.dense = 0 in self.core or is_dense(self.core, self.strides)

    @property
    def size(self) -> int:
        """Elements of the flat tensor."""
        size = 1
        for length in self.core:
            size *= length
        return size

    def flatten(self, tensor: torch.Tensor) -> torch.Tensor:
        """The elements in one dimension: a view where the tensor is dense, else a copy."""
        core = tensor
        for dimension, (length, full) in enumerate(zip(self.core, self.shape)):
            if length != full:
                core = core.narrow(dimension, 0, 1)
        if self.dense:
            return core.as_strided((self.size,), (1,))
        return core.contiguous().view(-1)

    def rebuild(self, flat: torch.Tensor) -> torch.Tensor:
        """The tensor of the elements of `flatten`: a view of them where it was dense."""
        if self.dense:
            core = flat.as_strided(self.core, self.strides)
        elif overlaps(self.core, self.strides):
            core = flat.view(self.core)
        else:
            core = torch.empty_strided(
                self.core, self.strides, dtype=flat.dtype, device=flat.device
            )
            core.copy_(flat.view(self.core))
        return core.expand(self.shape)
