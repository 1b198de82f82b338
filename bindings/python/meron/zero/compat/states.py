# SPDX-License-Identifier: Apache-2.0
"""Enums of deepspeed.runtime.zero: strings that name tiers, states and stages."""

from __future__ import annotations

import enum


class OffloadDeviceEnum(str, enum.Enum):
    """Where offload_optimizer and offload_param put states."""

    none = "none"
    cpu = "cpu"
    nvme = "nvme"


class OffloadStateTypeEnum(str, enum.Enum):
    """What engine.offload_states moves."""

    optim_states = "optim_states"
    hp_params = "hp_params"
    lp_params = "lp_params"
    lp_grads = "lp_grads"
    contiguous_grad_buffer = "contiguous_grad_buffer"


class ZeroStageEnum(int, enum.Enum):
    """The stages of zero_optimization."""

    disabled = 0
    optimizer_states = 1
    gradients = 2
    weights = 3
    max_stage = 3  # noqa: PIE796
