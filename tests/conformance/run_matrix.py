#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance cases by every runner on every transport, and prints the matrix.

    tests/conformance/run_matrix.py [--build build/release] [--runner NAME]...

A cell shows how many cases passed out of those that the table has for it; below is what failed.
A runner that is not there is left out. With MERON_TEST_XML set a JUnit file is written there.

Exit code: 0 all passed, 1 some failed, 77 none of the runners is there, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from table import HERE, Case, Malformed, Runner, read_cases, read_runners

ROOT = HERE.parents[1]
CELLS = (
    ("self", 1),
    ("local", 2),
    ("local", 3),
    ("shm", 2),
    ("shm", 3),
    ("custom", 2),
    ("custom", 3),
)
SILENCE_S = 30.0  # a runner that says nothing for so long hangs
GRACE_S = 5.0  # between asking a runner to end and making it

Title = tuple[str, str]  # a case's name and a plan


@dataclass
class Cell:
    """One runner's report of its cases on one transport."""

    runner: str
    transport: str
    ranks: int
    expected: list[Title]
    passed: set[Title] = field(default_factory=set)
    skipped: dict[Title, str] = field(default_factory=dict)
    failed: dict[Title, str] = field(default_factory=dict)
    under_way: Title | None = None
    seconds: float = 0.0

    def read(self, line: str) -> None:
        words = line.split()
        if len(words) >= 3 and words[0] == "#" and (words[1], words[2]) in self.expected:
            self.under_way = (words[1], words[2])
        elif len(words) >= 3 and words[0] == "ok":
            title = (words[1], words[2])
            if words[3:5] == ["#", "SKIP"]:
                self.skipped[title] = " ".join(words[5:])
            else:
                self.passed.add(title)
        elif len(words) >= 4 and words[:2] == ["not", "ok"]:
            title = (words[2], words[3].rstrip(":"))
            self.failed[title] = "; ".join(
                filter(None, (self.failed.get(title), line.partition(": ")[2]))
            )

    def end(self, what: str) -> None:
        """Blames what ended the runner too early on the case under way, and the rest on that."""
        self.passed -= self.failed.keys()
        known = self.passed | self.failed.keys() | self.skipped.keys()
        missing = [title for title in self.expected if title not in known]
        if what and self.under_way is not None and self.under_way not in self.failed:
            self.passed.discard(self.under_way)
            self.failed[self.under_way] = what
        for title in missing:
            self.failed.setdefault(title, f"was not run: {what or 'the runner left it out'}")
        if what and not self.failed:
            self.failed[("runner", "-")] = what

    def summary(self) -> str:
        skipped = f" ({len(self.skipped)} skipped)" if self.skipped else ""
        return f"{len(self.passed)}/{len(self.expected)}{skipped}"

    def refuse_skips(self, lacks: frozenset[str], cases: Mapping[str, Case]) -> None:
        """A skip counts as a failure where the runner does not declare what it lacks."""
        for (name, plan), why in list(self.skipped.items()):
            if not lacks.intersection(cases[name].needs):
                del self.skipped[name, plan]
                self.failed[name, plan] = f"skipped ({why}), which runners.txt does not declare"


def command_of(runner: Runner, build: Path) -> list[str] | None:
    """The command to start, or None where it or a file that it names is not there."""
    words = [word.format(root=ROOT, build=build, python=sys.executable) for word in runner.command]
    for word in words[1:]:
        path = Path(word)
        if path.is_relative_to(ROOT) and not path.exists():
            return None
    return words if shutil.which(words[0]) else None


def environment_of(build: Path) -> dict[str, str]:
    """Where a runner finds the library of this build, whatever its language looks at."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("MERON_")},
        "MERON_LIBRARY": str(build / "capi" / "libmeron.so"),
        "MERON_DIR": str(build),
        "LD_LIBRARY_PATH": os.pathsep.join(
            filter(None, (str(build / "capi"), os.environ.get("LD_LIBRARY_PATH")))
        ),
        "PYTHONPATH": str(ROOT / "bindings" / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The process' lines as they come; ends at its end. Raises TimeoutError when it is silent."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(SILENCE_S):
                raise TimeoutError
            data = os.read(descriptor, 1 << 16)
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that is still there, and all that it started: it leads its own session."""
    for number, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def run_cell(cell: Cell, command: list[str], build: Path) -> None:
    run_cells([cell], command, build)


