# SPDX-License-Identifier: Apache-2.0
"""The developer's loop, in a clone of HEAD.

Measures the seconds from the clone to the first test, and from a changed line to the result of its
tests.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import report
from report import BenchError, Goal, Json

ROOT = Path(__file__).resolve().parents[2]
FIRST_TEST = "base"
# One line in each, which changes what the compiler reads.
EDITS = {
    "values": ("impl/values/gather.cpp", 'static_assert(sizeof(int) == 4, "loop {turn}");\n'),
    "plan": ("impl/plan/predict.cpp", 'static_assert(sizeof(int) == 4, "loop {turn}");\n'),
    "capi": ("capi/gather.cpp", 'static_assert(sizeof(int) == 4, "loop {turn}");\n'),
    "meron.torch": ("bindings/python/meron/torch/api.py", "\n\nLOOP = {turn}\n"),
}
WITHIN = 60  # seconds


class Clone:
    """A clone with a compiler's cache of its own, or with another clone's."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "CCACHE_DIR": str(cache)}
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)

    def run(self, *words: str, wrong: bool = True) -> str:
        """Runs a command in the clone, and returns what it prints."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0 and wrong:
            tail = "\n".join(done.stdout.splitlines()[-40:])
            raise BenchError(f"{' '.join(words)} ended with exit code {done.returncode}:\n{tail}")
        return done.stdout


@contextmanager
def timed(times: dict[str, Json], name: str) -> Iterator[None]:
    """Adds the wall and processor seconds of the block, and shows that it runs."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    begin, before = time.monotonic(), processor_seconds()
    yield
    seconds = time.monotonic() - begin
    times[name] = {
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor_seconds() - before, 1),
    }


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def hit_rate(clone: Clone) -> float:
    """Returns the share of compilations that ccache found, since its counters were reset."""
    lines = clone.run("ccache", "--print-stats").splitlines()
    counts = dict(line.split("\t")[:2] for line in lines if "\t" in line)
    hits = int(counts.get("direct_cache_hit", 0)) + int(counts.get("preprocessed_cache_hit", 0))
    misses = int(counts.get("cache_miss", 0))
    return hits / max(hits + misses, 1)


def build_dev(clone: Clone, *targets: str) -> None:
    clone.run("cmake", "--preset", "dev", f"-DMERON_PYTHON={sys.executable}")
    chosen = ["--target", *targets] if targets else []
    clone.run("cmake", "--build", "--preset", "dev", *chosen)


def edit(clone: Clone, name: str, turn: int) -> str:
    """Adds a line to a file, tests what it reaches, and takes the line out again."""
    path, line = EDITS[name]
    file = clone.folder / path
    text = file.read_text("utf-8")
    try:
        file.write_text(text + line.format(turn=turn), "utf-8")
        return clone.run("tools/test", "--changed", "HEAD", "--within", str(WITHIN))
    finally:
        file.write_text(text, "utf-8")


def passed(output: str) -> int:
    found = re.findall(r"^(\d+) passed, 0 failed", output, re.MULTILINE)
    if not found:
        raise BenchError(f"no test passed:\n{output[-2000:]}")
    return int(found[-1])


def stages_of(output: str) -> list[str]:
    """The lines that a whole run ends with: a stage, its result and its seconds."""
    return re.findall(r"^ {2}\w+ +\d+ passed.*$", output, re.MULTILINE)


def measure(arguments: argparse.Namespace, folder: Path) -> tuple[Mapping[str, Json], list[Goal]]:
    times: dict[str, Json] = {}
    cache = folder / "ccache"
    clone = Clone(folder / "one", cache)
    with timed(times, "setup"):
        clone.run("tools/setup", "--dev")
    with timed(times, "dev build and first test"):
        build_dev(clone, f"test_{FIRST_TEST}")
        clone.run("ctest", "--preset", "dev", "-R", f"^{FIRST_TEST}$")
    cold = sum(times[name]["seconds"] for name in ("setup", "dev build and first test"))
    goals = [Goal("clone to first test, seconds", cold, 720, False)]
    if arguments.quick:
        return times, goals
    with timed(times, "whole dev build"):
        build_dev(clone)
    for name in EDITS:
        edit(clone, name, 0)  # records the seconds of each test, by which --within chooses
        with timed(times, f"a line of {name}"):
            output = edit(clone, name, 1)
        times[f"a line of {name}"]["tests"] = passed(output)
        seconds = times[f"a line of {name}"]["seconds"]
        goals.append(Goal(f"a line of {name}, seconds", seconds, WITHIN, False))
    other = Clone(folder / "two", cache)
    other.run("ccache", "--zero-stats")
    with timed(times, "dev build of a second clone"):
        build_dev(other)
    goals.append(Goal("compilations that a second clone finds", hit_rate(other), 0.95))
    if arguments.whole:
        for state in ("cold", "warm"):
            shutil.rmtree(clone.folder / "build")
            if state == "cold":
                clone.run("ccache", "--clear")
            with timed(times, f"whole run, {state}"):
                output = clone.run("tools/test", wrong=False)
            print(output[-4000:] + clone.run("tools/test", "--times"), file=sys.stderr)
            times[f"whole run, {state}"]["stages"] = stages_of(output)
        for state, most in (("cold", 2100), ("warm", 1200)):
            seconds = times[f"whole run, {state}"]["seconds"]
            goals.append(Goal(f"whole run, {state}, seconds", seconds, most, False))
    return times, goals


def main() -> None:
    parser = report.parser("loop", __doc__ or "")
    where = "a folder for the clones (default: a temporary one)"
    parser.add_argument("--dir", type=Path, metavar="DIR", help=where)
    whole = "also tools/test, with an empty cache of the compiler and with a full one: an hour"
    parser.add_argument("--whole", action="store_true", help=whole)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="loop-", dir=arguments.dir) as folder:
        times, goals = measure(arguments, Path(folder))
    rows = [["", "seconds", "of a processor", "tests"]]
    for name, each in times.items():
        seconds = [f"{each[kind]:.0f}" for kind in ("seconds", "processor_seconds")]
        rows.append([name, *seconds, str(each.get("tests", ""))])
    print(report.columns(rows))
    series = [{"part": name, **each} for name, each in times.items()]
    report.finish("loop", arguments, goals, 0.0, series=series)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
