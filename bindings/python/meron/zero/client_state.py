# SPDX-License-Identifier: Apache-2.0
"""The client state of a checkpoint, as JSON with tensors beside it. Nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from meron import errors
from meron.torch.checkpoint import packing

TENSOR = "$meron.tensor"  # the only key of what stands for a tensor


def pack(state: Any) -> tuple[str, dict[str, torch.Tensor]]:
    """A client state as text, and its tensors by name.

    Raises ArgumentError naming the key of a value that is no number, text, list, dict or tensor.
    """
    if not isinstance(state, Mapping):
        raise errors.argument(
            f"client_state is a {type(state).__name__}, no dict", subject="client_state"
        )
    tensors: dict[str, torch.Tensor] = {}
    return packing.dumps(without_tensors(dict(state), tensors), "client_state"), tensors


def without_tensors(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        name = f"client_state.{len(tensors)}"
        tensors[name] = value
        return {TENSOR: name}
    if type(value) in (list, tuple):
        return type(value)(without_tensors(item, tensors) for item in value)
    if isinstance(value, Mapping) and any(contains_tensor(item) for item in value.values()):
        return {key: without_tensors(item, tensors) for key, item in value.items()}
    return value


def contains_tensor(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(contains_tensor(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(contains_tensor(item) for item in value)
    return isinstance(value, torch.Tensor)


def unpack(text: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Reverses `pack`. Raises ParseError for any other text, and if a tensor is missing."""
    state = packing.loads(text, "client_state")
    try:
        if not isinstance(state, dict):
            raise TypeError(f"it is a {type(state).__name__}, no dict")
        found: dict[str, Any] = with_tensors(state, tensors)
        return found
    except (TypeError, LookupError) as error:
        raise packing.unreadable("client_state", error) from error


def with_tensors(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if type(value) is dict:
        if set(value) == {TENSOR}:
            return tensors[value[TENSOR]]
        return {key: with_tensors(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(with_tensors(item, tensors) for item in value)
    return value
