# SPDX-License-Identifier: Apache-2.0
"""Runs the phases of tools/gpu-check within its time limit."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from gpu_machine import Machine
from tally import Tally, say

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "gpu"
LABEL = "^gpu$"  # of CTest
SKIPPED = 77
SECONDS_TO_END = 5.0  # what a program has to write its report after it was told to stop
MOST_LOG = 4 << 20  # bytes of one program's output that go into the log


# ---- Phases -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    result: str  # passed, failed or skipped
    note: str = ""


@dataclass(frozen=True)
class Phase:
    name: str
    limit: float  # seconds at most
    least: float  # seconds under which it is not begun
    run: Callable[[Check, float], Outcome]  # the check, and the seconds it has
    needs: tuple[str, ...] = ()  # phases that have to have passed


@dataclass(frozen=True)
class Result:
    name: str
    result: str
    seconds: float
    note: str


def allot(phases: Sequence[Phase], left: float) -> float:
    """How many seconds the first of these phases gets, of those left for all; 0: it is not begun.

    Reserves the minimum for later phases, except if this phase could then not begin."""
    first, *later = phases
    if left < first.least:
        return 0
    kept = sum(phase.least for phase in later)
    return min(first.limit, max(left - kept, first.least))


def run_phases(
    phases: Sequence[Phase], check: Check, end: float, clock: Callable[[], float] = time.monotonic
) -> list[Result]:
    """`end`: time of `clock` at which the budget is used up."""
    results: list[Result] = []
    passed: set[str] = set()
    for position, phase in enumerate(phases):
        begin = clock()
        left = end - begin
        seconds = allot(phases[position:], left)
        lacking = [name for name in phase.needs if name not in passed]
        if lacking:
            outcome = Outcome("skipped", f"it needs {' and '.join(lacking)}")
        elif not seconds:
            outcome = Outcome(
                "skipped",
                f"no time: it takes {phase.least:.0f} s, and {max(left, 0):.0f} s are left",
            )
        else:
            check.say(f"== {phase.name} (at most {seconds:.0f} s)")
            outcome = outcome_of(phase, check, seconds)
        if outcome.result == "passed":
            passed.add(phase.name)
        result = Result(phase.name, outcome.result, clock() - begin, outcome.note)
        results.append(result)
        check.say(describe(result))
    return results


def outcome_of(phase: Phase, check: Check, seconds: float) -> Outcome:
    """Time on such a machine is dear: a phase that breaks leaves the others their turn."""
    try:
        return phase.run(check, seconds)
    except Exception as error:
        traceback.print_exc(file=check.log)
        return Outcome("failed", f"{type(error).__name__}: {error}")


def describe(result: Result) -> str:
    verdict = "FAILED" if result.result == "failed" else result.result
    note = f": {result.note}" if result.note else ""
    if result.result == "skipped":
        return f"  {result.name} skipped{note}"
    return f"  {verdict} in {result.seconds:.1f} s{note}"


# ---- Programs -----------------------------------------------------------------------------------

# The text to show for a line of a program; None or "" hides the line.
Show = Callable[[str], str | None]


@dataclass(frozen=True)
class Ended:
    status: int | None  # None: it ran past its limit and was ended
    lines: list[str]  # the last ones that it said

    def fault(self, what: str) -> str:
        if self.status is None:
            return f"{what} ran past its limit"
        return f"{what} ended with exit status {self.status}"


@dataclass
class Check:
    """One run: its folder, its log, its findings and its counts."""

    out: Path
    log: TextIO
    machine: Machine
    python: str = sys.executable
    torch_asked: subprocess.Popen[str] | None = None
    torch: dict[str, object] = field(default_factory=dict)
    tests: Tally = field(default_factory=Tally)
    failures: list[str] = field(default_factory=list)
    goals: list[dict[str, Any]] = field(default_factory=list)

    def say(self, text: str) -> None:
        say(text)
        print(text, file=self.log, flush=True)

    def run(
        self,
        words: Sequence[str | Path],
        seconds: float,
        show: Show = lambda line: None,
        environment: Mapping[str, str] | None = None,
        folder: Path = ROOT,
    ) -> Ended:
        """Runs a program to its end, or ends it and all its children after `seconds`. Its output
        is logged, and the result of `show` for each line is shown."""
        command = list(map(str, words))
        print(f"$ {shlex.join(command)}", file=self.log, flush=True)
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environment) if environment is not None else None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=self.log, flush=True)
            return Ended(127, [f"{command[0]}: {error.strerror}"])
        lines: list[str] = []
        reader = threading.Thread(target=self.read, args=(process, lines, show), daemon=True)
        reader.start()
        status: int | None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
            kill_group(process)
            process.wait()
        except BaseException:
            kill_group(process)
            raise
        # A process that still holds the output has outlived its parent, for example a rank that
        # hangs.
        reader.join(1)
        if reader.is_alive():
            kill_group(process)
            reader.join(SECONDS_TO_END)
        if status is None:
            print(f"(ended after {seconds:.0f} s)", file=self.log, flush=True)
        return Ended(status, lines)

    def read(self, process: subprocess.Popen[str], lines: list[str], show: Show) -> None:
        assert process.stdout is not None
        written = 0
        for line in process.stdout:
            if written < MOST_LOG:
                written += len(line)
                self.log.write(line if written < MOST_LOG else "(the rest is left out)\n")
            shown = show(line.rstrip())
            if shown:
                say(f"  {shown}")
            lines.append(line.rstrip())
            del lines[:-40]


def kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


class Counts:
    """Shows ninja's counts every few seconds, and the lines that name an error."""

    def __init__(self, every: float = 10) -> None:
        self.every = every
        self.shown = time.monotonic()

    def __call__(self, line: str) -> str | None:
        count = re.match(r"\[(\d+)/(\d+)\] ", line)
        if count and time.monotonic() - self.shown >= self.every:
            self.shown = time.monotonic()
            return f"{count[1]} of {count[2]}"
        return line if re.search(r"^FAILED: |\b(fatal )?error\b:", line) else None


def every_line(line: str) -> str:
    return line


def lines_like(pattern: str) -> Show:
    return lambda line: line if re.match(pattern, line) else None
