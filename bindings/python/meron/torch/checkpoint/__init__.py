# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of sharded models, and pretrained weights. docs/torch.md shows how."""

from __future__ import annotations

from meron.torch.checkpoint import torch_functions  # noqa: F401  (dcp's functions see shards)
from meron.torch.checkpoint.agreement import LoadError
from meron.torch.checkpoint.dcp import SaveToDcp, dcp_load, dcp_save
from meron.torch.checkpoint.export import save_pretrained
from meron.torch.checkpoint.load import Loaded, load
from meron.torch.checkpoint.model_state import get_model_state_dict, set_model_state_dict
from meron.torch.checkpoint.optimizer_state import (
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from meron.torch.checkpoint.pretrained import load_pretrained
from meron.torch.checkpoint.save import SaveHandle, save
from meron.torch.flat_shard import FlatShard

__all__ = [
    "FlatShard",
    "LoadError",
    "Loaded",
    "SaveHandle",
    "SaveToDcp",
    "dcp_load",
    "dcp_save",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "load",
    "load_pretrained",
    "save",
    "save_pretrained",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]
