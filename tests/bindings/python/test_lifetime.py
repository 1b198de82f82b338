# SPDX-License-Identifier: Apache-2.0
"""Objects die in any order, on any thread, at any time."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import numpy as np
import pytest
import ranks
from conftest import DEADLINE, run_python

import meron
from meron import _finalizers
from meron._finalizers import called_back
from meron._lifetime import Lifetime

ORDERS = 5000  # with and without a close: 10,000 in all


def everything(ctx: meron.Context) -> list[object]:
    """One of each kind of object, some of them under way."""
    param = ctx.param("w", (64,))
    unit = ctx.unit("u", [param])
    other = ctx.unit("v", [ctx.param("x", (8,), "bf16")])
    group = ctx.group([0])
    optimizer = ctx.adamw([unit])
    gather = unit.gather()
    array = gather[param]
    abandoned = ctx.world.all_reduce_begin(np.ones(4, np.float32))
    return [
        ctx,
        param,
        unit,
        other,
        group,
        optimizer,
        gather,
        array,
        np.from_dlpack(gather.dlpack(param)),
        gather.dlpack(param).__dlpack__(max_version=(1, 0)),
        abandoned,
        other.gather_begin(),
        other.gather("copy"),
        ctx.update([other]),
        ctx.world,
        meron.Plan.preset("zero1"),
    ]


@pytest.mark.parametrize("close", [False, True])
def test_any_order(close: bool) -> None:
    generator = random.Random(5)
    for _ in range(ORDERS):
        # The collector lets more than a thousand live at a time, which fill the address space if
        # each has a reserve of the host's memory.
        ctx = meron.open(0, 1, "self", timeout=DEADLINE, arena_reserve=1 << 28)
        objects = everything(ctx)
        generator.shuffle(objects)
        if close:
            objects.insert(generator.randrange(len(objects)), None)
        keep = ctx if close else None
        del ctx
        while objects:
            if objects.pop() is None and keep is not None:
                keep.close()
                keep = None
            if generator.random() < 0.05:
                gc.collect(0)


def test_cycles_are_collected_on_another_thread() -> None:
    """A cycle is freed where the collector happens to run, here on a thread of its own."""
    stop = threading.Event()

    def collect() -> None:
        while not stop.is_set():
            gc.collect()

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        for _ in range(50):
            ctx = meron.open(0, 1, "self", timeout=DEADLINE)
            objects = everything(ctx)
            cycle: list[object] = [objects]
            cycle.append(cycle)
            del ctx, objects, cycle
    finally:
        stop.set()
        collector.join()


def test_a_context_that_dies_within_a_callback_is_closed_on_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closing waits for callbacks: on the thread of one it would wait for itself."""
    close = Lifetime._close
    threads: dict[int, int] = {}  # by context, who closed it

    def record(handle: Any, *args: object) -> None:
        threads[handle.id] = threading.get_ident()
        close(handle, *args)

    def open_and_lose() -> int:  # a cycle: the collector frees it
        return int(meron.open(0, 1, "self", timeout=DEADLINE)._handle.id)

    monkeypatch.setattr(Lifetime, "_close", staticmethod(record))
    within = open_and_lose()
    called_back(gc.collect)()
    _finalizers.finish()
    outside = open_and_lose()
    gc.collect()
    own = threading.get_ident()
    assert threads[outside] == own and threads[within] != own


def test_a_storm_of_the_collector_during_a_training_run() -> None:
    def body(ctx: meron.Context) -> bytes:
        param = ctx.param("w", (257,))
        unit = ctx.unit("u", [param])
        optimizer = ctx.adamw([unit], lr=0.01)
        for step in range(20):
            with unit.gather() as full:
                grad = np.cos(full[param] + step)
            rubbish: list[object] = [unit.gather_begin(), bytearray(1000)]
            rubbish.append(rubbish)
            del rubbish
            while unit.info().leases:  # collect() does nothing while another thread collects
                gc.collect()
            unit.reduce({param: grad})
            optimizer.step()
        with unit.gather() as full:
            return full[param].tobytes()

    assert len(set(ranks.threads(2, body, plan="zero3"))) == 1


EXIT_BODY = """
import numpy as np, meron, sys
ctx = meron.open(0, 1, "self")
param = ctx.param("w", (64,))
unit = ctx.unit("u", [param])
gather = unit.gather()
array = gather[param]
tensor = np.from_dlpack(gather.dlpack(param))
capsule = gather.dlpack(param).__dlpack__(max_version=(1, 0))
optimizer = ctx.adamw([unit])
future = ctx.world.all_reduce_begin(np.ones(4, np.float32))
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(0)",
        "import builtins; builtins.keep = [array, capsule, gather, unit, ctx]",
        "ctx.self = ctx; gather2 = [gather]; gather2.append(gather2)",
        "sys.modules['__main__'].__dict__.pop('ctx')",
        "import atexit; atexit.register(lambda: gather.release())",
        "meron.__dict__.clear()",
        "import threading; threading.Thread(target=lambda: unit.gather().release()).start()",
        "del sys.modules['meron'], sys.modules['meron.gather'], sys.modules['meron._native']",
        "class Late:\n    def __del__(self): float(array[0]); gather.release()\nlate = Late()",
    ],
)
def test_the_interpreter_ends_with_everything_open(end: str) -> None:
    done = run_python(EXIT_BODY + end + "\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_interpreter_ends_while_daemon_threads_are_in_should_stop() -> None:
    """CPython before 3.14 ends such threads by pthread_exit, which cannot unwind the library."""
    source = """
import threading, time, meron

def run(work, daemon=False):
    thread = threading.Thread(target=work, daemon=daemon)
    thread.start()
    return thread

def stop():
    time.sleep(0.05)

def wait():
    try:
        contexts[0].world.barrier()
    except meron.Error:
        pass

def open(rank):
    contexts[rank] = meron.open(rank, 2, "local", job="exit", should_stop=stop)

contexts = {}
for thread in [run(lambda rank=rank: open(rank)) for rank in range(2)]:
    thread.join()
for _ in range(16):
    run(wait, daemon=True)
time.sleep(0.3)
"""
    done = run_python(source)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_fork_gets_an_error_and_harms_no_rank() -> None:
    source = """
import os, sys, warnings, numpy as np, meron
warnings.simplefilter("ignore")
ctx = meron.open(0, 1, "self")
param = ctx.param("w", (64,))
unit = ctx.unit("u", [param])
with ctx.update([unit]) as update:
    update.write(param, np.arange(64))
gather = unit.gather()
child = os.fork()
if child == 0:
    try:
        unit.gather()
    except meron.ForkedError as error:
        assert isinstance(error, meron.ContextError)
        gather.release()
        ctx.close()
        sys.exit(7)
    sys.exit(1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
assert gather[param].tolist() == list(range(64))
unit.gather().release()
"""
    done = run_python(source)
    assert done.returncode == 0, done.stderr
