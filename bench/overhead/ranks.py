# SPDX-License-Identifier: Apache-2.0
"""Measures the caller's cost to gather an available unit through the Python layer.

The counterpart of overhead.cpp: `meron run -n N -- python3 ranks.py [--quick]`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from itertools import repeat
from time import perf_counter_ns
from typing import Any

import meron


def gather(unit: meron.Unit, times: int) -> None:
    """The loop itself costs some ten nanoseconds, which are counted."""
    for _ in repeat(None, times):
        with unit.gather():
            pass


def interruptions() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def measure(
    context: meron.Context, unit: meron.Unit, largest: Callable[[float], float], quick: bool
) -> tuple[list[float], int]:
    """Microseconds of each batch on its slowest rank, and how many batches were disturbed."""
    times, batches = (200, 3) if quick else (1000, 25)
    gather(unit, times)
    microseconds, disturbed = [], 0
    for _ in range(batches):
        context.world.barrier()
        before = interruptions()
        begin = perf_counter_ns()
        gather(unit, times)
        took = perf_counter_ns() - begin
        disturbed += largest(interruptions() - before) > 0
        microseconds.append(largest(took) / times / 1000)
    return microseconds, disturbed


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    with meron.open() as context:
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) >= context.world_size:
            os.sched_setaffinity(0, {cpus[context.rank]})

        def largest(value: float) -> float:
            import numpy as np

            values = np.zeros(context.world_size, np.float32)
            values[context.rank] = value
            context.world.all_reduce(values, op="sum")
            return float(values.max())

        unit = context.unit("tensor", [context.param("tensor", (1024,))])
        series: list[dict[str, Any]] = []
        disturbed = batches = 0
        for arm in ("only lease", "leased already"):
            held = unit.gather().__enter__() if arm == "leased already" else None
            microseconds, count = measure(context, unit, largest, quick)
            if held is not None:
                held.release()
            disturbed += count
            batches += len(microseconds)
            series.append({"arm": arm, "bytes": 0, "us": microseconds})
        if context.rank == 0:
            print(json.dumps({"disturbed": disturbed / batches, "series": series}))
        context.world.barrier()


if __name__ == "__main__":
    main()
