# SPDX-License-Identifier: Apache-2.0
"""A program that mypy checks and nothing runs: each wrong line is one that mypy finds.

mypy also reports a `type: ignore` that is not needed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import meron


def right(ctx: meron.Context, array: npt.NDArray[np.float32]) -> None:
    weight = ctx.param("w", (4, 4), "bf16", frozen=False)
    ctx.param("x", np.int64(4), np.float32)
    unit = ctx.unit("u", [weight, *ctx.params.values()])
    with ctx.update([unit]) as update:
        update.write("w", array)
    with unit.gather("copy") as full:
        total: float = full["w"].sum() + full[weight].sum()
        shapes = {name: values.shape for name, values in full.items()}
    unit.reduce({"w": array}, op="sum", boundary=len(shapes) > 1)
    optimizer = ctx.sgd([unit], 0.1)
    optimizer.max_norm = 1.0
    optimizer.state("w", "exp_avg")
    loss: float = ctx.world.all_reduce(total, "max")
    count: int = ctx.world.all_reduce(3)
    print(loss, count, np.zeros(weight.shape, weight.dtype), weight.dtype_name == "bf16")


async def awaited(ctx: meron.Context, unit: meron.Unit) -> meron.Gather:
    await ctx.world.barrier_begin()
    return await unit.gather_begin()


def wrong(ctx: meron.Context, unit: meron.Unit, param: meron.Param) -> None:
    meron.open(plan="zero9")  # type: ignore[arg-type]
    ctx.param("x", 4, "float64")  # type: ignore[arg-type]
    ctx.param("x", 4, "f32", True)  # type: ignore[call-arg]
    unit.gather("writable")  # type: ignore[arg-type]
    unit.gather(tier="gpu")  # type: ignore[arg-type]
    unit.reduce({param: np.ones(4)}, op="avg")  # type: ignore[arg-type]
    unit.reduce({param: np.ones(4)}, op="max")  # type: ignore[arg-type]
    ctx.world.all_reduce(np.ones(4), "median")  # type: ignore[call-overload]
    ctx.schedule([unit], tier="gpu")  # type: ignore[arg-type]
    optimizer = ctx.adamw([unit])
    optimizer.learning_rate = 0.1  # type: ignore[attr-defined]
    optimizer.state(param, "momentum")  # type: ignore[arg-type]
    number: int = unit.gather()[param]  # type: ignore[assignment]
    print(number, unit.info().state == "ready")  # type: ignore[comparison-overlap]
