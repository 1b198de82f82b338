# SPDX-License-Identifier: Apache-2.0
"""deepspeed.runtime.zero.utils: params, optimizers, and values that ranks agree on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meron import errors
from meron.zero import attributes, ops
from meron.zero.compat import distributed
from meron.zero.compat.helpers import map_nested

# Classes of optimizers that DeepSpeed has tested. Meron runs every elementwise optimizer.
ZERO_SUPPORTED_OPTIMIZERS: list[Any] = [
    *(torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad),
    *(ops.FusedAdam, ops.DeepSpeedCPUAdam, ops.DeepSpeedCPUAdagrad),
    *(ops.DeepSpeedCPULion, ops.FusedLion),
]


class ZeRORuntimeException(Exception):
    """DeepSpeed raises it for a checkpoint of another number of ranks. Meron never does, as
    checkpoints load at any number of ranks."""


def is_zero_param(parameter: Any) -> bool:
    """True if Meron has sharded the param."""
    return isinstance(parameter, attributes.ZeroParameter)


def is_zero_supported_optimizer(optimizer: Any) -> bool:
    """True if the class of an optimizer is one of ZERO_SUPPORTED_OPTIMIZERS."""
    return type(optimizer) in ZERO_SUPPORTED_OPTIMIZERS


def get_lst_from_rank0(lst: list[int]) -> list[int]:
    """Rank 0's list of numbers. Collective."""
    words = [list(lst)]
    if distributed.get_world_size() > 1:
        distributed.require_group("get_lst_from_rank0")
        torch.distributed.broadcast_object_list(words, src=0)
    return words[0]


class DisagreementError(errors.MismatchError, RuntimeError):
    """Ranks that have different numbers. RuntimeError is what DeepSpeed raises."""


def assert_ints_same_as_other_ranks(ints: list[int]) -> None:
    """Raises DisagreementError (a RuntimeError) on each rank whose numbers are not rank 0's.
    Collective."""
    first = get_lst_from_rank0(ints)
    if list(ints) != first:
        raise DisagreementError(
            f"rank {distributed.get_rank()} has {ints}, and rank 0 {first}", subject="ints"
        )


def apply_to_tensors_only(
    function: Callable[[torch.Tensor], torch.Tensor], value: Any, warning_msg_fn: Any = None
) -> Any:
    """A nested value with `function` applied to its tensors."""
    return map_nested(value, function)


__all__ = [
    "ZERO_SUPPORTED_OPTIMIZERS",
    "ZeRORuntimeException",
    "apply_to_tensors_only",
    "assert_ints_same_as_other_ranks",
    "get_lst_from_rank0",
    "is_zero_param",
    "is_zero_supported_optimizer",
]
