# SPDX-License-Identifier: Apache-2.0
"""Numbers of a schedule, checked."""

from __future__ import annotations

import logging
import math
from typing import Any

import torch

from meron import errors

logger = logging.getLogger("meron.zero")


def current_rates(optimizer: torch.optim.Optimizer) -> list[float]:
    """The learning rates of the param groups, as numbers: they may be tensors."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def warmup(step: int, steps: int, kind: str) -> float:
    """From 0 at step 0 to 1 at step `steps`, by a logarithm or a line."""
    if step >= steps:
        return 1.0
    return math.log(step + 1) / math.log(steps) if kind == "log" else step / steps


def number(value: Any, name: str, below: float = math.inf, low: float = 0.0) -> float:
    """A number of at least `low` and less than `below`."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not (math.isfinite(found) and low <= found < below):
        limit = "a finite number" if below == math.inf else f"a number below {below:g}"
        least = f", {low:g} or more" if math.isfinite(low) else ""
        raise errors.argument(f"{name} is {value!r}: it must be {limit}{least}", name)
    return found


def whole(value: Any, name: str, low: int) -> int:
    """A whole number of at least `low`; 1e3 is one too."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or value != int(value) or value < low:
        raise errors.argument(
            f"{name} is {value!r}: it must be a whole number, {low} or more", name
        )
    return int(value)


def positive(value: Any, name: str) -> float:
    if not number(value, name):
        raise errors.argument(f"{name} is {value!r}: it must be above 0", name)
    return float(value)


def check_total(kind: str, warmup: int, total: int) -> None:
    """Warns of a schedule that ends before its warm-up does."""
    if total < warmup:
        logger.warning("%s warms up for %d steps, of %d in total", kind, warmup, total)


def check_kind(kind: str) -> str:
    if kind not in ("log", "linear"):
        raise errors.argument(f"warmup_type {kind!r}: log and linear are known", "warmup_type")
    return kind
