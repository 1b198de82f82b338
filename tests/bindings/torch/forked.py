# SPDX-License-Identifier: Apache-2.0
"""Programs on several ranks as `conftest.run_ranks` runs them, but forked from processes that have
imported PyTorch already. That takes 2 s of a processor, and a file of tests starts up to seventy
ranks.

There is one such process per rank, so that ranks hash strings differently, as anywhere else. It
starts no thread, knows nothing of Meron, and is never a rank itself. What `meron run` does beyond
starting ranks, such as to name one that died, is for tests that use it.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import runpy
import secrets
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT = 240.0  # seconds that a program may take
PATIENCE = 15.0  # seconds that others go on once a rank has failed
NUMBER = struct.Struct("q")
Job = dict[str, Any]


# ---- The process of a rank number, and its ranks ------------------------------------------------


def serve() -> None:
    """For each line of input forks a rank, says its process, and then its wait status. Returns in
    the ranks, with their program in sys.argv."""
    import torch

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)  # imports the rest of PyTorch
    end_with_parent()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            return become(json.loads(line))
        os.write(1, NUMBER.pack(pid))
        os.write(1, NUMBER.pack(os.waitpid(pid, 0)[1]))
    sys.exit()


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def become(job: Job) -> None:
    end_with_parent()
    write = os.O_WRONLY | os.O_CREAT
    for number, (name, flags) in enumerate(
        [(os.devnull, os.O_RDONLY), (job["output"], write), (job["errors"], write)]
    ):
        file = os.open(name, flags)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.argv = job["arguments"]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [str(Path(sys.argv[0]).parent), *paths]


# ---- For tests ----------------------------------------------------------------------------------


class Starter:
    """The process of a rank number, as tests see it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-B", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            bufsize=0,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.say, self.output = self.process.stdin.write, self.process.stdout.fileno()
        self.pid = 0
        self.status: int | None = None

    def start(self, job: Job) -> None:
        self.status = None
        self.say(f"{json.dumps(job)}\n".encode())

    def hear(self) -> int:
        said = os.read(self.output, NUMBER.size)
        if not said:
            raise AssertionError("the process that starts ranks has ended; see above")
        return int(NUMBER.unpack(said)[0])


starters: list[Starter] = []


@atexit.register
def end() -> None:
    """Ends the starters, and with them the ranks that run."""
    while starters:
        starters.pop().process.kill()


def run(count: int, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with its arguments on `count` ranks. What they write is sorted by rank."""
    try:
        return run_to_end(count, *arguments, **environment)
    except BaseException:  # such as Ctrl-C: what a starter says next would be of this run
        end()
        raise


def run_to_end(
    count: int, *arguments: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    while len(starters) < count:
        starters.append(Starter())
    words = [str(argument) for argument in arguments]
    job = f"test-{secrets.token_hex(8)}"
    whole = {**os.environ, **environment, "MERON_JOB": job, "MERON_TOKEN": secrets.token_hex(32)}
    whole |= {"MERON_WORLD_SIZE": str(count), "MERON_LOCAL_WORLD_SIZE": str(count)}
    ranks = starters[:count]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, f"{rank}.out") for rank in range(count)]
        errors = [Path(folder, f"{rank}.err") for rank in range(count)]
        for rank, starter in enumerate(ranks):
            own = {**whole, "MERON_RANK": str(rank), "MERON_LOCAL_RANK": str(rank)}
            files = {"output": str(outputs[rank]), "errors": str(errors[rank])}
            starter.start({"arguments": words, "environment": own, **files})
        for starter in ranks:
            starter.pid = starter.hear()
        said = wait(ranks)
        for rank, file in enumerate(errors):
            lines = file.read_text("utf-8", "replace").splitlines()
            said += [f"[rank{rank}]: {line}" if count > 1 else line for line in lines]
        shown = "".join(file.read_text("utf-8", "replace") for file in outputs)
    code = next((starter.status for starter in ranks if starter.status), 0)
    return subprocess.CompletedProcess(words, code, shown, "\n".join(said))


def wait(ranks: list[Starter]) -> list[str]:
    """Until all have ended, or are ended. Returns what there is to say."""
    said = []
    until = time.monotonic() + LIMIT
    running = dict(enumerate(ranks))
    while running:
        files = {starter.output: rank for rank, starter in running.items()}
        ready, _, _ = select.select(list(files), [], [], max(until - time.monotonic(), 0))
        for rank in [files[file] for file in ready] or running:
            if not ready:
                os.kill(running[rank].pid, signal.SIGKILL)
                said.append(f"forked: rank {rank} was killed, as its time was up")
        for rank in [files[file] for file in ready]:
            starter = running.pop(rank)
            starter.status = os.waitstatus_to_exitcode(starter.hear())
            if starter.status != 0:
                said.append(f"forked: rank {rank} ended with {starter.status}")
                until = min(until, time.monotonic() + PATIENCE)
        if not ready:
            until = time.monotonic() + PATIENCE  # for the killed to end
    return said


if __name__ == "__main__":
    serve()
    runpy.run_path(sys.argv[0], run_name="__main__")
