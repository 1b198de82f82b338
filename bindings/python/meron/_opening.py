# SPDX-License-Identifier: Apache-2.0
"""Opening a context."""

from __future__ import annotations

import logging
from typing import Any

from meron import errors
from meron._arguments import set_number
from meron._callbacks import LogFunction, StopFunction, log_callback, stop_callback
from meron._lifetime import Lifetime
from meron._native import initial, nanoseconds, new, text
from meron.context import Context
from meron.device import DeviceAllocator, allocator_table
from meron.plan import PlanLike, as_plan
from meron.transport import CustomTransport, transport_table


def open(
    rank: int | None = None,
    world_size: int | None = None,
    transport: str | CustomTransport | None = None,
    plan: PlanLike = "zero3",
    *,
    job: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    host_memory_limit: int | None = None,
    arena_reserve: int | None = None,
    threads: int | None = None,
    log: LogFunction | logging.Logger | None = None,
    should_stop: StopFunction | None = None,
    custom: CustomTransport | None = None,
    device: str | None = None,
    allocator: DeviceAllocator | None = None,
) -> Context:
    """Opens this rank's context and meets the other ranks.

    Args:
        rank, world_size: None takes them from the environment (meron run, torchrun, Slurm, Open
            MPI); without one the world has one rank.
        transport: "self", "local" (ranks are threads of this process), "shm" (processes of this
            host), or a CustomTransport; "cluster" (processes of a host share memory, and `custom`
            connects the hosts) or "mpi" (MPI connects them). None is self for one rank, mpi under
            mpirun where no token is given, else shm.
        plan: a Plan, a preset's name, JSON text, or such a dict. (For mypy, a text that is no name
            of a preset, or a variable, goes by Plan.preset or Plan.parse.)
        job: local: ranks of one process with an equal job meet. In a directory (MERON_STORE) it
            distinguishes this job from others.
        token: shm: 64 hexadecimal digits, the same on all ranks; None takes it from the
            environment, or meets the ranks in the directory that MERON_STORE names.
        timeout: deadline of every operation in seconds; None is 600.
        host_memory_limit: bytes that this rank may take; None has no limit but the host's.
        arena_reserve: bytes of address space, twice per window; None is the host's memory.
        threads: for compute on this rank; None is cores / ranks of this host.
        log: function of (level, message), levels as in `logging`, or a logging.Logger. None is the
            logger "meron" if that, or the root logger, has a handler now; without handlers the
            library writes warnings and errors to stderr. It may be called on any thread that is
            inside a call. It may only look and release: each other call in it raises a StateError.
            Its exceptions go to sys.unraisablehook.
        should_stop: called about ten times a second while a call waits; True ends the wait with a
            CancelledError, an exception of its own is raised by the call that waits. It may only
            look and release, as `log`. Signals (Ctrl-C) are looked at in any case, and Python runs
            their handlers here: a handler that wants a checkpoint sets a flag for the loop.
        custom: the transport between hosts for "cluster". As `transport` it joins all ranks.
        device: what this rank computes on: "cuda" (the calling thread's current device), "cuda:1";
            "emulated", memory of the host and threads, for tests without a device; None is the
            host. Gathers then are in the device's memory, and gradients may be.
        allocator: of the device's memory; None is a pool of Meron's own.

    Blocks until all ranks have arrived, at most until the deadline, and releases the GIL.

    Raises:
        ArgumentError: a rank beyond the world, an unknown transport or device.
        AuthError: the token is missing or wrong. DeadlineError: names the missing ranks.
        VersionError, OutOfMemoryError, InputOutputError, DuplicateError (a rank arrived twice).
        UnsupportedError: the device's module cannot be loaded, or cannot work here. DeviceError.
    """
    options = initial("meron_context_options")
    kept: tuple[Any, ...] = ()
    if isinstance(transport, CustomTransport):
        if custom is not None:
            raise errors.argument("a custom transport is given twice, by transport and by custom")
        custom, transport = transport, "custom"
    if custom is not None:
        options.custom, kept = transport_table(custom)
    options_of_text = {"transport": transport, "job": job, "token": token, "device": device}
    strings = {
        name: new("char[]", text(value, name))
        for name, value in options_of_text.items()
        if value is not None
    }
    numbers = {
        "rank": rank,
        "world_size": world_size,
        "host_memory_limit": host_memory_limit,
        "arena_reserve": arena_reserve,
        "threads": threads,
    }
    for name, value in strings.items():
        setattr(options, name, value)
    for name, number in numbers.items():
        if number is not None:
            set_number(options, name, number)
    if timeout is not None:
        options.timeout_ns = max(nanoseconds(timeout), 1)  # 0 would mean the default

    if allocator is not None:
        options.allocator = allocator_table(allocator)

    chosen = as_plan(plan)
    options.plan = chosen._handle
    callbacks = (log_callback(log), stop_callback(should_stop), *kept)
    if callbacks[0] is not None:
        options.log = callbacks[0]
    options.should_stop = callbacks[1]
    return Context(Lifetime(callbacks, options), chosen, device or "")
