# SPDX-License-Identifier: Apache-2.0
"""One rank: gathers and reduces units of some MiB with and without codecs, several at once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from counters import repeated, say
from plans import NODE, WORLD

import meron

WARM_UP = 2
# The codec, beside what it is compared with: each collective's own way in 16 bits.
CODECS = {"gather": ("none", "int8"), "reduce": ("bf16", "int4")}


def plan_of(collective: str, codec: str, units: int) -> dict[str, Any]:
    row = "param" if collective == "gather" else "gradient"
    table: dict[str, Any] = {
        "mesh": NODE,
        "param": {"sharding": WORLD},
        "gradient": {"sharding": WORLD},
        "optimizer": {"sharding": WORLD},
        "gradient_buckets": units,
    }
    table[row]["codec"] = codec
    return table


def units_of(context: meron.Context, count: int, elements: int) -> list[meron.Unit]:
    return [
        context.unit(f"unit {i}", [context.param(f"values {i}", elements, "bf16")])
        for i in range(count)
    ]


def gathering(context: meron.Context, units: list[meron.Unit]) -> Callable[[], None]:
    """A step is a new version of every unit, and its gather begun at once."""
    values = np.linspace(-1, 1, units[0].params[0].size, dtype=np.float32)
    for unit in units:
        with context.update([unit]) as update:
            update.write(unit.params[0], values)
        with unit.gather() as full:
            gathered = as_floats(full[unit.params[0]])
            # Of bf16's steps and, where it is encoded, int8's.
            assert np.abs(gathered - values).max() < 1 / 80, "gathered values are wrong"

    def step() -> None:
        gathers = []
        for unit in units:
            with context.update([unit]):
                pass
            gathers.append(unit.gather_begin())
        for gather in gathers:
            gather.wait()
        for gather in gathers:
            gather.release()

    return step


def reducing(context: meron.Context, units: list[meron.Unit]) -> Callable[[], None]:
    """A step is the sum of every unit's gradient."""
    ranks = context.world_size

    def begin(unit: meron.Unit) -> meron.Future:
        unit.gradient(unit.params[0], overwrite=True)  # what it holds does not matter
        return unit.reduce_begin(op="sum")

    for unit in units:
        gradient = np.full(unit.params[0].size, context.rank + 1, np.float32)
        unit.reduce({unit.params[0]: gradient}, op="sum")
        reduced = unit.reduced(unit.params[0])
        assert np.allclose(reduced, ranks * (ranks + 1) / 2, rtol=0.1), "sums are wrong"
        unit.consume()

    def step() -> None:
        futures = [begin(unit) for unit in units]
        for future in futures:
            future.wait()
        for unit in units:
            unit.consume()

    return step


def as_floats(array: Any) -> Any:
    bits = np.asarray(array).view(np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", type=int, default=8)
    parser.add_argument("--elements", type=int, default=4 << 20, help="of a unit")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--least", type=int, default=3)
    options = parser.parse_args()
    series = []
    for _ in range(options.rounds):
        for collective, codecs in CODECS.items():
            for codec in codecs:
                plan = plan_of(collective, codec, options.units)
                with meron.open(plan=plan, threads=1) as context:
                    units = units_of(context, options.units, options.elements)
                    make = gathering if collective == "gather" else reducing
                    step = make(context, units)
                    for _ in range(WARM_UP):
                        step()
                    figures = repeated(context, step, options.seconds, options.least)
                    del step, units
                series.append({"collective": collective, "codec": codec, **figures})
    if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
        say({"series": series})


if __name__ == "__main__":
    main()
