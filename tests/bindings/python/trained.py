# SPDX-License-Identifier: Apache-2.0
"""Trains two params on a rank. As a program, prints a digest of one."""

from __future__ import annotations

import hashlib

import numpy as np

import meron


def train() -> str:
    """Returns a digest of the full param, which has the same bits on all ranks."""
    with meron.open(timeout=20) as ctx:
        assert ctx.transport == "shm" or ctx.world_size == 1
        weight = ctx.param("w", (33, 7))
        bias = ctx.param("b", (5,), "bf16")
        unit = ctx.unit("u", [weight, bias])
        with ctx.update([unit]) as update:
            update.write(weight, np.linspace(-1, 1, weight.size).reshape(weight.shape))
            update.write(bias, np.ones(5))
        optimizer = ctx.adamw([unit], lr=0.01, max_norm=1.0)
        for step in range(5):
            with unit.gather() as full:
                grad = np.sin(full[weight] * (step + 1))
            unit.gradient(weight)[:] = grad
            unit.reduce()
            optimizer.step()
        with unit.gather("copy") as full:
            digest = hashlib.sha256(full[weight].tobytes()).hexdigest()
        loss = np.array([ctx.rank], np.float32)
        assert ctx.world.all_reduce(loss)[0] == sum(range(ctx.world_size))
        return digest


if __name__ == "__main__":
    print(train())
