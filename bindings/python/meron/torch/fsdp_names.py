# SPDX-License-Identifier: Apache-2.0
"""FSDP2's methods of a sharded module, which keeps its class: attributes of the module itself.

Those that Meron has as a function call it. The others raise UnsupportedError with what to do. A
module's own method or attribute of such a name stays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from meron import errors
from meron.torch.hooks import Scope

DIVISOR = "Gradients are the mean over ranks: scale the loss."
ORDER = (
    "The schedule prefetches in the order of the last pass; meron.torch.prefetch(module) does so "
    "by hand."
)
STAYS = "Pass reshard_after_forward= to meron.torch.shard."
SCHEDULE = (
    "The schedule keeps a unit unsharded that is used again soon: see max_live_elements= of "
    "meron.torch.shard."
)
REPLICAS = 'Under the plan "mics(N)" replicas reduce at the accumulation boundary.'
TRANSPORT = "Choose transport= of meron.torch.shard."
REFUSED = {
    "set_reshard_after_forward": STAYS,
    "set_reshard_after_backward": SCHEDULE,
    "set_unshard_in_backward": SCHEDULE,
    "set_modules_to_forward_prefetch": ORDER,
    "set_modules_to_backward_prefetch": ORDER,
    "set_gradient_divide_factor": DIVISOR,
    "set_reduce_scatter_divide_factor": DIVISOR,
    "set_force_sum_reduction_for_comms": DIVISOR,
    "set_requires_all_reduce": REPLICAS,
    "set_all_reduce_hook": REPLICAS,
    "set_custom_all_gather": TRANSPORT,
    "set_custom_reduce_scatter": TRANSPORT,
    "set_allocate_memory_from_process_group_for_comm": TRANSPORT,
    "set_post_optim_event": "optimizer.step() publishes the new values when it returns.",
}


def refuse(name: str, *_args: Any, **_kwargs: Any) -> None:
    raise errors.UnsupportedError(
        f"{name}: a method of FSDP2's that Meron does not have",
        operation=name,
        advice=REFUSED[name],
    )


def add_methods(
    module: torch.nn.Module, scope: Scope, functions: dict[str, Callable[..., Any]]
) -> None:
    """Gives a sharded module FSDP2's methods; `functions` take the module first."""
    methods = {name: functools.partial(each, module) for name, each in functions.items()}
    methods.update({name: functools.partial(refuse, name) for name in REFUSED})
    for name, method in methods.items():
        if not hasattr(module, name):
            module.__dict__[name] = method
            scope.added.append(name)
