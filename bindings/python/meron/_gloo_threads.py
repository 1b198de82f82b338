# SPDX-License-Identifier: Apache-2.0
"""Lets gloo's threads finish their work before the interpreter ends.

A thread of gloo releases its tensors after a collective, and needs the interpreter for that. If
the interpreter ends meanwhile, the thread aborts the process: SIGABRT after all work was done
(pytorch/pytorch#190489). destroy_process_group does not help, as modules of PyTorch keep the group
as the default of an argument.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import time

NAME = "pt_gloo_runloop"  # as PyTorch calls these threads
# Longer than a thread sleeps at a time that waits for the interpreter, which is 5 ms.
INTERVAL = 0.02  # seconds
PATIENCE = 1.0  # seconds


def threads() -> dict[str, str]:
    """For each thread of gloo: its state, and how often it slept and was stopped."""
    found = {}
    for task in glob.glob("/proc/self/task/*"):
        with contextlib.suppress(OSError):  # it has ended
            with open(f"{task}/comm", encoding="utf-8", errors="replace") as file:
                if not file.read().startswith(NAME):
                    continue
            with open(f"{task}/status", encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
            found[task] = "".join(
                line for line in lines if line.startswith("State") or "ctxt_switches" in line
            )
    return found


def at_rest(before: dict[str, str], after: dict[str, str]) -> bool:
    """True if all threads slept all the time in between."""
    return before == after and not any("R (" in each for each in after.values())


@atexit.register
def let_finish() -> None:
    """Gives gloo's threads the interpreter until they rest. Blocks for 20 ms where there are any,
    at most a second. One whose collective waits for another process rests too."""
    until = time.monotonic() + PATIENCE
    before = threads()
    while before and time.monotonic() < until:
        time.sleep(INTERVAL)
        after = threads()
        if at_rest(before, after):
            return
        before = after
