# SPDX-License-Identifier: Apache-2.0
"""Only the thread that requested a callback, a wait or a kernel waits for it."""

from __future__ import annotations

import ctypes
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import ranks
import stall
from test_interrupt import after, interrupt, with_a_silent_peer

import meron

# Callbacks and absences last so long, and what must not wait for them takes less, also where the
# machine is busy.
LONG = 0.8
SHORT = 0.25

DEVICES = {
    "preset": "zero3",
    "param": {"tier": "device"},
    "gradient": {"tier": "device"},
    "optimizer": {"tier": "device"},
}


class Allocator(meron.DeviceAllocator):
    """Memory of the host, as the emulated device's is."""

    def __init__(self) -> None:
        self.live: dict[int, Any] = {}
        self.entered = threading.Event()
        self.during: Callable[[], object] = lambda: None

    def allocate(self, size: int, stream: int) -> int:
        raw = (ctypes.c_char * (size + 256))()
        address = (ctypes.addressof(raw) + 255) & ~255
        self.live[address] = raw
        self.entered.set()
        self.during()
        return address

    def release(self, pointer: int, size: int, stream: int) -> None:
        self.live.pop(pointer, None)


class Longest:
    """The longest of some calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def time(self) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.seconds = max(self.seconds, time.monotonic() - begun)


@contextmanager
def calling(what: Callable[[], object]) -> Iterator[Longest]:
    """Another thread calls `what` again and again meanwhile."""
    longest = Longest()
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            with longest.time():
                what()
            time.sleep(0.002)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield longest
    finally:
        done.set()
        thread.join(LONG)
        if thread.is_alive():
            longest.seconds = LONG


def unit_of(ctx: meron.Context, name: str, count: int = 64) -> tuple[meron.Unit, meron.Param]:
    param = ctx.param(name, (count,))
    return ctx.unit(f"unit {name}", [param]), param


@pytest.mark.parametrize("tier", ["device", "host"])
def test_a_tensor_is_dropped_while_an_allocator_takes_its_time(tier: Any) -> None:
    allocator = Allocator()
    with meron.open(0, 1, "self", device="emulated", allocator=allocator, timeout=20) as ctx:
        unit, param = unit_of(ctx, "kept")
        other, _ = unit_of(ctx, "other")
        with unit.gather(tier=tier) as values:
            tensors = [np.from_dlpack(values.dlpack(param)) for _ in range(3)]
        assert unit.info().leases == 3
        allocator.entered.clear()
        # The callback releases the GIL, and the thread that drops a tensor holds it meanwhile.
        allocator.during = lambda: time.sleep(LONG)
        thread = threading.Thread(target=lambda: other.gather().release())
        thread.start()
        assert allocator.entered.wait(5)
        drop, look = Longest(), Longest()
        while tensors:
            with drop.time():
                tensors.pop()
        with look.time():
            assert unit.info().leases == 0
        thread.join()
        assert max(drop.seconds, look.seconds) < SHORT
    assert not allocator.live


def test_an_allocator_may_look_and_begins_nothing() -> None:
    allocator = Allocator()
    plan = {**DEVICES, "gradient": {"tier": "device"}}
    with meron.open(
        0, 1, "self", plan=plan, device="emulated", allocator=allocator, timeout=20
    ) as ctx:
        unit, _ = unit_of(ctx, "u")
        refusals = []

        def look() -> None:
            allocator.during = lambda: None
            assert unit.info().version == 0
            with pytest.raises(meron.StateError) as refused:
                ctx.param("from within", (4,))
            refusals.append(str(refused.value))

        allocator.during = look
        unit_of(ctx, "another")  # which asks for memory of the device
        assert len(refusals) == 1
        assert "which may only look and release" in refusals[0]
        ctx.param("from within", (4,))


def test_a_log_may_call_back_while_devices_join() -> None:
    heard: list[str] = []

    def body(ctx: meron.Context) -> None:
        unit, _ = unit_of(ctx, "u")
        units[ctx.rank] = unit
        ctx.world.barrier()
        with calling(lambda: unit.info()) as longest:
            ctx.group([0, 1])
        assert longest.seconds < SHORT

    units: dict[int, meron.Unit] = {}

    def log(_level: int, message: str) -> None:
        heard.append(message)
        if len(units) == 2:
            units[0].info()
            time.sleep(LONG)

    ranks.threads(2, body, plan=DEVICES, device="emulated", log=log)
    assert len(heard) >= 2


def test_others_continue_while_a_group_waits_for_a_late_rank() -> None:
    def body(ctx: meron.Context) -> float:
        unit, param = unit_of(ctx, "u")
        values = unit.gather()
        ctx.world.barrier()
        if ctx.rank == 1:
            time.sleep(LONG)

        def look() -> None:
            unit.info()
            array = np.from_dlpack(values.dlpack(param))
            del array

        with calling(look) as longest:
            ctx.group([0, 1])
        values.release()
        return longest.seconds

    seconds = ranks.threads(2, body, plan=DEVICES, device="emulated")
    assert max(seconds) < SHORT


def slow_device(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Whatever the emulated device is asked for takes so long from here on."""
    monkeypatch.setenv("MERON_EMULATED_DEVICE", f"delay={int(seconds * 1e6)}")
    meron.open(0, 1, "self", device="emulated").close()  # who opens one reads that


