# SPDX-License-Identifier: Apache-2.0
"""Counters around the steps of both rank programs, and their sum over ranks."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import meron

DEVICE = "eth0"  # of a host made by tests/distributed/hosts
now = time.perf_counter


def device_bytes() -> int:
    """Bytes that this host's network device has sent, with headers. It has received as many."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == DEVICE:
            return int(counts.split()[8])
    return 0


def user_seconds() -> float:
    """CPU seconds that all programs of this machine have used."""
    words = Path("/proc/stat").read_text().split(maxsplit=3)
    return (int(words[1]) + int(words[2])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Counts:
    gathered: int
    reduced: int
    operations: int
    wait_ns: int
    on_device: int
    processor: float  # seconds of this process's threads, the kernel's work for them included
    own_user: float
    all_user: float


def counts_of(context: meron.Context) -> Counts:
    stats, times = context.stats(), os.times()
    return Counts(
        stats.inter_node_gather_bytes,
        stats.inter_node_reduce_bytes,
        stats.operations,
        stats.wait_ns,
        device_bytes(),
        times.user + times.system,
        times.user,
        user_seconds(),
    )


def summed(context: meron.Context, values: list[float]) -> list[float]:
    """Over the ranks, as doubles: all-reduce sums in f32, so each rank has a place of its own."""
    table = np.zeros((context.world_size, 3, len(values)), np.float32)
    left = np.array(values, np.float64)
    for place in range(3):
        table[context.rank, place] = left
        left -= table[context.rank, place]
    context.world.all_reduce(table)
    total: list[float] = table.astype(np.float64).sum((0, 1)).tolist()
    return total


def repeated(context: meron.Context, step: Callable[[], None], seconds: float, least: int) -> Any:
    """Runs a step as often as rank 0 has time for, and gives what happened per step.

    Bytes, operations and seconds are means over ranks; bytes on the device over hosts. The times
    are this rank's.
    """
    begun = now()
    step()
    wanted = np.array([now() - begun], np.float32)
    context.world.broadcast(wanted)
    count = max(least, min(200, int(seconds / float(wanted[0]))))
    context.world.barrier()
    before, times = counts_of(context), []
    for _ in range(count):
        begun = now()
        step()
        times.append(now() - begun)
    context.world.barrier()
    after = counts_of(context)
    keys = [key for key in vars(before) if key != "all_user"]
    grown = [getattr(after, key) - getattr(before, key) for key in keys]
    mean = [value / context.world_size / count for value in summed(context, grown)]
    result: dict[str, Any] = dict(zip(keys, mean, strict=True))
    others = after.all_user - before.all_user - result.pop("own_user") * context.world_size * count
    cores = os.cpu_count() or 1
    result["others"] = max(0.0, others / sum(times) / cores)  # share of the machine
    result["wait_ms"] = result.pop("wait_ns") / 1e6
    result["processor_ms"] = result.pop("processor") * 1e3
    result["steps"] = count
    result["ms"] = [time * 1e3 for time in times]
    return result


def say(figures: Any) -> None:
    """In one write: other ranks, and libraries, write too."""
    sys.stdout.write("\n" + json.dumps(figures) + "\n")
    sys.stdout.flush()
