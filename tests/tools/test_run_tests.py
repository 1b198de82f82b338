#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A failure must never be counted as something else."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import run_tests
import tally
from tally import Tally

GOOGLETEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="1" errors="0" name="AllTests">
  <testsuite name="A" tests="4" failures="1" disabled="1" skipped="1" errors="0">
    <testcase name="ok" status="run" result="completed" classname="A" />
    <testcase name="bad" status="run" result="completed" classname="A">
      <failure message="x" type=""><![CDATA[x]]></failure>
    </testcase>
    <testcase name="skip" status="run" result="skipped" classname="A">
      <skipped message="not here"><![CDATA[not here]]></skipped>
    </testcase>
    <testcase name="DISABLED_x" status="notrun" result="suppressed" classname="A" />
  </testsuite>
</testsuites>
"""
PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4">
  <testcase classname="t" name="a" />
  <testcase classname="t" name="b"><failure message="assert 0">x</failure></testcase>
  <testcase classname="t" name="c"><skipped type="pytest.skip" message="x">x</skipped></testcase>
  <testcase classname="t" name="d"><error message="fixture">x</error></testcase>
</testsuite></testsuites>
"""
ALL_PASSED = '<testsuites><testsuite><testcase name="a" status="run" /></testsuite></testsuites>'


def ctest(*cases: str) -> str:
    return f"<testsuite>{''.join(cases)}</testsuite>"


def case(name: str, status: str, inside: str = "") -> str:
    return f'<testcase name="{name}" classname="{name}" status="{status}">{inside}</testcase>'


