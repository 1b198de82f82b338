# SPDX-License-Identifier: Apache-2.0
"""PEFT's modules_to_save: rank 0 alone reads the keys of a module's state dict when it saves.

`ModulesToSaveWrapper.adapter_state_dict(name, state_dict)` picks tensors from a state dict that all
ranks have made together, by the keys of `module.state_dict()`. That call is collective in Meron, so
it is made local here.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from meron.torch.state_dict import without_values

METHODS = ("adapter_state_dict", "adapter_state_dict_load_map")
wrapped: set[Any] = set()


def read_keys_locally(model: torch.nn.Module) -> None:
    """Makes those methods local for the classes of a model's parts that have them."""
    for kind in dict.fromkeys(type(part) for part in model.modules()):
        for owner in kind.__mro__:
            for name in METHODS:
                plain = owner.__dict__.get(name)
                if callable(plain) and (owner, name) not in wrapped:
                    wrapped.add((owner, name))
                    setattr(owner, name, local(plain))


def local(plain: Any) -> Any:
    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        with without_values():
            return plain(*args, **kwargs)

    return call
