# SPDX-License-Identifier: Apache-2.0
"""Measures the processor and wall seconds of each test, and keeps them in the build folder.

CTest measures no processor time. So a thread reads /proc while ctest runs. It knows a child of
ctest by its command line, and counts every process below the child for its test. The measured time
is too small by at most INTERVAL per process, because the last sample precedes the process's end.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from testing import project
from testing.processes import Process, all_processes

INTERVAL = 0.25
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
DEAREST = 20


@dataclass(frozen=True)
class Times:
    wall: float
    processor: float
    run: str  # when tools/test began


def file_of(build: Path) -> Path:
    return build / "test-times.json"


def load(build: Path) -> dict[str, Times]:
    """Returns the times of each test's last run. A damaged file counts as none."""
    try:
        data = json.loads(file_of(build).read_text())
        return {name: Times(**times) for name, times in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def save(build: Path, times: Mapping[str, Times]) -> None:
    """Records the times of the tests that ran; those of others stay."""
    if not times:
        return
    merged = {**load(build), **times}
    data = {name: asdict(each) for name, each in sorted(merged.items())}
    new = file_of(build).with_suffix(".new")
    new.write_text(json.dumps(data, indent=1) + "\n")
    new.replace(file_of(build))


def wall_seconds(build: Path) -> dict[str, float]:
    """Returns the wall seconds that each test took: ours, else those of CTest."""
    found: dict[str, float] = {}
    try:
        lines = (build / "Testing/Temporary/CTestCostData.txt").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        words = line.split()
        if len(words) == 3:
            found[words[0]] = float(words[2])
    return {**found, **{name: times.wall for name, times in load(build).items()}}


def describe(found: Iterable[tuple[str, str, Times]]) -> list[str]:
    """Returns the lines of `--times`: of the tests, the dearest in processor seconds."""
    dearest = sorted(found, key=lambda each: (-each[2].processor, -each[2].wall))[:DEAREST]
    lines = ["processor s   wall s  test"]
    for preset, name, times in dearest:
        lines.append(f"{times.processor:11.1f} {times.wall:8.1f}  {preset}: {name}")
    return lines


def report(run: str | None) -> list[str] | None:
    """Describes the run that began at `run`, or the last one. None if no run is recorded."""
    found = [
        (file.parent.name, name, times)
        for file in sorted((project.ROOT / "build").glob("*/test-times.json"))
        for name, times in load(file.parent).items()
    ]
    if not found:
        return None
    run = run or max(times.run for _, _, times in found)
    mine = [each for each in found if each[2].run == run]
    return [f"the {min(DEAREST, len(mine))} dearest tests of the run of {run}", *describe(mine)]


class Sampler:
    """Adds up the processor time below each child of one process, ctest."""

    def __init__(self, names: Mapping[tuple[str, ...], str]) -> None:
        self.names = names  # of tests, by their commands
        self.owners: dict[tuple[int, int], str] = {}
        self.ticks: dict[str, int] = defaultdict(int)

    def take(self, ctest: int, processes: Iterable[Process]) -> None:
        """Counts one sample. Processes that lost their parent stay with their test."""
        by_pid = {process.pid: process for process in processes}
        sums: dict[str, int] = defaultdict(int)
        for process in by_pid.values():
            name = self.owner(ctest, process, by_pid)
            if name:
                sums[name] += process.ticks
        for name, ticks in sums.items():
            self.ticks[name] = max(self.ticks[name], ticks)

    def owner(self, ctest: int, process: Process, by_pid: Mapping[int, Process]) -> str | None:
        chain: list[Process] = []
        found: str | None = None
        each: Process | None = process
        while each is not None and each not in chain:
            known = self.owners.get((each.pid, each.started))
            if known is None and each.parent == ctest:
                known = self.name_of(command_of(each.pid))
            chain.append(each)
            if known is not None:
                found = known
                break
            each = by_pid.get(each.parent)
        if found is not None:
            for each in chain:
                self.owners[(each.pid, each.started)] = found
        return found

    def name_of(self, command: tuple[str, ...]) -> str | None:
        """Of a script, the system puts the words of its first line before the command."""
        for words in (command, command[1:], command[2:]):
            if words in self.names:
                return self.names[words]
        return None

    def seconds(self, name: str) -> float:
        return self.ticks.get(name, 0) / TICKS_PER_SECOND


def command_of(pid: int) -> tuple[str, ...]:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return ()
    return tuple(word.decode(errors="replace") for word in words)


def commands_of(build: Path) -> dict[tuple[str, ...], str]:
    """Returns the tests of a build folder by their commands."""
    done = subprocess.run(
        ["ctest", "--test-dir", str(build), "--show-only=json-v1"], capture_output=True, text=True
    )
    try:
        tests = json.loads(done.stdout)["tests"]
    except (ValueError, KeyError):
        return {}
    return {tuple(test["command"]): test["name"] for test in tests if "command" in test}


class Measuring:
    """Samples from a thread of its own while the `with` block runs."""

    def __init__(self, build: Path) -> None:
        self.sampler = Sampler(commands_of(build))
        self.ctest: int | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)

    def __enter__(self) -> Measuring:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def sample(self) -> None:
        while not self.ended.wait(INTERVAL):
            if self.ctest is not None:
                self.sampler.take(self.ctest, all_processes())


def run_name() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
