# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of sharded models, and pretrained weights. docs/torch.md shows how."""

from __future__ import annotations

from meron.torch.checkpoint.agreement import LoadError
from meron.torch.checkpoint.export import save_pretrained
from meron.torch.checkpoint.full import get_optimizer_state_dict, set_optimizer_state_dict
from meron.torch.checkpoint.load import Loaded, load
from meron.torch.checkpoint.pretrained import load_pretrained
from meron.torch.checkpoint.save import SaveHandle, save

__all__ = [
    "LoadError",
    "Loaded",
    "SaveHandle",
    "get_optimizer_state_dict",
    "load",
    "load_pretrained",
    "save",
    "save_pretrained",
    "set_optimizer_state_dict",
]
