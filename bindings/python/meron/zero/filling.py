# SPDX-License-Identifier: Apache-2.0
"""Code that initialises a model that is sharded already: Module.apply, and `_init_weights`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

from meron.torch.guard import skip_writes
from meron.torch.sharding import Sharding, unit_of
from meron.torch.torch_internals import own_params
from meron.torch.unit import ShardedUnit
from meron.torch.wrap import is_sharded
from meron.zero.gathered import ImplicitGather, LazyGather, is_open

# Attribute that Hugging Face sets on params with loaded values. Its initialisation skips them.
LOADED = "_is_hf_initialized"


def keep_loaded() -> contextlib.AbstractContextManager[None]:
    """Within it, initialisation leaves sharded params alone whose values are in files, as it leaves
    DeepSpeed's. Those that are gathered can be written."""
    return skip_writes(lambda param: getattr(param, LOADED, False))


def apply_whole(
    module: torch.nn.Module,
    function: Callable[[torch.nn.Module], Any],
    plain: Callable[[torch.nn.Module, Any], torch.nn.Module],
    sharding: Sharding | None,
) -> torch.nn.Module:
    """Module.apply with params whole for the function; rank 0's changes count. Collective."""
    if not any(is_sharded(part) for part in module.modules()):
        return plain(module, function)
    for child in module.children():
        apply_whole(child, function, plain, sharding)
    with LazyGather(sharding):
        closed = [param for param in own_params(module).values() if param is not None]
        with ImplicitGather(not_gathered(closed)):
            function(module)
    return module


def not_gathered(params: list[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    """Without those that a context around has gathered."""

    def free(param: torch.nn.Parameter) -> bool:
        place = unit_of(param)
        return place is not None and not is_open(place)

    return [param for param in params if free(param)]


class GatherUnloaded(LazyGather):
    """Gathers units that have params without loaded values."""

    def use_of_other(self, unit: ShardedUnit) -> None:
        if not all(getattr(param, LOADED, False) for param in unit.params):
            super().use_of_other(unit)


def fill_weights(
    plain: Callable[..., Any], current: Callable[[], Sharding | None]
) -> Callable[..., Any]:
    """Wraps `_init_weights(module)` of a model: it sees full params, and rank 0's changes are kept.
    Each call gathers only the params that it uses, so one unit is full at a time.

    Args:
        current: the sharding at the time of a call; None if nothing is sharded yet.
    """

    @functools.wraps(plain)
    def fill(model: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        with GatherUnloaded(current()):
            return plain(model, *args, **kwargs)

    return fill
