# SPDX-License-Identifier: Apache-2.0
"""Runs functions on several ranks, each in a process that a starter has forked (server.py)."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranks.protocol import Call, Case, Ended, Home, Outcome, Refused, Started, receive, send
from ranks.server import STACK_SIGNAL

PATIENCE = 15.0  # seconds that other ranks have to end once one has failed
STACK = re.compile(r"^(Fatal Python error|(Current thread|Thread) 0x)", re.M)
OWN_FRAMES = re.compile(
    r"^  File \"[^\n]*ranks/server\.py\", line \d+ in outcome_of\n(  File .*\n?)*", re.M
)
STARTER = "from ranks.server import main; main()"
KINDS = ("out", "err", "end")  # of a case's files
# Starters keep what they imported in huge pages. A fork copies a table entry per page, so a rank
# takes 20 ms less of a processor. Ranks themselves have pytest's variables again.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}
GRACE = 1.0  # seconds that a late rank has to print its stack


@dataclass
class Ending:
    """The end of a function on one rank."""

    rank: int
    outcome: Outcome
    output: str = ""
    errors: str = ""
    code: int = 0


@dataclass
class Remote:
    """The home of one rank, as this process sees it, and the case that runs there."""

    home: Home
    connection: socket.socket
    imported: bool = False
    refusal: str = ""  # why the home, or a process for the case, does not exist
    runs: bool = False
    pid: int = 0  # of the running case; 0 until it has started
    code: int | None = None  # of the case that has ended
    stopped: str = ""  # why the pool killed the case

    def fileno(self) -> int:
        return self.connection.fileno()

    def receive(self) -> Any:
        try:
            return receive(self.connection)
        except EOFError:
            doing = "runs cases" if self.imported else f"imports {self.home.module}"
            return Refused(f"the process of rank {self.home.rank} that {doing} has died")

    def wait_for_import(self) -> None:
        reply = self.receive()
        self.imported = isinstance(reply, Started)
        if isinstance(reply, Refused):
            self.refusal = reply.reason

    def begin(self, case: Case) -> None:
        self.runs, self.pid, self.code, self.stopped = True, 0, None, ""
        with contextlib.suppress(OSError):  # the next message says that the home has died
            send(self.connection, case)

    def advance(self) -> None:
        """Takes one message about the case."""
        message = self.receive()
        if isinstance(message, Started):
            self.pid = message.pid
            if self.stopped:  # it was late before it began
                self.kill(signal.SIGKILL)
            return
        if isinstance(message, Ended):
            self.code = message.code
        else:
            self.refusal = message.reason
        self.runs = False

    def has_failed(self) -> bool:
        return bool(self.code or self.refusal)

    def stop(self, reason: str, number: int) -> None:
        self.stopped = reason
        self.kill(number)

    def kill(self, number: int) -> None:
        """Sends a signal to the case; SIGKILL also to the processes that it has started."""
        if not self.pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)


class Pool:
    """Starters by rank, and the homes that they forked. Used by one thread."""

    def __init__(self, preloads: list[str], plain: list[str], deadline: float) -> None:
        self.preloads = preloads
        self.plain = plain
        self.deadline = deadline
        self.starters: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
        self.began = variables()  # with which each starter begins
        self.remotes: dict[Home, Remote] = {}

    def close(self) -> None:
        """Ends all processes of the pool."""
        for remote in self.remotes.values():
            if remote.runs:
                remote.kill(signal.SIGKILL)
            remote.connection.close()
        self.remotes.clear()
        for _, connection in self.starters:
            connection.close()  # a starter ends when its homes have
        until = time.monotonic() + GRACE
        for process, _ in self.starters:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.0))
            process.kill()
            process.wait()
        self.starters.clear()

    def run(
        self,
        world_size: int,
        call: Call,
        *,
        environment: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> list[Ending]:
        """Calls a function on each rank. Returns how it ended, by rank.

        Args:
            environment: variables that differ from those of this process.
            deadline: seconds; the pool's own if None.
        """
        try:
            remotes = self.open(world_size, call.module, dict(environment or {}))
            with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
                cases = cases_of(call, world_size, Path(folder))
                if not any(remote.refusal for remote in remotes):
                    self.run_cases(remotes, cases, self.deadline if deadline is None else deadline)
                endings = [ending_of(*pair) for pair in zip(remotes, cases, strict=True)]
        except BaseException:  # such as Ctrl-C: a rank that still runs belongs to no test
            self.close()
            raise
        for remote in remotes:
            if remote.refusal:
                self.discard(remote)
        return endings

    def open(self, world_size: int, module: str, changes: dict[str, str]) -> list[Remote]:
        """Returns the homes of the module, and forks those that do not exist."""
        base = {**variables(), **changes}
        for other in [other for other in self.remotes if other.module != module]:
            self.discard(self.remotes[other])  # its module's tests are over
        remotes = []
        for rank in range(world_size):
            own = {**base, **environment_of(rank, world_size)}
            home = Home(rank, world_size, module, tuple(sys.path), base == self.began, own)
            remotes.append(self.remotes.get(home) or self.fork(home))
        for remote in remotes:
            if not remote.imported:
                remote.wait_for_import()
        return remotes

    def fork(self, home: Home) -> Remote:
        while len(self.starters) <= home.rank:
            self.starters.append(self.start())
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                send(self.starters[home.rank][1], home, (theirs.fileno(),))
            except OSError:  # something has killed the starter
                self.starters[home.rank] = self.start()
                send(self.starters[home.rank][1], home, (theirs.fileno(),))
        remote = self.remotes[home] = Remote(home, ours)
        return remote

    def start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        environment = {**self.began, "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONHASHSEED", None)
        environment.update(HUGE_PAGES)
        package = str(Path(__file__).resolve().parents[1])
        environment["PYTHONPATH"] = os.pathsep.join([package, environment.get("PYTHONPATH", "")])
        modules = [" ".join(imported(names)) for names in (self.preloads, self.plain)]
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-B", "-c", STARTER, str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for pytest, which ends all of them
                env=environment,
            )
        return process, ours

    def discard(self, remote: Remote) -> None:
        remote.connection.close()
        self.remotes.pop(remote.home, None)

    def run_cases(self, remotes: list[Remote], cases: list[Case], deadline: float) -> None:
        """Runs a case on each rank until all have ended, and ends those that are late."""
        for remote, case in zip(remotes, cases, strict=True):
            remote.begin(case)
        until = time.monotonic() + deadline
        reason = f"it did not end within {deadline:g} s"
        asked = False  # for the stacks of ranks that are late
        while running := [remote for remote in remotes if remote.runs]:
            ready, _, _ = select.select(running, [], [], max(until - time.monotonic(), 0.0))
            for remote in ready:
                remote.advance()
                late = time.monotonic() + PATIENCE
                if remote.has_failed() and late < until and not asked:
                    until = late
                    reason = (
                        f"it did not end within {PATIENCE:g} s of rank {remote.home.rank}'s failure"
                    )
            if not ready:
                for remote in running:
                    remote.stop(reason, signal.SIGKILL if asked else STACK_SIGNAL)
                until = time.monotonic() + GRACE
                asked = True


def cases_of(call: Call, world_size: int, folder: Path) -> list[Case]:
    """The call on each rank, as a job of its own."""
    job = {"MERON_JOB": f"test-{secrets.token_hex(8)}", "MERON_TOKEN": secrets.token_hex(32)}
    directory = os.getcwd()  # a fixture may have changed it

    def case(rank: int) -> Case:
        output, errors, outcome = (str(folder / f"{rank}.{kind}") for kind in KINDS)
        return Case(call, job, directory, output, errors, outcome)

    return [case(rank) for rank in range(world_size)]


def variables() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}


def imported(names: list[str]) -> list[str]:
    """Returns the modules that a file of tests has imported: only then does a rank need them."""
    return [name for name in names if name in sys.modules]


def environment_of(rank: int, world_size: int) -> dict[str, str]:
    """The variables from which Meron learns its rank, as `meron run` sets them."""
    return {
        "MERON_RANK": str(rank),
        "MERON_LOCAL_RANK": str(rank),
        "MERON_WORLD_SIZE": str(world_size),
        "MERON_LOCAL_WORLD_SIZE": str(world_size),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def ending_of(remote: Remote, case: Case) -> Ending:
    output, errors = text_of(case.output), text_of(case.errors)
    code = remote.code or 0
    outcome = read_outcome(case.outcome)
    if remote.refusal:
        outcome = failed(remote.refusal)
    elif remote.code is None:
        outcome = Outcome("unknown")  # another rank has no home
    elif remote.stopped:
        errors, stack = split_stack(errors)
        outcome = failed(f"{remote.stopped}, and was killed. Its stack:\n{stack or '(none)'}")
    elif outcome is None or (outcome.status != "failed" and code != 0):
        errors, stack = split_stack(errors)
        outcome = failed(f"{how_it_ended(code)}\n{stack}")
    return Ending(remote.home.rank, outcome, output, errors, code)


def read_outcome(path: str) -> Outcome | None:
    """Returns what the case wrote, or None if it died first."""
    try:
        outcome: Outcome = pickle.loads(Path(path).read_bytes())
        return outcome
    except (OSError, EOFError, pickle.UnpicklingError):
        return None
    except Exception as error:  # a value whose class this process cannot import
        return failed(f"the value that the function returned cannot be unpickled: {error!r}")


def failed(text: str) -> Outcome:
    return Outcome("failed", text=text, summary=text.splitlines()[0], at=time.monotonic())


def split_stack(errors: str) -> tuple[str, str]:
    """Splits what a rank wrote from the stacks that faulthandler added, and drops frames of this
    plugin."""
    begin = STACK.search(errors)
    if begin is None:
        return errors, ""
    stack = OWN_FRAMES.sub("", errors[begin.start() :])
    return errors[: begin.start()], re.sub(r"(?m)^Extension modules: .*", "", stack)


def how_it_ended(code: int) -> str:
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"


def text_of(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
