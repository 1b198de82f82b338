# SPDX-License-Identifier: Apache-2.0
"""deepspeed.utils.groups: Meron has one group of ranks, over which everything is sharded.

So data parallelism spans all ranks; model, tensor and sequence parallelism have one rank each.
Groups of a mixture's experts do not exist: experts are sharded as all params are.
"""

from __future__ import annotations

from typing import Any

from meron import errors
from meron.zero.compat import distributed


def _get_data_parallel_group() -> Any:
    """torch's process group of all ranks; None if torch has none."""
    return distributed.get_world_group() if distributed.is_initialized() else None


def _get_data_parallel_group_ranks() -> range:
    """The global ranks of data parallelism: all."""
    return range(distributed.get_world_size())


def get_data_parallel_world_size() -> int:
    """The ranks of data parallelism: all."""
    return distributed.get_world_size()


def get_data_parallel_rank() -> int:
    """This process's rank among all."""
    return distributed.get_rank()


def _one() -> int:
    """The ranks of a kind of parallelism that Meron does not have: 1."""
    return 1


def _zero() -> int:
    """This process's rank in a group of one: 0."""
    return 0


def _get_broadcast_src_rank() -> int:
    """The global rank whose values are broadcast: 0."""
    return 0


def _get_sequence_parallel_group() -> Any:
    """Raises UnsupportedError: there is no sequence parallelism."""
    raise errors.UnsupportedError(
        "Meron does not have: groups of sequence parallelism",
        subject="_get_sequence_parallel_group",
        advice="Shard over all ranks with shorter sequences per rank, or use torch's context "
        "parallelism beside zero_optimization.",
    )


def _ensure_divisibility(numerator: int, denominator: int) -> None:
    """Raises ArgumentError (a ValueError) if a number does not divide another."""
    if not denominator:
        raise errors.argument("denominator must be non-zero", "denominator")
    if numerator % denominator:
        raise errors.argument(f"{numerator} is not divisible by {denominator}", "numerator")


def _get_expert_parallel_ranks(
    world_size: int, tensor_parallel_size_: int, expert_parallel_size_: int
) -> tuple[list[list[int]], list[list[int]]]:
    """The groups of ranks that would divide experts, and those that would hold equal ones.

    Arithmetic alone: Meron makes no such groups.
    """
    _ensure_divisibility(world_size, tensor_parallel_size_ * expert_parallel_size_)
    replicas = [
        range(first, world_size, tensor_parallel_size_) for first in range(tensor_parallel_size_)
    ]
    divided = [
        list(ranks[begin : begin + expert_parallel_size_])
        for ranks in replicas
        for begin in range(0, len(ranks), expert_parallel_size_)
    ]
    equal = [
        list(ranks[place::expert_parallel_size_])
        for ranks in replicas
        for place in range(expert_parallel_size_)
    ]
    return divided, equal


def _zero_param_parallel_is_initialized() -> bool:
    """False: the secondary partition of hpZ is the plan's and has no process group."""
    return False


get_data_parallel_group = _clone_world_group = _get_data_parallel_group
_get_sequence_data_parallel_group = _get_data_parallel_group
_get_data_parallel_world_size = get_data_parallel_world_size
_get_sequence_data_parallel_world_size = get_data_parallel_world_size
_get_data_parallel_rank = _get_sequence_data_parallel_rank = get_data_parallel_rank

get_model_parallel_world_size = _get_model_parallel_world_size = _one
get_tensor_model_parallel_world_size = _get_sequence_parallel_world_size = _one
_get_expert_model_parallel_world_size = _one
get_model_parallel_rank = get_tensor_model_parallel_rank = _get_sequence_parallel_rank = _zero
