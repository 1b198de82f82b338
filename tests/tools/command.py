# SPDX-License-Identifier: Apache-2.0
"""How the tests call the command, which MERON_COMMAND names."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

MERON = os.environ["MERON_COMMAND"]
PATIENCE = 60  # seconds after which a test that hangs fails; a busy machine is slow, not wrong

# The first lines of each rank's program: they write its process id to FOLDER/pid<rank>.
TELL_PID = """
import os, pathlib, signal, sys, time
rank = os.environ["MERON_RANK"]
folder = pathlib.Path(sys.argv[1])
def tell(name, value):
    (folder / f"{name}{rank}").write_text(f"{value}\\n")
tell("pid", os.getpid())
"""


def meron(*words: str, stdin: str | bytes = b"", **options) -> subprocess.CompletedProcess:
    """Runs the command to its end; output as text unless stdin is given as bytes that matter."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [MERON, *words], input=data, capture_output=True, timeout=PATIENCE, **options
    )
    done.raw = done.stdout
    done.stdout = done.stdout.decode(errors="replace")
    done.stderr = done.stderr.decode(errors="replace")
    return done


def python(code: str) -> list[str]:
    """The words that run a piece of Python as a rank."""
    return [sys.executable, "-u", "-c", code]


def start(*words: str, **options) -> subprocess.Popen:
    return subprocess.Popen([MERON, *words], **options)


def wait_until(what: str, true: Callable[[], object], seconds: float = PATIENCE) -> float:
    """Seconds that it took."""
    begin = time.monotonic()
    while not true():
        assert time.monotonic() - begin < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.005)
    return time.monotonic() - begin


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def guard_of(launcher: subprocess.Popen) -> int:
    """The process of `meron run` between launcher and supervisor."""
    (guard,) = children_of(launcher.pid)
    return guard


def supervisor_of(launcher: subprocess.Popen) -> int:
    """The process of `meron run` that is the parent of the ranks."""
    (supervisor,) = children_of(guard_of(launcher))
    return supervisor


def read_numbers(folder: Path, prefix: str, count: int) -> dict[int, int]:
    """Waits until `count` ranks have left a number in `folder`/`prefix`RANK, and reads them."""

    def names() -> list[Path]:
        return [path for path in folder.glob(f"{prefix}[0-9]*") if path.read_text().endswith("\n")]

    wait_until(f"{count} files {prefix}* in {folder}", lambda: len(names()) == count)
    return {int(path.name.removeprefix(prefix)): int(path.read_text()) for path in names()}
