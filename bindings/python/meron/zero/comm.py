# SPDX-License-Identifier: Apache-2.0
"""The least of deepspeed.comm: who the ranks are, and small collectives over the engine.

`group` is a torch.distributed group, of whose ranks each calls; default is all ranks.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
import torch.distributed as dist

import meron
from meron import errors
from meron.torch import registry
from meron.torch.ranks import local_rank, ranks_of
from meron.torch.tensors import CODES_OF_TORCH
from meron.torch.world import context_for

ReduceOp: Any = getattr(dist, "ReduceOp", None)  # absent where torch was built without


@functools.cache
def plan() -> meron.Plan:
    return meron.Plan.preset("zero3")


def world(group: Any = None) -> meron.Context:
    """The context for collectives. Collective where it is the first of its kind."""
    return context_for(plan(), group)


def any_world(group: Any = None) -> meron.Context:
    """A context of these ranks. Collective only where there is none yet."""
    ranks = ranks_of(group)
    for (its_ranks, *_), context in registry.contexts.items():
        if its_ranks == ranks and not context.closed:
            return context
    return world(group)


def init_distributed(*_args: Any, **_kwargs: Any) -> None:
    """Waits for all ranks. They find each other by `meron run` or torchrun; arguments that say how
    are without effect."""
    world()


def is_initialized() -> bool:
    return any(not context.closed for context in registry.contexts.values())


def get_rank(group: Any = None) -> int:
    return any_world(group).rank


def known_rank() -> int:
    """This process's rank among all, as far as it is known without its peers; else 0. Local.

    From torch.distributed, from a context that is open, or from the launcher's environment.
    """
    if dist.is_available() and dist.is_initialized():
        return int(dist.get_rank())
    for (ranks, *_), context in registry.contexts.items():
        if ranks is None and not context.closed:
            return context.rank
    for variable in ("MERON_RANK", "RANK"):
        if os.environ.get(variable, "").isdecimal():
            return int(os.environ[variable])
    return 0


def get_world_size(group: Any = None) -> int:
    return any_world(group).world_size


def get_local_rank() -> int:
    """The rank on this host, as the launcher says."""
    number = local_rank()
    return get_rank() if number is None else number


def barrier(group: Any = None, async_op: bool = False) -> None:
    refuse_async(async_op, "barrier")
    world(group).world.barrier()


def broadcast(
    tensor: torch.Tensor, src: int = 0, group: Any = None, async_op: bool = False
) -> None:
    """Fills a tensor with that of rank `src` (of all ranks). Collective."""
    refuse_async(async_op, "broadcast")
    ranks = ranks_of(group) or range(any_world(group).world_size)
    if src not in ranks:
        raise errors.argument(f"src is {src}: the ranks are {list(ranks)}", "src")
    values = tensor.detach().to("cpu").contiguous()
    if values.numel():
        data = values.view(-1).view(torch.uint8).numpy()
        world(group).world.broadcast(data, ranks.index(src))
    if values.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(values)


def all_reduce(
    tensor: torch.Tensor, op: Any = None, group: Any = None, async_op: bool = False
) -> None:
    """The sum over ranks of a float tensor, in place, in f32. Collective."""
    refuse_async(async_op, "all_reduce")
    if op is not None and op != ReduceOp.SUM:
        raise errors.UnsupportedError(
            f"Meron does not have yet: all_reduce with op {op}",
            subject="op",
            advice="Sum, or use torch.distributed.all_reduce.",
        )
    if tensor.dtype not in CODES_OF_TORCH:
        raise errors.argument(
            f"all_reduce sums float32, bfloat16 and float16; not {tensor.dtype}", "tensor"
        )
    total = tensor.detach().to("cpu", torch.float32, copy=True).contiguous()
    world(group).world.all_reduce(total.view(-1).numpy())
    tensor.detach().copy_(total)


def refuse_async(async_op: bool, operation: str) -> None:
    if async_op:
        raise errors.UnsupportedError(
            f"Meron does not have yet: {operation} with async_op",
            subject="async_op",
            advice="Leave it out: the result is there on return.",
        )
