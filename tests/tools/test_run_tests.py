#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A failure must never be counted as something else."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import run_tests
from run_tests import Tally

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
        self.addCleanup(run_tests.failures.clear)

    def count(self, report: str, **results: str) -> Tally:
        (self.folder / "ctest-report").write_text(report)
        for name, text in results.items():
            (self.folder / f"{name}.xml").write_text(text)
        return run_tests.count_ctest("release", self.folder / "ctest-report", self.folder)

    def test_cases_are_counted_one_by_one(self) -> None:
        report = ctest(case("g", "fail", "<failure/>"), case("p", "fail", "<failure/>"))
        self.assertEqual(self.count(report, g=GOOGLETEST, p=PYTEST), Tally(2, 3, 3))
        self.assertEqual(run_tests.failures, ["release: g", "release: p"])

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


if __name__ == "__main__":
    unittest.main()
