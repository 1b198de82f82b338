# SPDX-License-Identifier: Apache-2.0
"""deepspeed.comm: torch.distributed under DeepSpeed's names and arguments.

Functions work on torch's process group, which `init_distributed` makes. Without one, `get_rank`,
`get_world_size`, `barrier`, `broadcast` and `all_reduce` use the ranks of Meron instead, so that a
script under `meron run` needs no process group.

Arguments are DeepSpeed's, which are torch's but for a few names. The extra ones, `prof`, `log_name`
and `debug`, feed its log of collectives; they are accepted and have no effect. Errors of a
collective are torch's.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from meron import errors
from meron.torch.ranks import local_rank, ranks_of
from meron.zero import comm as over_meron
from meron.zero.compat.rendezvous import init_distributed

logger = logging.getLogger("meron.zero")

ReduceOp: Any = over_meron.ReduceOp
P2POp: Any = getattr(dist, "P2POp", None)
ProcessGroup: Any = getattr(dist, "ProcessGroup", None)

LOG_ARGUMENTS = ("prof", "log_name", "debug")

# Functions of torch.distributed with the same name and arguments in DeepSpeed.
SAME = (
    "all_gather",
    "all_gather_object",
    "all_to_all",
    "batch_isend_irecv",
    "broadcast_object_list",
    "gather",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
)


def is_available() -> bool:
    """True if this build of torch has torch.distributed."""
    return bool(dist.is_available())


def is_initialized() -> bool:
    """True if torch's process group exists. accelerate and transformers use it."""
    return is_available() and bool(dist.is_initialized())


def require_group(operation: str) -> None:
    if not is_initialized():
        raise errors.StateError(
            f"deepspeed.comm.{operation}: torch.distributed has no process group",
            operation=operation,
            advice="Call deepspeed.init_distributed() first.",
        )


def over_torch(name: str) -> Callable[..., Any]:
    """The function `name` of torch.distributed, without DeepSpeed's arguments of its log."""
    plain = getattr(dist, name, None)

    def call(*args: Any, **kwargs: Any) -> Any:
        require_group(name)
        if plain is None:
            raise errors.UnsupportedError(
                f"torch {torch.__version__} has no torch.distributed.{name}", operation=name
            )
        return plain(*args, **without_log(kwargs))

    return functools.wraps(plain)(call) if plain is not None else call


def without_log(arguments: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if key not in LOG_ARGUMENTS}


globals().update({name: over_torch(name) for name in SAME})


# ---- Ranks and groups ---------------------------------------------------------------------------


def get_rank(group: Any = None) -> int:
    """This process's rank in a group; -1 if it is in none. Local if a process group exists."""
    return int(dist.get_rank(group)) if is_initialized() else over_meron.get_rank(group)


def get_world_size(group: Any = None) -> int:
    """The ranks of a group; -1 if this process is in none. Local if a process group exists."""
    return int(dist.get_world_size(group)) if is_initialized() else over_meron.get_world_size(group)


def get_local_rank() -> int:
    """The rank on this host, as the launcher says."""
    number = local_rank()
    return get_rank() if number is None else number


def get_world_group() -> Any:
    """The process group of all ranks."""
    require_group("get_world_group")
    return dist.group.WORLD


def get_global_rank(group: Any = None, group_rank: int = 0) -> int:
    """The rank among all ranks of rank `group_rank` of a group."""
    if group is None:
        return group_rank
    require_group("get_global_rank")
    return int(dist.get_global_rank(group, group_rank))


def get_all_ranks_from_group(group: Any = None) -> list[int]:
    """The global ranks of a group."""
    ranks = ranks_of(group)
    return list(range(get_world_size()) if ranks is None else ranks)


def get_backend(group: Any = None) -> str:
    """The backend of a group, such as "gloo"."""
    require_group("get_backend")
    return str(dist.get_backend(group))


def new_group(ranks: list[int] | None = None, **options: Any) -> Any:
    """A process group of some ranks; None is all. All ranks must call this. Collective.

    Args:
        options: timeout, backend and so on, as torch.distributed.new_group takes them.
    """
    require_group("new_group")
    return dist.new_group(ranks, **options)


def destroy_process_group(group: Any = None) -> None:
    """Ends a process group; None ends all of them. Nothing happens if there is none."""
    if is_initialized():
        dist.destroy_process_group(group)


# ---- Collectives whose arguments differ, or that Meron has too ----------------------------------


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, **log: Any) -> Any:
    """Waits for all ranks of a group."""
    refuse_unknown("barrier", log)
    if is_initialized():
        return dist.barrier(group, async_op, device_ids)
    return over_meron.barrier(group, async_op)


def broadcast(
    tensor: torch.Tensor, src: int, group: Any = None, async_op: bool = False, **log: Any
) -> Any:
    """Fills a tensor with that of global rank `src`."""
    refuse_unknown("broadcast", log)
    if is_initialized():
        return dist.broadcast(tensor, src, group, async_op)
    return over_meron.broadcast(tensor, src, group, async_op)


def all_reduce(
    tensor: torch.Tensor, op: Any = None, group: Any = None, async_op: bool = False, **log: Any
) -> Any:
    """Reduces a tensor over ranks, in place; a sum if `op` is None."""
    refuse_unknown("all_reduce", log)
    if is_initialized():
        return dist.all_reduce(tensor, ReduceOp.SUM if op is None else op, group, async_op)
    return over_meron.all_reduce(tensor, op, group, async_op)


def inference_all_reduce(
    tensor: torch.Tensor, op: Any = None, group: Any = None, async_op: bool = False, **log: Any
) -> Any:
    """As all_reduce."""
    return all_reduce(tensor, op, group, async_op, **log)


