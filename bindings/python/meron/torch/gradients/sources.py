# SPDX-License-Identifier: Apache-2.0
"""Tables by which the engine takes the gradients of a unit."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

import meron
from meron._native import ffi, new
from meron.torch.tensors import CODES_OF_TORCH


class Sources(NamedTuple):
    """All gradients of a unit, as the engine takes them.

    places: for each its param, its dtype, and where in `table` its address goes.
    """

    table: Any
    places: list[tuple[torch.nn.Parameter, torch.dtype, Any]]


def sources_of(
    params: list[torch.nn.Parameter], handles: list[meron.Param], trainable: list[int]
) -> Sources:
    """Of a unit's params, those that get gradients."""
    table = new("meron_source[]", max(len(trainable), 1))
    places = []
    for i, source in zip(trainable, table):
        source.param = handles[i]._handle
        source.count = handles[i].size
        source.dtype = CODES_OF_TORCH[params[i].dtype]
        place = ffi.cast("uintptr_t *", ffi.addressof(source, "data"))
        places.append((params[i], params[i].dtype, place))
    return Sources(table, places)


def sources_of_some(
    params: list[torch.nn.Parameter], handles: list[meron.Param], present: list[int]
) -> tuple[Any, list[torch.Tensor]]:
    """A table of the gradients of some params, as the engine takes them; and the tensors that it
    reads, which may be copies."""
    table = new("meron_source[]", max(len(present), 1))
    keep = []
    for i, source in zip(present, table):
        grad = params[i].grad
        assert grad is not None
        grad = (grad if grad.layout is torch.strided else grad.to_dense()).contiguous()
        keep.append(grad)
        source.param = handles[i]._handle
        source.data = ffi.cast("void *", grad.data_ptr())
        source.count = grad.numel()
        source.dtype = CODES_OF_TORCH[grad.dtype]
    return table, keep
