# SPDX-License-Identifier: Apache-2.0
"""Lets ranks agree on the params that have a gradient on some rank."""

from __future__ import annotations

import numpy as np

import meron
from meron.torch.unit import ShardedUnit

LEFT = 4096.0  # of ranks: a gradient that is still this rank's own, beside those that are not


def gradient_flags(
    context: meron.Context, units: list[ShardedUnit]
) -> tuple[list[float], list[float], list[float]]:
    """For each trainable param of some units, LEFT, 1 or 0: of this rank, and the sum of all ranks;
    and for each unit how many ranks had gradients again after all of them. Collective."""
    own: list[float] = []
    for unit in units:
        gradients = unit.gradients
        seen = gradients.seen
        every = len(seen) == gradients.wanted
        for i, (param, _, _) in zip(gradients.trainable, gradients.sources.places):
            left = param.grad is not None
            own.append(LEFT if left else 1.0 if every or i in seen else 0.0)
    again = [float(unit.gradients.again) for unit in units]
    if context.world_size == 1:
        return own, own, again
    shared = np.array(own + again, np.float32)
    context.world.all_reduce(shared)
    return own, shared[: len(own)].tolist(), shared[len(own) :].tolist()
