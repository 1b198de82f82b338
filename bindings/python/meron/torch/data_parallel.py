# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel and shard exclude each other: each reduces the gradients of its params,
and a param that both had would be reduced twice."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable
from typing import Any

import torch

from meron import errors
from meron.torch import registry
from meron.torch.sharding import unit_of
from meron.torch.torch_internals import DDP_IGNORED, fully_sharded_class

DistributedDataParallel: Any = torch.nn.parallel.DistributedDataParallel
plain_init = DistributedDataParallel.__init__
ADVICE = (
    "Pass meron.torch.shard the model itself, and leave DistributedDataParallel out: the plan "
    "'zero0' keeps params on every rank as it does."
)


@functools.wraps(plain_init)
def init(self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
    """As PyTorch's. StateError for a module with sharded params, before anything is changed."""
    ignored = getattr(module, DDP_IGNORED, ())
    for name, param in module.named_parameters():
        place = unit_of(param)
        if place is not None and name not in ignored:
            subject = place[0].handles[place[1]].name
            raise errors.StateError(
                f"DistributedDataParallel around {type(module).__name__}: '{subject}' is sharded "
                "already, and its gradient reduced",
                subject=subject,
                advice=ADVICE,
            )
    plain_init(self, module, *args, **kwargs)
    registry.data_parallel.add(self)


def refuse_wrappers(module: torch.nn.Module) -> None:
    """StateError for a module that is or has a wrapper of another library of data parallelism."""
    others = (DistributedDataParallel, fully_sharded_class())
    for path, part in module.named_modules():
        if isinstance(part, others):
            kind = type(part).__name__
            where = f"'{path}' of {type(module).__name__}" if path else "the module"
            raise errors.StateError(
                f"{where} is a {kind}, which reduces the gradients of its params already",
                subject=kind,
                advice=ADVICE,
            )


def refuse_wrapped(name: str, params: Iterable[torch.Tensor]) -> None:
    """StateError for params of a module that a DistributedDataParallel is around."""
    if not registry.data_parallel:
        return
    wrapped = {
        id(param)
        for wrapper in list(registry.data_parallel)
        for own, param in wrapper.module.named_parameters()
        if own not in wrapper.parameters_to_ignore
    }
    if any(id(param) in wrapped for param in params):
        raise errors.StateError(
            f"a DistributedDataParallel is around {name}, and reduces the gradients of its params",
            subject=name,
            advice=ADVICE + " Delete the wrapper that exists.",
        )


if torch.distributed.is_available() and torch.distributed.is_initialized():
    for each in gc.get_objects():  # made before this module was imported
        if issubclass(type(each), DistributedDataParallel):
            registry.data_parallel.add(each)
DistributedDataParallel.__init__ = init
