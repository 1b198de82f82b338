# SPDX-License-Identifier: Apache-2.0
"""The least of deepspeed.comm: who the ranks are, and small collectives over the engine."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

import meron
from meron.torch.tensors import CODES_OF_TORCH
from meron.torch.world import context_for


@functools.cache
def plan() -> meron.Plan:
    return meron.Plan.preset("zero3")


def world() -> meron.Context:
    """The context of all ranks. Collective where it is the first of its kind."""
    return context_for(plan())


def init_distributed(*_args: Any, **_kwargs: Any) -> None:
    """Waits for all ranks. They find each other by `meron run` or torchrun; arguments that say how
    are without effect."""
    world()


def is_initialized() -> bool:
    from meron.torch.world import contexts

    return any(not context.closed for context in contexts.values())


def get_rank(group: Any = None) -> int:
    return world().rank


def get_world_size(group: Any = None) -> int:
    return world().world_size


def get_local_rank() -> int:
    """The rank on this host, as the launcher says."""
    return int(os.environ.get("LOCAL_RANK", world().rank))


def barrier(*_args: Any, **_kwargs: Any) -> None:
    world().world.barrier()


def broadcast(
    tensor: torch.Tensor, src: int = 0, group: Any = None, async_op: bool = False
) -> None:
    """Fills a contiguous CPU tensor with rank `src`'s. Collective."""
    world().world.broadcast(tensor.detach().view(-1).view(torch.uint8).numpy(), src)


def all_reduce(
    tensor: torch.Tensor, op: Any = None, group: Any = None, async_op: bool = False
) -> None:
    """The sum over ranks of a float tensor, in place, in f32. Collective."""
    value = tensor.detach().float().contiguous()
    assert_float(tensor)
    total = value.clone().view(-1)
    world().world.all_reduce(total.numpy())
    tensor.detach().copy_(total.view(value.shape))


def assert_float(tensor: torch.Tensor) -> None:
    if tensor.dtype not in CODES_OF_TORCH:
        raise meron.errors.argument(
            f"all_reduce sums float32, bfloat16, float16; not {tensor.dtype}"
        )