class Counting(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="meron-run-tests-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(tally.failures.clear)

    def count(self, report: str, **results: str) -> Tally:
        (self.folder / "ctest-report").write_text(report)
        for name, text in results.items():
            (self.folder / f"{name}.xml").write_text(text)
        return tally.count_ctest("release", self.folder / "ctest-report", self.folder)

    def test_cases_are_counted_one_by_one(self) -> None:
        report = ctest(case("g", "fail", "<failure/>"), case("p", "fail", "<failure/>"))
        self.assertEqual(self.count(report, g=GOOGLETEST, p=PYTEST), Tally(2, 3, 3))
        self.assertEqual([each.name for each in tally.failures], ["release: g", "release: p"])

    def test_what_failed_is_said_again_at_the_end(self) -> None:
        lines = "\n".join(f"line {i}" for i in range(100))
        report = ctest(
            case("a", "run", "<system-out>well</system-out>"),
            case("b", "fail", f"<failure/><system-out>{lines}\n\n</system-out>"),
            case("c", "fail", "<failure/>"),
        )
        self.count(report)
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            tally.say_failures()
        said = shown.getvalue().splitlines()
        self.assertEqual(said[0], "== release: b: the last lines")
        self.assertEqual(said[1], f"  line {100 - tally.LAST_LINES}")
        self.assertEqual(said[-3:], ["  line 99", "failed: release: b", "failed: release: c"])

    def test_a_program_without_a_report_counts_as_one(self) -> None:
        skipped = '<skipped message="SKIP_RETURN_CODE=77"/>'
        report = ctest(case("a", "run"), case("b", "fail"), case("c", "notrun", skipped))
        self.assertEqual(self.count(report), Tally(1, 1, 1))

    def test_a_program_that_is_not_there_failed(self) -> None:
        missing = '<skipped message="Unable to find executable"/>'
        self.assertEqual(self.count(ctest(case("a", "notrun", missing))), Tally(0, 1, 0))

    def test_a_failure_outside_all_cases_is_one_more(self) -> None:
        self.assertEqual(self.count(ctest(case("a", "fail")), a=ALL_PASSED), Tally(1, 1, 0))

    def test_a_report_cut_off_by_a_crash_is_no_report(self) -> None:
        self.assertEqual(self.count(ctest(case("a", "fail")), a=GOOGLETEST[:200]), Tally(0, 1, 0))

    def test_a_switched_off_test_is_skipped(self) -> None:
        self.assertEqual(self.count(ctest(case("a", "disabled"))), Tally(0, 0, 1))

    def test_no_report_counts_nothing(self) -> None:
        self.assertEqual(self.count(""), Tally())

    def test_the_last_line(self) -> None:
        self.assertEqual(str(Tally(3, 2, 1)), "3 passed, 2 failed, 1 skipped")

    def test_types_are_checked_of_what_can_be_imported(self) -> None:
        needy = "bindings/python/meron/torch/api.py"
        for found, wanted in ((object(), True), (None, False)):
            with mock.patch("importlib.util.find_spec", return_value=found):
                self.assertEqual(needy in run_tests.typed_sources(), wanted)

    def test_what_is_checked_without_torch_does_not_import_it(self) -> None:
        with mock.patch("importlib.util.find_spec", return_value=None):
            found = run_tests.typed_sources()
        self.assertIn("bindings/python/meron/checkpoint.py", found)
        importing = re.compile(r"^(import|from) torch\b", re.MULTILINE)
        texts = {name: (run_tests.ROOT / name).read_text("utf-8") for name in found}
        self.assertEqual([name for name, text in texts.items() if importing.search(text)], [])


class Building(unittest.TestCase):
    """Presets are built behind the tests of those before; nothing of that may get lost."""

    def setUp(self) -> None:
        self.steps: list[str] = []
        self.wrong: dict[str, list[str]] = {}
        self.allowed = threading.Event()  # what is built behind the tests may end
        self.allowed.set()
        for name, stand_in in (("build", self.build), ("run_ctest", self.run_ctest)):
            patch = mock.patch.object(run_tests, name, stand_in)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(tally.failures.clear)

    def build(
        self, preset: str, jobs: int, show: Callable[[str], None], prefix: list[str]
    ) -> list[str] | None:
        if prefix:
            self.assertTrue(self.allowed.wait(10))
        self.steps.append(f"built {preset}")
        if self.wrong.get(preset) == ["raise"]:
            raise OSError("no room")
        return self.wrong.get(preset)

    def run_ctest(self, preset: str, arguments: object, words: list[str]) -> Tally:
        alone = words[:2] == ["-L", "^(alone)$"]
        self.steps.append(f"tested {preset}" + (" alone" if alone else ""))
        if preset == "release":
            self.allowed.set()
        return Tally(passed=1)

    def main(self, *words: str) -> tuple[int, str]:
        with (
            tempfile.TemporaryDirectory(prefix="meron-run-tests-") as folder,
            mock.patch.object(run_tests, "results_of", lambda preset: Path(folder) / preset),
            mock.patch.object(sys, "argv", ["run_tests.py", "-R", "x", *words]),
            contextlib.redirect_stdout(io.StringIO()) as shown,
        ):
            return run_tests.main(), shown.getvalue()

    def test_the_first_preset_is_tested_while_the_others_are_built(self) -> None:
        self.allowed.clear()
        code, shown = self.main()
        self.assertEqual(code, 0, shown)
        self.assertEqual(self.steps[:2], ["built release", "tested release"])
        self.assertLess(self.steps.index("built tsan"), self.steps.index("tested tsan"))
        self.assertTrue(shown.endswith("4 passed, 0 failed, 0 skipped\n"), shown)

    def test_what_measures_time_runs_when_nothing_is_built_any_more(self) -> None:
        self.main()
        self.assertEqual(self.steps[-1], "tested release alone")
        self.assertEqual(
            sorted(self.steps[:-1]),
            sorted(
                f"{what} {preset}" for what in ("built", "tested") for preset in run_tests.PRESETS
            ),
        )

    def test_a_build_that_fails_behind_the_tests_is_told_and_counted(self) -> None:
        for wrong in (["x.cpp:1: error: y"], ["raise"]):
            with self.subTest(wrong):
                self.wrong = {"asan": wrong}
                code, shown = self.main()
                self.assertEqual(code, 1)
                self.assertIn("no room" if wrong == ["raise"] else wrong[0], shown)
                self.assertNotIn("tested asan", self.steps)
                self.assertTrue(shown.endswith("3 passed, 1 failed, 0 skipped\n"), shown)

    def test_a_first_build_that_fails_leaves_the_others_to_be_tested(self) -> None:
        self.wrong = {"release": ["x.cpp:1: error: y"]}
        code, shown = self.main()
        self.assertEqual(code, 1)
        self.assertTrue(shown.endswith("2 passed, 1 failed, 0 skipped\n"), shown)

    def test_one_preset_is_built_and_tested_alone(self) -> None:
        self.assertEqual(self.main("--preset", "tsan")[0], 0)
        self.assertEqual(self.steps, ["built tsan", "tested tsan"])


if __name__ == "__main__":
    unittest.main()
