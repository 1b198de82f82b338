#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A failure must never be counted as something else."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import run_tests
import tally
from tally import Tally
from testing import builds, checks, processes, project, times

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

    def test_failures_are_repeated_at_the_end(self) -> None:
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
                self.assertEqual(needy in checks.typed_sources(), wanted)

    def test_checks_without_torch_do_not_import_it(self) -> None:
        with mock.patch("importlib.util.find_spec", return_value=None):
            found = checks.typed_sources()
        self.assertIn("bindings/python/meron/checkpoint.py", found)
        importing = re.compile(r"^(import|from) torch\b", re.MULTILINE)
        texts = {name: (project.ROOT / name).read_text("utf-8") for name in found}
        self.assertEqual([name for name, text in texts.items() if importing.search(text)], [])


class Stages(unittest.TestCase):
    """Presets are built behind the tests of earlier ones, and the first failure ends the run."""

    def setUp(self) -> None:
        self.steps: list[str] = []
        self.wrong: dict[str, list[str]] = {}
        self.failing: set[str] = set()
        self.allowed = threading.Event()  # what is built behind the tests may end
        self.allowed.set()
        for module, name, stand_in in (
            (builds, "build", self.build),
            (builds, "configure", lambda preset, prefix=(): None),
            (run_tests, "configure", lambda preset: self.wrong.get(f"configure {preset}")),
            (run_tests, "run_checks", self.run_checks),
            (run_tests, "run_ctest", self.run_ctest),
            (run_tests, "forget_results", lambda preset: None),
        ):
            patch = mock.patch.object(module, name, stand_in)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(tally.failures.clear)

    def result(self, name: str) -> Tally:
        if name in self.failing:
            tally.failures.append(tally.Failure(name, "a line", ("Suite.Case",)))
            return Tally(failed=1)
        return Tally(passed=1)

    def run_checks(self) -> Tally:
        self.steps.append("checked")
        return self.result("checks")

    def build(
        self, preset: str, jobs: int, show: Callable[[str], None], prefix: list[str]
    ) -> list[str] | None:
        if prefix:
            self.assertTrue(self.allowed.wait(10))
        self.steps.append(f"built {preset}")
        if self.wrong.get(preset) == ["raise"]:
            raise OSError("no room")
        return self.wrong.get(preset)

    def run_ctest(
        self, preset: str, arguments: object, words: list[str], quiet: bool = False
    ) -> Tally:
        how = {"^(alone)$": " alone", "^(source)$": " source"}.get(
            words[1] if words[:1] == ["-L"] else "", ""
        )
        self.steps.append(f"tested {preset}{how}")
        if preset == "release":
            self.allowed.set()
        return self.result(preset + how)

    def main(self, *words: str) -> tuple[int, str]:
        """Its result and output, once its builds have ended: the next test replaces what they
        call."""
        before = threading.enumerate()
        with (
            mock.patch.object(sys, "argv", ["run_tests.py", *words]),
            contextlib.redirect_stdout(io.StringIO()) as shown,
        ):
            code = run_tests.main()
            self.allowed.set()
            for thread in threading.enumerate():
                if thread not in before:
                    thread.join(10)
            return code, shown.getvalue()

    def test_the_first_preset_is_tested_while_the_others_are_built(self) -> None:
        self.allowed.clear()
        code, shown = self.main("-R", "x")
        self.assertEqual(code, 0, shown)
        self.assertEqual(self.steps[:2], ["built release", "tested release"])
        self.assertLess(self.steps.index("built tsan"), self.steps.index("tested tsan"))
        self.assertTrue(shown.endswith("4 passed, 0 failed, 0 skipped\n"), shown)

    def test_nothing_is_built_before_the_checks_have_passed(self) -> None:
        code, shown = self.main()
        self.assertEqual(code, 0, shown)
        self.assertEqual(self.steps[:3], ["checked", "tested release source", "built release"])

    def test_tests_that_measure_time_run_when_all_builds_have_ended(self) -> None:
        self.main("-R", "x")
        self.assertEqual(self.steps[-1], "tested release alone")
        self.assertEqual(
            sorted(self.steps[:-1]),
            sorted(
                f"{what} {preset}" for what in ("built", "tested") for preset in project.PRESETS
            ),
        )

    def test_each_stage_has_a_line_with_its_result_and_seconds(self) -> None:
        _, shown = self.main()
        lines = shown.splitlines()
        begin = lines.index("checks: 2 passed, 0 failed, 0 skipped in 0 s")
        names = [line.split(":")[0] for line in lines[begin : begin + 5]]
        self.assertEqual(names, ["checks", "release", "asan", "tsan", "timed"])

    def test_the_first_stage_that_fails_ends_the_run(self) -> None:
        for failing, left in (
            ("checks", ["release", "asan", "tsan", "timed"]),
            ("release source", ["release", "asan", "tsan", "timed"]),
            ("release", ["asan", "tsan", "timed"]),
            ("asan", ["tsan", "timed"]),
        ):
            with self.subTest(failing):
                self.failing, self.steps = {failing}, []
                tally.failures.clear()
                code, shown = self.main()
                self.assertEqual(code, 1)
                for name in left:
                    self.assertIn(f"{name}: not run, because ", shown)
                    self.assertNotIn(f"tested {name}", self.steps)
                lines = shown.splitlines()
                self.assertEqual(lines[-3:-1], [f"failed: {failing}", "  Suite.Case"])
                self.assertIn("1 failed", lines[-1])

    def test_keep_going_runs_all_stages(self) -> None:
        self.failing = {"checks", "release"}
        code, shown = self.main("--keep-going")
        self.assertEqual(code, 1)
        self.assertEqual(self.steps[-1], "tested release alone")
        self.assertTrue(shown.endswith("4 passed, 2 failed, 0 skipped\n"), shown)

    def test_a_tree_that_cannot_be_configured_fails_its_checks(self) -> None:
        self.wrong = {"configure release": ["CMake Error"]}
        code, shown = self.main()
        self.assertEqual((code, self.steps), (1, []))
        self.assertIn("failed: release: configuring", shown)

    def test_a_build_that_fails_behind_the_tests_is_reported_and_counted(self) -> None:
        for wrong in (["x.cpp:1: error: y"], ["raise"]):
            with self.subTest(wrong):
                self.wrong, self.steps = {"asan": wrong}, []
                code, shown = self.main("-R", "x")
                self.assertEqual(code, 1)
                self.assertIn("no room" if wrong == ["raise"] else wrong[0], shown)
                self.assertNotIn("tested asan", self.steps)
                self.assertTrue(shown.endswith("1 passed, 1 failed, 0 skipped\n"), shown)

    def test_keep_going_continues_after_a_first_build_that_fails(self) -> None:
        self.wrong = {"release": ["x.cpp:1: error: y"]}
        code, shown = self.main("-R", "x", "--keep-going")
        self.assertEqual(code, 1)
        self.assertTrue(shown.endswith("2 passed, 1 failed, 0 skipped\n"), shown)

    def test_times_beside_another_option_runs_the_tests(self) -> None:
        self.main("--keep-going", "--times")
        self.assertIn("built release", self.steps)

    def test_one_preset_is_built_and_tested_alone(self) -> None:
        self.assertEqual(self.main("--preset", "tsan")[0], 0)
        self.assertEqual(self.steps, ["built tsan", "tested tsan"])


