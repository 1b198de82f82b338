# SPDX-License-Identifier: Apache-2.0
"""The enums of DeepSpeed's config: stages, and where states are offloaded. Pure data."""

from __future__ import annotations

import enum

__all__ = ["OffloadDeviceEnum", "OffloadStateTypeEnum", "ZeroStageEnum"]


class ZeroStageEnum(int, enum.Enum):
    """Stages of zero_optimization, by what they shard besides what the stages before do."""

    disabled = 0
    optimizer_states = 1
    gradients = 2
    weights = 3
    max_stage = 3  # noqa: PIE796 - another name of it


class OffloadDeviceEnum(str, enum.Enum):
    """Where offloaded states reside. Those on the host are there already: `cpu` moves nothing."""

    none = "none"
    cpu = "cpu"
    nvme = "nvme"


class OffloadStateTypeEnum(str, enum.Enum):
    """What `engine.offload_states` may move. The first two reside together and move together; the
    others stay."""

    optim_states = "optim_states"
    hp_params = "hp_params"
    lp_params = "lp_params"
    lp_grads = "lp_grads"
    contiguous_grad_buffer = "contiguous_grad_buffer"
