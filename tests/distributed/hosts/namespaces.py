# SPDX-License-Identifier: Apache-2.0
"""The network namespaces of a run's hosts: whether they can be made here, and their removal.

    namespaces.py PREFIX

Waits, in a process of its own, for the end of stdin, which is the run's; then removes what belongs
to the run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

RUN = Path("/run")
NAMESPACES = Path("/run/netns")
# meron-PROCESS-START: which process made it, so that the next run knows whether it is still there.
OWNED = re.compile(r"(meron-(\d+)-(\d+))(-\w+)?")


class Unavailable(Exception):
    """Hosts cannot be made here; the text says why, and what would help."""


def run_tool(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(words)}` says: {done.stderr.strip() or done.returncode}")
    return done.stdout


def why_not() -> str | None:
    """Why no hosts can be made here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(program) is None:
            return f"no program {program} (package {package}; tools/setup --mpi installs it)"
    try:
        run_tool("unshare", "--net", "--uts", "--mount", "true")
    except (Unavailable, OSError) as problem:
        return f"this machine allows no namespaces: {problem}"
    return None


def start_of(process: int) -> str | None:
    """When a process began, in the kernel's ticks: with its number it is unique."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def made_by(prefix: str) -> list[str]:
    if not NAMESPACES.is_dir():
        return []
    return sorted(name for name in os.listdir(NAMESPACES) if name.startswith(f"{prefix}-"))


def kill_all(namespace: str) -> None:
    for _ in range(200):
        found = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
        processes = [int(word) for word in found.stdout.split()]
        if not processes:
            return
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def remove(prefix: str) -> None:
    """Ends every process of a run's hosts and removes what belongs to it; again does no harm."""
    for namespace in made_by(prefix):
        kill_all(namespace)
    for namespace in made_by(prefix):
        subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)
    shutil.rmtree(RUN / prefix, ignore_errors=True)


def remove_leftovers() -> None:
    """Of runs whose process is gone, and the process that waits for that end, too."""
    names = [*os.listdir(RUN), *(os.listdir(NAMESPACES) if NAMESPACES.is_dir() else [])]
    matches = [match for name in names if (match := OWNED.fullmatch(name))]
    for prefix in {match[1] for match in matches if start_of(int(match[2])) != match[3]}:
        remove(prefix)


def guard(prefix: str) -> NoReturn:
    if os.fork() > 0:
        os._exit(0)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    remove(prefix)
    os._exit(0)


if __name__ == "__main__" and sys.argv[1:2] == ["--guard"]:
    guard(sys.argv[2])