def test_others_continue_while_a_call_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with meron.open(0, 1, "self", plan=DEVICES, device="emulated", timeout=20) as ctx:
        unit, param = unit_of(ctx, "u")
        other, other_param = unit_of(ctx, "other")
        optimizer = ctx.adamw([unit])
        values = other.gather(tier="host")

        def look() -> None:
            unit.info()
            assert values[other_param].size == 64

        gradient = np.ones(64, np.float32)
        unit.reduce({param: gradient})
        slow_device(monkeypatch, LONG / 4)
        with calling(look) as longest:
            seen = unit.reduced(param)
            state = optimizer.read_state(param, "exp_avg")
            unit.discard()
            unit.reduce({param: gradient})
        slow_device(monkeypatch, 0)
        assert longest.seconds < SHORT
        assert np.array_equal(seen, gradient)
        assert not state.any()
        values.release()


def test_others_continue_while_memory_is_pinned_and_collectives_are_launched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both take long if a driver pins much memory, or connects devices."""
    monkeypatch.setenv("MERON_EMULATED_DEVICE", "count=2")

    def joined(rank: int) -> float:
        with meron.open(
            rank, 2, "local", job=job, plan=DEVICES, device=f"emulated:{rank}", timeout=20
        ) as ctx:
            other, _ = unit_of(ctx, "other")
            ctx.world.barrier()
            if rank == 0:
                monkeypatch.setenv("MERON_EMULATED_DEVICE", f"count=2,block={int(1.2e6 * SHORT)}")
                meron.open(0, 1, "self", device="emulated").close()  # which reads that
            ctx.world.barrier()
            with calling(other.info) as longest:
                unit, param = unit_of(ctx, "u")
                unit.gather().release()
                unit.reduce({param: np.ones(64, np.float32)})
                unit.discard()
            ctx.world.barrier()
            if rank == 0:
                monkeypatch.setenv("MERON_EMULATED_DEVICE", "count=2")
                meron.open(0, 1, "self", device="emulated").close()
            with calling(other.info):
                unit.destroy()
            return longest.seconds

    job = secrets.token_hex(8)
    with ThreadPoolExecutor(2) as pool:
        assert max(pool.map(joined, range(2))) < SHORT


def test_others_continue_while_a_rank_is_a_full_ring_ahead() -> None:
    def body(ctx: meron.Context) -> None:
        unit, param = unit_of(ctx, "u")
        other, _ = unit_of(ctx, "other")
        values = unit.gather()

        def look() -> None:
            other.info()
            assert values[param].size == 64

        if ctx.rank == 1:
            time.sleep(LONG)
        with calling(look) as longest:
            gathers = [other.gather_begin() for _ in range(1200)]
        assert longest.seconds < SHORT
        for gather in gathers:
            gather.release()
        values.release()

    ranks.threads(2, body)


def test_ctrl_c_ends_a_wait_for_room() -> None:
    seconds: list[float] = []

    def body(ctx: meron.Context) -> None:
        futures = [ctx.world.barrier_begin() for _ in range(1000)]
        timer = after(0.4, interrupt)
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            for _ in range(100):
                futures.append(ctx.world.barrier_begin())
        seconds.append(time.monotonic() - begun)
        timer.join()

    with_a_silent_peer(body)
    assert seconds[0] < 0.4 + 0.5


def test_sixteen_threads_and_the_collector_do_not_stall() -> None:
    stalls, machine = stall.run(float(os.environ.get("MERON_TEST_STALL_SECONDS", "1")))
    assert stalls.calls > 100
    # The bound of stall.py, with a margin for a busy machine.
    assert max(stalls.longest.values()) < max(LONG, 3 * machine)
