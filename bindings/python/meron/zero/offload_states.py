# SPDX-License-Identifier: Apache-2.0
"""States of a trained engine that leave memory for a phase, as DeepSpeed's offload_states does."""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Any

import meron.torch as mt
from meron import errors
from meron.zero.config.enums import OffloadDeviceEnum, OffloadStateTypeEnum
from meron.zero.units import make_folders

logger = logging.getLogger("meron.zero")

__all__ = ["OffloadDeviceEnum", "OffloadStateTypeEnum"]


MOVED = {OffloadStateTypeEnum.optim_states, OffloadStateTypeEnum.hp_params}


def kinds_of(include: Container[Any] | None) -> set[OffloadStateTypeEnum]:
    if include is None:
        return set(OffloadStateTypeEnum)
    try:
        return {OffloadStateTypeEnum(kind) for kind in include}  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        known = ", ".join(kind.value for kind in OffloadStateTypeEnum)
        raise errors.argument(
            f"include is {include!r}: kinds of states are {known}", subject="include"
        ) from None


def rule_of(optimizer: Any) -> mt.EngineOptimizer:
    if isinstance(optimizer, mt.EngineOptimizer):
        return optimizer
    raise errors.UnsupportedError(
        f"the states of {type(optimizer).__name__} are torch's own, and cannot move to a drive"
        if optimizer is not None
        else "the engine has no optimizer, and so no states",
        operation="offload_states",
        advice="Name an optimizer in the config, or pass one of meron.torch: its states are the "
        "engine's.",
    )


def offload(optimizer: Any, include: Any, device: Any, folder: str | None) -> bool:
    """Moves states to nvme. Returns False if nothing moves, because of `include` or `device`."""
    kinds = kinds_of(include)
    try:
        where = OffloadDeviceEnum(device)
    except ValueError:
        raise errors.argument(f"device is {device!r}: cpu and nvme are known", "device") from None
    if where is not OffloadDeviceEnum.nvme:
        logger.info("offload_states: states reside in host memory already; device nvme moves them")
        return False
    rule = rule_of(optimizer)
    if kinds & MOVED:
        if folder is not None:
            make_folders([folder])
        rule.engine.offload(folder)
    staying = sorted(kind.value for kind in kinds - MOVED)
    if staying:
        logger.info("offload_states: in memory stay %s", ", ".join(staying))
    return bool(kinds & MOVED)
