# SPDX-License-Identifier: Apache-2.0
"""The figures of a context: counted, and predicted by its plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from meron._values import Counted, Prediction

__all__ = ["Prediction", "Stats"]


@dataclass(frozen=True)
class Stats(Counted):
    """Counters since the context was opened, and the memory in use now, in bytes."""

    # Whole gradients of meron.torch in `param.grad`, of params that are sharded: now; and the most
    # so far of units whose gradients were complete. Zero where meron.torch is not used.
    caller_gradient_bytes: int = field(default=0, metadata={"of": "python"})
    caller_gradient_peak_bytes: int = field(default=0, metadata={"of": "python"})
