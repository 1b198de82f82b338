# SPDX-License-Identifier: Apache-2.0
"""How a launcher is waited for, and stopped."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

# Seconds for which a launcher may live on when all of its ranks have ended.
LINGER = 10.0


def living_children(pid: int) -> int:
    """Of this process: those that have not ended, whether or not it has asked for their status."""
    living = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended meanwhile
            continue
        living += int(parent) == pid and state != "Z"
    return living


def output_of(launcher: subprocess.Popen[str], patience: float) -> str:
    """Waits for a launcher's end, at most `patience` seconds: subprocess.TimeoutExpired then. Where
    all of its ranks have ended and it has not, some time later, it is killed: mpirun of Open MPI
    4.1.4 locks itself up at times, in PMIx_server_finalize, after a rank that failed.
    """
    begin = lived = time.monotonic()
    while True:
        try:
            return launcher.communicate(timeout=min(1.0, patience))[0]
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if living_children(launcher.pid) > 0:
                lived = now
            if now - lived > LINGER:
                launcher.kill()
            elif now - begin > patience:
                raise


def stop(process: subprocess.Popen[Any]) -> None:
    """mpirun ends its ranks, and says which; unless it cannot."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
