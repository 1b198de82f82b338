# SPDX-License-Identifier: Apache-2.0
"""The enums of DeepSpeed's config: stages, and where states are offloaded. Pure data."""

from __future__ import annotations

import enum

__all__ = ["OffloadDeviceEnum", "OffloadStateTypeEnum", "ZeroStageEnum"]


class ZeroStageEnum(int, enum.Enum):
    """Stages of zero_optimization. Each shards its states and those of the stages before it."""

    disabled = 0
    optimizer_states = 1
    gradients = 2
    weights = 3
    max_stage = 3  # noqa: PIE796 - another name of it


class OffloadDeviceEnum(str, enum.Enum):
    """Tiers of offloaded states. `engine.offload_states` moves nothing for `cpu`."""

    none = "none"
    cpu = "cpu"
    nvme = "nvme"


class OffloadStateTypeEnum(str, enum.Enum):
    """Kinds of states in calls of `engine.offload_states`. The first two reside and move together;
    the others do not move."""

    optim_states = "optim_states"
    hp_params = "hp_params"
    lp_params = "lp_params"
    lp_grads = "lp_grads"
    contiguous_grad_buffer = "contiguous_grad_buffer"
