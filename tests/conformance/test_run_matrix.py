# SPDX-License-Identifier: Apache-2.0
"""Tests the matrix's report of runners that fail, crash, hang, skip or leave out cases."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import run_matrix
from run_matrix import Cell, matrix, run_cell, run_cells, write_junit
from table import Case

TITLES = [("a", "zero3"), ("b", "zero3"), ("c", "zero3")]


def run(tmp_path: Path, source: str) -> Cell:
    """The cell of a runner that is this Python source."""
    script = tmp_path / "runner.py"
    script.write_text(f"import os, signal, sys, time\n{source}\n")
    cell = Cell("fake", "local", 2, TITLES)
    run_cell(cell, [sys.executable, "-u", str(script)], tmp_path)
    return cell


def test_lists_passed_and_failed_tests(tmp_path: Path) -> None:
    cell = run(
        tmp_path,
        """
for name in "abc":
    print("#", name, "zero3")
    if name == "b":
        print("not ok b zero3: rank 1: line 7: gather: 1, not 2")
    print("ok", name, "zero3")
sys.exit(1)
""",
    )
    assert cell.passed == {TITLES[0], TITLES[2]}
    assert cell.failed == {TITLES[1]: "rank 1: line 7: gather: 1, not 2"}


def test_a_crash_is_the_fault_of_the_case_under_way(tmp_path: Path) -> None:
    cell = run(
        tmp_path,
        """
print("# a zero3\\nok a zero3\\n# b zero3")
print("what the debugger said", file=sys.stderr)
os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    assert cell.passed == {TITLES[0]}
    assert cell.failed[TITLES[1]].startswith("the runner ended with SIGKILL: what the debugger")
    assert cell.failed[TITLES[2]].startswith("was not run: the runner ended with SIGKILL")


def test_a_crash_after_an_ok_unmakes_it(tmp_path: Path) -> None:
    """Rank 0 may be done with a case in which another rank crashes."""
    cell = run(tmp_path, 'print("# a zero3\\nok a zero3"); sys.exit(139)')
    assert cell.passed == set()
    assert "exit code 139" in cell.failed[TITLES[0]]


def test_a_failure_without_a_word(tmp_path: Path) -> None:
    cell = run(tmp_path, 'print("ok a zero3\\nok b zero3\\n# c zero3\\nok c zero3"); sys.exit(1)')
    assert cell.failed == {TITLES[2]: "the runner ended with exit code 1"}


def test_silence_ends_a_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_matrix, "SILENCE_S", 1.0)
    cell = run(tmp_path, 'print("# a zero3\\nok a zero3\\n# b zero3"); time.sleep(600)')
    assert "said nothing" in cell.failed[TITLES[1]]
    assert cell.seconds < 60


def test_omitted_tests_count_as_failed(tmp_path: Path) -> None:
    cell = run(tmp_path, 'print("ok a zero3\\nok c zero3")')
    assert cell.failed == {TITLES[1]: "was not run: the runner left it out"}


def test_skips_must_be_declared(tmp_path: Path) -> None:
    source = 'print("ok a zero3 # SKIP needs dlpack\\nok b zero3\\nok c zero3")'
    cases = {name: Case(name, needs=["dlpack"]) for name in "abc"}
    cell = run(tmp_path, source)
    cell.refuse_skips(frozenset({"dlpack"}), cases)
    assert (set(cell.skipped), cell.failed) == ({TITLES[0]}, {})
    cell = run(tmp_path, source)
    cell.refuse_skips(frozenset(), cases)
    assert set(cell.failed) == {TITLES[0]}


def test_report(tmp_path: Path) -> None:
    cell = run(tmp_path, 'print("ok a zero3\\nnot ok b zero3: \\x01 <&>\\nok c zero3")')
    assert "2/3" in matrix({"fake": [cell]})
    write_junit(tmp_path / "report.xml", {"fake": [cell]})
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert [test.get("name") for test in suite] == ["a zero3", "b zero3", "c zero3"]


def run_together(tmp_path: Path, source: str) -> list[Cell]:
    """Two cells of a runner that runs both in one process."""
    script = tmp_path / "runner.py"
    script.write_text(f"import os, signal, sys, time\n{source}\n")
    cells = [Cell("fake", "self", 1, TITLES), Cell("fake", "local", 2, TITLES)]
    run_cells(cells, [sys.executable, "-u", str(script)], tmp_path)
    return cells


def test_distinguishes_cells_of_one_process(tmp_path: Path) -> None:
    good = 'print("ok a zero3\\nok b zero3\\nok c zero3")'
    bad = 'print("ok a zero3\\nnot ok b zero3: why\\nok c zero3")'
    first, second = run_together(
        tmp_path,
        f'assert sys.argv[-1] == "self:1,local:2"\nprint("@ self 1")\n{good}\n'
        f'print("@ local 2")\n{bad}\nsys.exit(1)',
    )
    assert (first.passed, first.failed) == (set(TITLES), {})
    assert (second.passed, second.failed) == ({TITLES[0], TITLES[2]}, {TITLES[1]: "why"})


def test_a_crash_between_cells_fails_what_was_not_run(tmp_path: Path) -> None:
    good = 'print("ok a zero3\\nok b zero3\\nok c zero3")'
    first, second = run_together(
        tmp_path, f'print("@ self 1")\n{good}\nos.kill(os.getpid(), signal.SIGKILL)'
    )
    assert first.failed == {("runner", "-"): "the runner ended with SIGKILL"}
    assert second.passed == set()
    assert set(second.failed) == set(TITLES)


def test_a_cell_that_is_left_out_has_failed(tmp_path: Path) -> None:
    first, second = run_together(
        tmp_path, 'print("@ local 2\\nok a zero3\\nok b zero3\\nok c zero3")'
    )
    assert set(first.failed) == set(TITLES)
    assert (second.passed, second.failed) == (set(TITLES), {})
