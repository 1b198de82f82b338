# SPDX-License-Identifier: Apache-2.0
"""How benchmarks written in Python run ranks, print tables and leave JSON."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arguments import new_file

Json = dict[str, Any]


WITHOUT_TORCH = "PyTorch is not installed (tools/setup --torch brings it)"


class BenchError(Exception):
    """A program that was measured failed; the message says which and how."""


@dataclass
class Goal:
    name: str
    value: float
    goal: float
    at_least: bool = True  # else: at most

    @property
    def met(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    made = argparse.ArgumentParser(
        prog=f"tools/bench {name}",
        description=description,
        epilog="Exit code 0: it ran and its results were right, whether or not goals were met.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", type=new_file, metavar="FILE", help="write every number to FILE")
    made.add_argument(
        "--quick", action="store_true", help="a short run that only shows that everything works"
    )
    made.add_argument(
        "--build", type=Path, default=Path("build/release"), metavar="DIR", help=argparse.SUPPRESS
    )
    return made


def run_ranks(words: Sequence[str | Path], environment: dict[str, str] | None = None) -> Json:
    """Runs a program whose first rank prints one line of JSON last, and reads that."""
    done = subprocess.run(
        list(map(str, words)),
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        shown = " ".join(map(str, words))
        raise BenchError(f"{shown} ended with exit code {done.returncode}:\n{done.stderr.strip()}")
    result: Json = json.loads(lines[-1])
    return result


def columns(rows: Iterable[Sequence[str]]) -> str:
    """The first column flush left, the others flush right, and a rule under the head."""
    table = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def readable_bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


def has_module(name: str) -> bool:
    """Whether it can be imported; a folder that only has its name does not count."""
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def cpu_name() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def machine() -> Json:
    """Describes the machine for comparisons, without the name of the host or its owner."""
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "shared_memory_huge_pages": huge_pages(),
    }


def huge_pages() -> str:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled").read_text()
    except OSError:
        return "unknown"
    chosen = re.search(r"\[(\w+)\]", text)
    return chosen[1] if chosen else "unknown"


def commit(checkout: Path | None = None) -> str:
    """Commit of `checkout`, or of the checkout that contains the working directory."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    words = [git, "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


# Options whose values are paths of this machine.
PATHS = ("--build", "--dir", "--json")


def command_line(name: str, options: Sequence[str]) -> str:
    """The command of a benchmark, without the paths among its options."""
    kept, words = [], iter(options)
    for word in words:
        if word in PATHS:
            next(words, None)
        elif word.partition("=")[0] not in PATHS:
            kept.append(word)
    return shlex.join(["tools/bench", name, *kept])


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def finish(
    name: str, arguments: argparse.Namespace, goals: Sequence[Goal], disturbed: float, **body: Any
) -> None:
    """Prints the goals, unless the run was a quick one, and writes the JSON file."""
    width = max((len(goal.name) for goal in goals), default=0)
    for goal in [] if arguments.quick else goals:
        bound = f"goal {'>=' if goal.at_least else '<='} {goal.goal:g}"
        print(f"{goal.name:<{width}}  {goal.value:8.2f}  {bound:<12} {verdict(goal)}")
    if arguments.quick:
        print("--quick: the figures show only that everything works; goals are left out.")
    elif disturbed > 0.1:
        print(
            f"Other programs took a rank's CPU during {disturbed:.0%} of the batches: repeat this "
            "on a quiet machine before believing it."
        )
    if arguments.json is None:
        return
    report = {
        "bench": name,
        "date": today(),
        "command": command_line(name, sys.argv[1:]),
        "quick": arguments.quick,
        "commit": commit(),
        "machine": machine(),
        "disturbed": round(disturbed, 3),
        **body,
        "goals": [
            {
                "name": goal.name,
                "value": goal.value,
                "goal": goal.goal,
                "at_least": goal.at_least,
                "passed": goal.met,
            }
            for goal in goals
        ],
        "passed": all(goal.met for goal in goals),
    }
    try:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    except OSError as error:
        raise BenchError(f"cannot write {arguments.json}: {error.strerror}") from error


def verdict(goal: Goal) -> str:
    return "met" if goal.met else "MISSED"


def exit_code_of(main: Any) -> int:
    """Runs a benchmark's main; what went wrong is a message, not a trace."""
    try:
        main()
    except BenchError as error:
        print(f"tools/bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
