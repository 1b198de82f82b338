# SPDX-License-Identifier: Apache-2.0
"""Many threads of one rank at once: how long does one of them stand still?

    python stall.py [SECONDS]

Sixteen threads gather on the host and on the device with an allocator of Python's, keep NumPy
arrays of what they gather and drop them anywhere, run the collector, and one makes groups. Each
notes the longest of its calls that never block. Prints what each kind of call took at most, and
beside it how late a thread that only sleeps was at most, which is the machine's doing; exits with
1 where a call took longer than 0.1 s and than three times the machine's own stalls.
"""

from __future__ import annotations

import ctypes
import gc
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import meron

STALL = 0.1
GROUPS = 60  # of the 64 that a world may have


class Allocator(meron.DeviceAllocator):
    def __init__(self) -> None:
        self.live: dict[int, Any] = {}

    def allocate(self, size: int, stream: int) -> int:
        raw = (ctypes.c_char * (size + 256))()
        address = (ctypes.addressof(raw) + 255) & ~255
        self.live[address] = raw
        return address

    def release(self, pointer: int, size: int, stream: int) -> None:
        self.live.pop(pointer, None)


class Stalls:
    def __init__(self) -> None:
        self.longest: dict[str, float] = defaultdict(float)
        self.calls = 0

    def time(self, kind: str, call: Callable[..., Any], *arguments: Any) -> Any:
        begun = time.monotonic()
        made = call(*arguments)
        self.longest[kind] = max(self.longest[kind], time.monotonic() - begun)
        self.calls += 1
        return made


def run(seconds: float) -> tuple[Stalls, float]:
    stalls = Stalls()
    end = time.monotonic() + seconds
    failures: list[BaseException] = []
    machine = [0.0]
    context = meron.open(0, 1, "self", device="emulated", allocator=Allocator(), timeout=60)
    units = []
    for i in range(8):
        param = context.param(f"p{i}", (64, 64))
        units.append((context.unit(f"u{i}", [param]), param))
    shared: list[Any] = []  # dropped by any thread

    def drop() -> None:
        shared.pop()

    def gatherer(seed: int) -> None:
        rng = random.Random(seed)
        kept: list[Any] = []
        while time.monotonic() < end:
            unit, param = units[rng.randrange(len(units))]
            tier: Any = rng.choice(["host", "device"])
            gather = unit.gather(tier=tier)
            array = np.from_dlpack(stalls.time("dlpack", gather.dlpack, param))
            if tier == "host":
                stalls.time("view", gather.__getitem__, param)
            stalls.time("release", gather.release)
            (kept if rng.random() < 0.5 else shared).append([array, None])
            stalls.time("info", unit.info)
            if len(kept) > 8:
                cycle = kept.pop(rng.randrange(len(kept)))
                cycle[1] = cycle  # left to the collector
            if len(shared) > 8 and rng.random() < 0.9:
                stalls.time("drop", drop)
            time.sleep(0.001)

    def collector(_seed: int) -> None:
        while time.monotonic() < end:
            gc.collect()
            time.sleep(0.02)

    def grouper(_seed: int) -> None:
        for _ in range(GROUPS):
            if time.monotonic() > end:
                return
            context.group([0])
            time.sleep(seconds / GROUPS)

    def idler(_seed: int) -> None:
        last = time.monotonic()
        while time.monotonic() < end:
            time.sleep(0.001)
            now = time.monotonic()
            machine[0] = max(machine[0], now - last)
            last = now

    def guarded(body: Callable[[int], None], seed: int) -> None:
        try:
            body(seed)
        except BaseException as error:
            failures.append(error)

    bodies = [gatherer] * 13 + [collector, grouper, idler]
    threads = [
        threading.Thread(target=guarded, args=(body, seed)) for seed, body in enumerate(bodies)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 60)
        if thread.is_alive():
            raise AssertionError("a thread hangs")
    if failures:
        raise failures[0]
    shared.clear()
    gc.collect()
    leases = [unit.info().leases for unit, _ in units]
    context.close()
    assert not any(leases), leases
    return stalls, machine[0]


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    stalls, machine = run(seconds)
    for kind, longest in sorted(stalls.longest.items()):
        print(f"{kind:8} {longest * 1e3:8.1f} ms at most")
    print(f"{'sleep':8} {machine * 1e3:8.1f} ms late at most (the machine)")
    print(f"{stalls.calls} calls in {seconds:g} s")
    return 1 if max(stalls.longest.values()) > max(STALL, 3 * machine) else 0


if __name__ == "__main__":
    sys.exit(main())