class TimesOfTests(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="meron-times-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.build = self.root / "build/release"
        self.build.mkdir(parents=True)
        patch = mock.patch.object(project, "ROOT", self.root)
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_last_run_is_reported_dearest_first(self) -> None:
        first = {"gone": times.Times(9, 9, "2026-01-01")}
        times.save(self.build, first | {"b": times.Times(1, 1, "2026-01-01")})
        many = {f"t{i:02}": times.Times(50 - i, i, "2026-01-02") for i in range(30)}
        times.save(self.build, many | {"b": times.Times(2.5, 70.25, "2026-01-02")})
        lines = times.report(None) or []
        self.assertEqual(len(lines), 2 + times.DEAREST)
        self.assertEqual(lines[0], "the 20 dearest tests of the run of 2026-01-02")
        self.assertEqual(lines[2].split(), ["70.2", "2.5", "release:", "b"])
        self.assertEqual(lines[3].split(), ["29.0", "21.0", "release:", "t29"])
        self.assertEqual(len(times.report("2026-01-01") or []), 3)

    def test_without_a_run_there_is_no_report(self) -> None:
        self.assertIsNone(times.report(None))
        times.file_of(self.build).write_text("{damaged")
        self.assertIsNone(times.report(None))
        with (
            mock.patch.object(sys, "argv", ["run_tests.py", "--times"]),
            mock.patch.object(run_tests, "known_presets", return_value=["release"]),
            contextlib.redirect_stdout(io.StringIO()) as shown,
        ):
            self.assertEqual(run_tests.main(), 2)
        self.assertIn("Run tools/test first", shown.getvalue())

    def test_costs_of_ctest_fill_what_is_not_recorded(self) -> None:
        costs = self.build / "Testing/Temporary/CTestCostData.txt"
        costs.parent.mkdir(parents=True)
        costs.write_text("a 3 1.5\nb 1 2\n---\nc\n")
        times.save(self.build, {"b": times.Times(4, 1, "r")})
        self.assertEqual(times.wall_seconds(self.build), {"a": 1.5, "b": 4})

    def test_processes_count_for_the_test_below_which_they_began(self) -> None:
        sampler = times.Sampler({("prog", "x"): "test"})
        ctest = processes.Process(1, 0, 0, "S", 900, 0)
        prog = processes.Process(2, 1, 5, "S", 10, 3)
        child = processes.Process(3, 2, 6, "R", 100, 0)
        orphan = processes.Process(3, 1000, 6, "R", 160, 0)
        other = processes.Process(4, 7, 8, "R", 500, 0)
        reused = processes.Process(3, 7, 99, "R", 5000, 0)
        with mock.patch.object(times, "command_of", lambda pid: ("env", "prog", "x")):
            sampler.take(1, [ctest, prog, child, other])
            self.assertEqual(sampler.ticks, {"test": 113})
            sampler.take(1, [ctest, prog, orphan, other])  # its parent has ended
            sampler.take(1, [ctest, reused])
        self.assertEqual(sampler.ticks, {"test": 173})


class Interrupting(unittest.TestCase):
    PROGRAM = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from testing import processes
processes.end_all_on_interrupt(processes.mark(), print)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
orphan = "import os, time; os.fork() and os._exit(0); os.setsid(); print(1, flush=True)"
for code in (deaf, orphan, "import time; print(1, flush=True)"):
    command = [sys.executable, "-c", code + "; time.sleep(60)"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=code != deaf)
    child.stdout.readline()
print("ready", flush=True)
subprocess.run(["sleep", "60"])
"""

    def test_all_children_end_within_two_seconds(self) -> None:
        tools = str(project.ROOT / "tools")
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(
                [sys.executable, "-c", self.PROGRAM, tools],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**os.environ, processes.MARK: "[the run around this test]"},
            )
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), "ready\n")
            mark = f"[{process.pid}."
            begin = time.monotonic()
            process.send_signal(number)
            self.assertEqual(process.wait(10), 128 + number)
            self.assertLess(time.monotonic() - begin, 2)
            process.stdout.close()
            left = [
                each.pid
                for each in processes.all_processes()
                if each.state != "Z" and processes.has_mark(each.pid, mark)
            ]
            self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
