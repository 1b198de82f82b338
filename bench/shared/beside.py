# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of another checkout and of this one, in turn: what a change costs or gains."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from arguments import existing_folder, new_file, whole
from report import (
    BenchError,
    Json,
    columns,
    command_line,
    commit,
    exit_code_of,
    machine,
    median,
    today,
)

ROOT = Path(__file__).resolve().parents[2]
MATTERS = 0.03  # of a figure: a smaller difference could be noise


@dataclass
class Figure:
    """A figure with a goal: its values in the turns of both checkouts."""

    name: str
    at_least: bool  # larger is better
    before: list[float] = field(default_factory=list)
    now: list[float] = field(default_factory=list)

    @property
    def gain(self) -> float:
        """Of the medians, as a part of the former one; negative: it became worse."""
        before, now = median(self.before), median(self.now)
        change = now - before if self.at_least else before - now
        return change / abs(before) if before else change

    @property
    def verdict(self) -> str:
        if abs(self.gain) <= MATTERS:
            return "same"
        overlap = min(self.before) <= max(self.now) and min(self.now) <= max(self.before)
        word = "better" if self.gain > 0 else "worse"
        return f"{word}, by less than turns differ" if overlap else word


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/bench beside",
        description="Runs benchmarks of another checkout and of this one in turn, and prints the "
        "medians of the figures that have goals. Each run builds what it needs.",
        epilog="git worktree add ../before COMMIT makes another checkout. Figures that differ by "
        f"at most {MATTERS:.0%} count as the same.",
    )
    parser.add_argument("folder", type=existing_folder, help="the other checkout's")
    parser.add_argument("names", nargs="+", metavar="NAME", help="benchmarks")
    parser.add_argument(
        "--turns", type=whole, default=3, metavar="N", help="runs of each (default: %(default)s)"
    )
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write every number to FILE")
    parser.add_argument(
        "--options", default="", metavar="WORDS", help='of the benchmarks: --options="--quick"'
    )
    return parser.parse_args(words)


def program_of(checkout: Path) -> Path:
    program = checkout.resolve() / "tools" / "run_bench.py"
    if not program.is_file():
        raise BenchError(f"{checkout} is no checkout of Meron: it has no tools/run_bench.py")
    return program


def require_bench(checkout: Path, name: str) -> None:
    """Before anything is measured: `--help` of a benchmark builds nothing."""
    words = [sys.executable, "-B", str(program_of(checkout)), name, "--help"]
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{name} in {checkout}: {(done.stderr or done.stdout).strip()}")


def run(checkout: Path, name: str, options: list[str]) -> Json:
    with tempfile.TemporaryDirectory(prefix="meron-beside-") as folder:
        file = Path(folder, "report.json")
        words = [sys.executable, "-B", program_of(checkout), name, "--json", file, *options]
        done = subprocess.run(
            list(map(str, words)),
            cwd=checkout,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0 or not file.exists():
            said = (done.stderr or done.stdout).strip()
            raise BenchError(f"{name} in {checkout} ended with {done.returncode}:\n{said}")
        report: Json = json.loads(file.read_text())
        return report


def compare(arguments: argparse.Namespace, name: str) -> list[Figure]:
    found: dict[str, Figure] = {}
    for turn in range(arguments.turns):
        sides = [("before", arguments.folder), ("now", ROOT)]
        for side, checkout in sides if turn % 2 == 0 else sides[::-1]:
            print(f"{name}: turn {turn + 1} of {arguments.turns}, {side}", flush=True)
            for goal in run(checkout, name, arguments.options.split())["goals"]:
                # C++ programs have lower bounds only.
                figure = Figure(goal["name"], goal.get("at_least", True))
                getattr(found.setdefault(figure.name, figure), side).append(goal["value"])
    return list(found.values())


def table(figures: list[Figure]) -> str:
    rows = [["", "before", "now", "gain", ""]]
    for figure in figures:
        if figure.before and figure.now:
            middles = [f"{median(figure.before):.3f}", f"{median(figure.now):.3f}"]
            rows.append([figure.name, *middles, f"{figure.gain:+.1%}", figure.verdict])
        else:
            where = "now" if figure.now else "before"
            rows.append([figure.name, "", "", "", f"{where} only"])
    return columns(rows)


def write(arguments: argparse.Namespace, benches: dict[str, list[Figure]]) -> None:
    words = ["FOLDER" if Path(word) == arguments.folder else word for word in sys.argv[1:]]
    body = {
        "bench": "beside",
        "date": today(),
        "command": command_line("beside", words),
        "commits": {"before": commit(arguments.folder), "now": commit(ROOT)},
        "machine": machine(),
        "turns": arguments.turns,
        "benches": {
            name: [
                asdict(each)
                | ({"gain": each.gain, "verdict": each.verdict} if each.before and each.now else {})
                for each in figures
            ]
            for name, figures in benches.items()
        },
    }
    try:
        arguments.json.write_text(json.dumps(body, indent=2) + "\n")
    except OSError as error:
        raise BenchError(f"cannot write {arguments.json}: {error.strerror}") from error


def main() -> None:
    arguments = parse_arguments(sys.argv[1:])
    for name in arguments.names:
        for checkout in (arguments.folder, ROOT):
            require_bench(checkout, name)
    benches = {}
    for name in arguments.names:
        benches[name] = compare(arguments, name)
        print(f"\n{table(benches[name])}\n", flush=True)
        if arguments.json is not None:  # a later one may fail
            write(arguments, benches)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