def all_to_all_single(
    output: torch.Tensor,
    tensor: torch.Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
    **log: Any,
) -> Any:
    """Sends a piece of a tensor to each rank, and receives one of each into `output`."""
    refuse_unknown("all_to_all_single", log)
    require_group("all_to_all_single")
    return dist.all_to_all_single(
        output, tensor, output_split_sizes, input_split_sizes, group, async_op
    )


def all_gather_into_tensor(
    output_tensor: torch.Tensor,
    tensor: torch.Tensor,
    group: Any = None,
    async_op: bool = False,
    **log: Any,
) -> Any:
    """Gathers the tensors of all ranks, one after the other, into one."""
    refuse_unknown("all_gather_into_tensor", log)
    require_group("all_gather_into_tensor")
    return dist.all_gather_into_tensor(output_tensor, tensor, group, async_op)


def allgather_fn(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    group: Any = None,
    async_op: bool = False,
    debug: str = "",
) -> Any:
    """As all_gather_into_tensor."""
    return all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


def reduce_scatter_tensor(
    output_tensor: torch.Tensor,
    tensor: torch.Tensor,
    op: Any = None,
    group: Any = None,
    async_op: bool = False,
    **log: Any,
) -> Any:
    """Reduces a tensor over ranks. Each rank receives its piece. If `op` is None, it is a sum."""
    refuse_unknown("reduce_scatter_tensor", log)
    require_group("reduce_scatter_tensor")
    op = ReduceOp.SUM if op is None else op
    return dist.reduce_scatter_tensor(output_tensor, tensor, op, group, async_op)


reduce_scatter_fn = reduce_scatter_tensor


class Handles:
    """Collectives that run asynchronously, to be waited for together."""

    def __init__(self, works: list[Any]) -> None:
        self.works = works

    def wait(self) -> None:
        """Blocks until all operations are complete."""
        for work in self.works:
            work.wait()

    def is_completed(self) -> bool:
        """True if all operations are complete. Does not block."""
        return all(work.is_completed() for work in self.works)


def all_gather_coalesced(
    output_tensors: list[torch.Tensor],
    input_tensors: list[torch.Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Handles | None:
    """all_gather_into_tensor of several pairs. Returns Handles if `async_op`."""
    if len(output_tensors) != len(input_tensors):
        raise errors.argument(
            f"all_gather_coalesced: {len(output_tensors)} output tensors for "
            f"{len(input_tensors)} input tensors",
            subject="output_tensors",
            advice="Give one output tensor for each input tensor.",
        )
    works = [
        all_gather_into_tensor(output, tensor, group, async_op)
        for output, tensor in zip(output_tensors, input_tensors)
    ]
    return Handles(works) if async_op else None


def all_reduce_coalesced(
    tensors: list[torch.Tensor], op: Any = None, group: Any = None, async_op: bool = False
) -> Handles | None:
    """all_reduce of several tensors. Returns Handles if `async_op`."""
    works = [all_reduce(tensor, op, group, async_op) for tensor in tensors]
    return Handles(works) if async_op else None


def has_all_gather_into_tensor() -> bool:
    """True: torch has it."""
    return True


def has_reduce_scatter_tensor() -> bool:
    """True: torch has it."""
    return True


def has_all_reduce_coalesced() -> bool:
    """True: all_reduce_coalesced makes one call per tensor."""
    return True


def has_coalescing_manager() -> bool:
    """False: all_gather_coalesced makes one call per tensor."""
    return False


def configure(
    deepspeed_config: Any = None,
    enabled: bool | None = None,
    prof_all: bool | None = None,
    prof_ops: Any = None,
    verbose: bool | None = None,
    debug: bool | None = None,
) -> None:
    """Warns once if DeepSpeed's log of collectives, which Meron does not have, is `enabled`."""
    if enabled:
        warn_of_no_log()


@functools.cache
def warn_of_no_log() -> None:
    """One warning per process."""
    logger.warning(
        "deepspeed.comm has no log of collectives: torch.profiler records those of "
        "torch.distributed"
    )


def log_summary(show_straggler: bool = False, return_dict: bool = False) -> dict[str, Any] | None:
    """Nothing: no collective has been logged. With `return_dict`, an empty summary."""
    if not return_dict:
        return None
    place = {"world_size": get_world_size(), "rank": get_rank()}
    return {"summary": {}, "straggler_analysis": None, "metadata": place}


def reset_log() -> None:
    """Nothing: no collective has been logged."""


def has_comm_data() -> bool:
    """False: no collective has been logged."""
    return False


def get_comm_operation_count() -> int:
    """0: no collective has been logged."""
    return 0


def get_logged_comm_ops() -> list[str]:
    """[]: no collective has been logged."""
    return []


def refuse_unknown(operation: str, arguments: dict[str, Any]) -> None:
    unknown = list(without_log(arguments))
    if unknown:
        raise TypeError(f"deepspeed.comm.{operation} has no argument {', '.join(unknown)}")


__all__ = [
    *SAME,
    "Handles",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "allgather_fn",
    "barrier",
    "broadcast",
    "configure",
    "destroy_process_group",
    "get_all_ranks_from_group",
    "get_backend",
    "get_comm_operation_count",
    "get_global_rank",
    "get_local_rank",
    "get_logged_comm_ops",
    "get_rank",
    "get_world_group",
    "get_world_size",
    "has_all_gather_into_tensor",
    "has_all_reduce_coalesced",
    "has_coalescing_manager",
    "has_comm_data",
    "has_reduce_scatter_tensor",
    "inference_all_reduce",
    "init_distributed",
    "is_available",
    "is_initialized",
    "log_summary",
    "new_group",
    "reduce_scatter_fn",
    "reduce_scatter_tensor",
    "reset_log",
]
