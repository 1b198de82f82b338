# SPDX-License-Identifier: Apache-2.0
"""copy.deepcopy of sharded modules: within zero.Init, where layers are often made of copies."""

from __future__ import annotations

import copy
from typing import Any

import torch

from meron.torch.sharding import unit_of
from meron.torch.state import full_param
from meron.zero.gathered import opened

# What sharding put into a module's __dict__.
MARKS = ("_meron_scope", "_meron_engine", "_apply", "_call_impl")


def copy_unsharded(module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    """A copy of a module whose own params are whole and not sharded. Collective.

    Parts are copied by copy.deepcopy, ties among what `memo` holds stay.
    """
    result = type(module).__new__(type(module))
    memo[id(module)] = result
    state = {key: value for key, value in module.__dict__.items() if key not in MARKS}
    params = state.pop("_parameters")
    state["_parameters"] = {}
    for param in params.values():
        if param is not None and unit_of(param) is not None and id(param) not in memo:
            memo[id(param)] = whole_copy(param)
    result.__dict__.update(copy.deepcopy(state, memo))
    for name, param in params.items():
        result.__dict__["_parameters"][name] = copy.deepcopy(param, memo)
    return result


def whole_copy(param: torch.nn.Parameter) -> torch.nn.Parameter:
    place = unit_of(param)
    assert place is not None
    gathered = place[0] in opened and place[1] in opened[place[0]].indices
    value = param.detach().clone() if gathered else full_param(param)
    return torch.nn.Parameter(value, param.requires_grad)
