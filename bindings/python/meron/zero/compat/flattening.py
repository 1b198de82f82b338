# SPDX-License-Identifier: Apache-2.0
"""The operators of DeepSpeed's UtilsBuilder: flatten, unflatten, and tensors as bytes."""

from __future__ import annotations

from typing import Any

import torch

from meron.torch.torch_internals import flatten_dense as flatten
from meron.torch.torch_internals import unflatten_dense as unflatten


def cast_to_byte_tensor(tensors: Any) -> Any:
    """A flat view of a tensor's bytes, or one for each tensor of a list."""
    if isinstance(tensors, (list, tuple)):
        return [cast_to_byte_tensor(tensor) for tensor in tensors]
    return tensors.reshape(-1).view(torch.uint8)


__all__ = ["cast_to_byte_tensor", "flatten", "unflatten"]
