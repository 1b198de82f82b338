# SPDX-License-Identifier: Apache-2.0
"""Module.load_state_dict within GatheredParameters: local, into the copies that are written at its
end. As of DeepSpeed's users, rank 0 may call it alone there."""

from __future__ import annotations

import functools
from typing import Any

import torch

from meron.torch import state_dict as sharded
from meron.zero.gathered import is_open

load_sharded = sharded.load_state_dict


@functools.wraps(load_sharded)
def load_state_dict(
    self: torch.nn.Module, state_dict: Any, strict: bool = True, assign: bool = False
) -> Any:
    if not opened_below(self):
        return load_sharded(self, state_dict, strict, assign)
    # Without `assign`: params that are gathered stay the model's.
    return sharded.plain_load(self, state_dict, strict, False)


def opened_below(module: torch.nn.Module) -> bool:
    """True if a module has sharded params and all of them are gathered."""
    places = list(sharded.sharded_params(module))
    return bool(places) and all(is_open(place) for place in places)


torch.nn.Module.load_state_dict = load_state_dict  # type: ignore[method-assign]