def run_cells(cells: list[Cell], command: list[str], build: Path) -> None:
    """Runs one command for all the cells, which are all over `shm`, or none. Of several the first
    has the most ranks, and the runner says before each, as `@ shm 2`, which it is."""
    arguments = ["--job", f"conformance-{secrets.token_hex(8)}"]
    prefix = []
    if cells[0].transport == "shm":
        launcher = build / "tools" / "meron" / "meron"
        prefix = [str(launcher), "run", "-n", str(cells[0].ranks), "--"]
    if len(cells) > 1:
        arguments += ["--cells", ",".join(f"{cell.transport}:{cell.ranks}" for cell in cells)]
    else:
        arguments += ["--transport", cells[0].transport]
        arguments += [] if prefix else ["--ranks", str(cells[0].ranks)]
    whole = [*prefix, *command, str(HERE / "cases.txt"), *arguments]
    at = 0 if len(cells) == 1 else -1  # of the current cell
    over: set[int] = set()
    begin = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            whole,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=build,  # which lies on a drive: cases keep optimizer states there
            env=environment_of(build),
            start_new_session=True,
        )
        what = ""
        try:
            for line in lines_of(process):
                said = [(cell.transport, str(cell.ranks)) for cell in cells]
                if line.startswith("@ ") and tuple(line.split()[1:]) in said:
                    if at >= 0:
                        over.add(at)
                        cells[at].end("")
                        cells[at].seconds = time.monotonic() - begin
                    begin, at = time.monotonic(), said.index((line.split()[1], line.split()[2]))
                elif at >= 0:
                    cells[at].read(line)
            code = process.wait(SILENCE_S)
            if code not in (0, 1) or (code == 1 and not any(cell.failed for cell in cells)):
                what = f"the runner ended with {describe(code)}"
        except (TimeoutError, subprocess.TimeoutExpired):
            what = f"the runner said nothing for {SILENCE_S:.0f} s"
        finally:
            stop(process)
            assert process.stdout is not None
            process.stdout.close()
        if what:
            errors.seek(0)
            tail = errors.read().decode("utf-8", "replace").strip()[-2000:]
            what = f"{what}: {tail}" if tail else what
    cells[max(at, 0)].seconds = time.monotonic() - begin
    for number, cell in enumerate(cells):
        if number not in over:
            cell.end(what)


def cells_of(runner: Runner, cases: list[Case]) -> Iterator[list[Cell]]:
    """The runner's cells, together those that one command runs."""
    cells = []
    for transport, ranks in CELLS:
        if not {transport, f"{transport}{ranks}"} & runner.lacks:
            runs = [case for case in cases if case.runs_on(transport, ranks)]
            expected = [(case.name, plan) for case in runs for plan in case.plans]
            cells.append(Cell(runner.name, transport, ranks, expected))
    if not runner.together:
        yield from ([cell] for cell in cells)
        return
    # The most ranks first: a rank that the rest does not need may end.
    yield [cell for cell in cells if cell.transport != "shm"]
    yield [cell for cell in reversed(cells) if cell.transport == "shm"]


def describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def matrix(rows: dict[str, list[Cell]]) -> str:
    table = [["", *(f"{transport} {ranks}" for transport, ranks in CELLS)]]
    for name, cells in rows.items():
        said = {(cell.transport, cell.ranks): cell.summary() for cell in cells}
        table.append([name, *(said.get(cell, "-") for cell in CELLS)])
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in table
    )


def write_junit(path: Path, rows: dict[str, list[Cell]]) -> None:
    suites = ElementTree.Element("testsuites")
    for cells in rows.values():
        for cell in cells:
            name = f"conformance.{cell.runner}.{cell.transport}{cell.ranks}"
            suite = ElementTree.SubElement(
                suites,
                "testsuite",
                name=name,
                tests=str(len(cell.passed) + len(cell.failed) + len(cell.skipped)),
                failures=str(len(cell.failed)),
                skipped=str(len(cell.skipped)),
                errors="0",
                time=f"{cell.seconds:.3f}",
            )
            for title in [*cell.expected, *(cell.failed.keys() - set(cell.expected))]:
                test = ElementTree.SubElement(
                    suite, "testcase", classname=name, name=" ".join(title)
                )
                if title in cell.failed:
                    ElementTree.SubElement(test, "failure", message=clean(cell.failed[title]))
                elif title in cell.skipped:
                    ElementTree.SubElement(test, "skipped", message=clean(cell.skipped[title]))
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)


def clean(text: str) -> str:
    """Without the control characters that XML does not have."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR")
    parser.add_argument("--runner", action="append", metavar="NAME", help="only this one; repeat")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    build = arguments.build.resolve()
    try:
        cases, runners = read_cases(), read_runners()
    except (OSError, Malformed) as error:
        print(error, file=sys.stderr)
        return 2
    unknown = set(arguments.runner or ()) - {runner.name for runner in runners}
    if unknown:
        print(f"runners.txt has no runner {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2

    rows: dict[str, list[Cell]] = {}
    for runner in runners:
        if arguments.runner and runner.name not in arguments.runner:
            continue
        command = command_of(runner, build)
        if command is None:
            print(f"{runner.name}: left out, {' '.join(runner.command)} is not there")
            continue
        for cells in cells_of(runner, cases):
            run_cells(cells, command, build)
            for cell in cells:
                cell.refuse_skips(runner.lacks, {case.name: case for case in cases})
                rows.setdefault(runner.name, []).append(cell)
    if not rows:
        return 77

    print(matrix(rows))
    failed = False
    for cells in rows.values():
        for cell in cells:
            for (name, plan), what in cell.failed.items():
                failed = True
                print(f"{cell.runner} {cell.transport} {cell.ranks}: {name} {plan}: {what}")
    if os.environ.get("MERON_TEST_XML"):
        write_junit(Path(os.environ["MERON_TEST_XML"]), rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
