# SPDX-License-Identifier: Apache-2.0
"""Params that a module uses and another one owns.

Most are seen by themselves: an access to `other.weight` in a forward, and a param that a forward
returns. Those that reach a module otherwise (in a closure, a list) are registered here.
"""

from __future__ import annotations

import torch

from meron import errors
from meron.torch.hooks import Scope
from meron.torch.sharding import Sharding, sharding_with, unit_of
from meron.torch.torch_internals import own_params
from meron.torch.wrap import scope_of


def register_external_parameter(module: torch.nn.Module, parameter: torch.nn.Parameter) -> None:
    """Gathers a param during each forward and backward of a module that does not own it.

    Before the model is sharded too: it is remembered.

    Raises ArgumentError for something that is no Parameter.
    """
    if not isinstance(parameter, torch.nn.Parameter):
        raise errors.argument(
            f"an external parameter is a torch.nn.Parameter, not a {type(parameter).__name__}"
        )
    wanted: dict[int, torch.nn.Parameter] = module.__dict__.setdefault("_meron_external", {})
    wanted[id(parameter)] = parameter
    place = unit_of(parameter)
    if place is not None:
        hook_external(sharding_with(place[0]), module)


def unregister_external_parameter(module: torch.nn.Module, parameter: torch.nn.Parameter) -> None:
    """Undoes register_external_parameter. ArgumentError when it was not registered."""
    wanted: dict[int, torch.nn.Parameter] = module.__dict__.get("_meron_external", {})
    if wanted.pop(id(parameter), None) is None:
        raise errors.argument("this param is not registered with the module")
    scope, place = scope_of(module), unit_of(parameter)
    if scope is None or place is None:
        return
    needed = [
        unit_of(param)
        for param in (*own_params(module).values(), *wanted.values())
        if param is not None
    ]
    if not any(other is not None and other[0] is place[0] for other in needed):
        scope.units = [unit for unit in scope.units if unit is not place[0]]


def hook_external(sharding: Sharding, module: torch.nn.Module) -> None:
    """Adds the units of registered params to what a module uses."""
    for param in module.__dict__.get("_meron_external", {}).values():
        place = unit_of(param)
        if place is None:
            continue
        scope = scope_of(module)
        if scope is None:
            scope = Scope(sharding, module, [], True, None)
            module.__dict__["_meron_scope"] = scope
        if place[0] not in scope.units:
            scope.units.append(place[0])
