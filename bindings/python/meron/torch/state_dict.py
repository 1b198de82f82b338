# SPDX-License-Identifier: Apache-2.0
"""state_dict and load_state_dict of sharded modules hold whole tensors.

Both are collective: a rank that calls them alone waits for the others.
"""

from __future__ import annotations

from typing import Any

import torch

from meron.torch.sharding import placed, unit_of
from meron.torch.whole import exact_param


def hook_state_dict(module: torch.nn.Module) -> None:
    """For a module that owns sharded params itself."""
    module._register_state_dict_hook(save)
    module._register_load_state_dict_pre_hook(before_load, with_module=True)
    module.register_load_state_dict_post_hook(after_load)


def save(module: torch.nn.Module, state: Any, prefix: str, _metadata: Any) -> None:
    """After torch collected a module's own params: whole values in place of placeholders."""
    for name, param in module._parameters.items():
        if param is not None and prefix + name in state and unit_of(param) is not None:
            state[prefix + name] = exact_param(param)


def before_load(
    module: torch.nn.Module,
    state: Any,
    prefix: str,
    _metadata: Any,
    _strict: Any,
    _missing: Any,
    _unexpected: Any,
    _errors: Any,
) -> None:
    """Before torch copies into a module's own params: real memory to copy to."""
    for name, param in module._parameters.items():
        if param is not None and unit_of(param) is not None and prefix + name in state:
            unit, i = placed(param)
            param.data = torch.empty(unit.handles[i].shape, dtype=param.dtype, device="cpu")
            module.__dict__.setdefault("_meron_loading", {})[name] = param


def after_load(module: torch.nn.Module, _keys: Any) -> None:
    """After torch copied: the values go to their owners."""
    for param in module.__dict__.pop("_meron_loading", {}).values():
        unit, i = placed(param)
        value, param.data = param.data, unit.placeholders[i]
        unit.sharding.write(unit, {i: value})
        unit.accept_writes()
