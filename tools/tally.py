# SPDX-License-Identifier: Apache-2.0
"""Counts of tests: by the reports of CTest, GoogleTest and pytest. And what failed, by its name."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


ONE_PASSED, ONE_FAILED, ONE_SKIPPED = Tally(passed=1), Tally(failed=1), Tally(skipped=1)

LAST_LINES = 60  # of what a test that failed has written
LINE = 400  # characters


@dataclass(frozen=True)
class Failure:
    name: str
    output: str = ""
    cases: tuple[str, ...] = ()


# Printed again at the end of the run.
failures: list[Failure] = []


def say(text: str = "") -> None:
    print(text, flush=True)


def fail(name: str) -> Tally:
    failures.append(Failure(name))
    return ONE_FAILED


def say_failures() -> None:
    """The ends of what they have written, and then all names together."""
    for failure in failures:
        lines = [line[:LINE] for line in failure.output.splitlines() if line.strip()]
        if lines:
            say(f"== {failure.name}: the last lines")
            say("\n".join(f"  {line}" for line in lines[-LAST_LINES:]))
    for failure in failures:
        say(f"failed: {failure.name}")
        for case in failure.cases:
            say(f"  {case}")


def count_ctest(preset: str, report: Path, results: Path) -> Tally:
    """Counts each test of a ctest report: by its cases where it left a file, else as one."""
    try:
        suite = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError):
        return Tally()
    tally = Tally()
    for test_case in suite.iter("testcase"):
        name = test_case.get("name", "")
        outcome = outcome_of_ctest(test_case)
        cases = count_cases(results / f"{name}.xml")
        if outcome.failed:
            output = test_case.findtext("system-out") or ""
            cases_failed = failed_cases(results / f"{name}.xml")
            failures.append(Failure(f"{preset}: {name}", output, cases_failed))
        if cases is None or outcome.skipped:
            tally += outcome
        elif outcome.failed and not cases.failed:
            tally += cases + ONE_FAILED  # it failed outside its cases: a leak, say, or at exit
        else:
            tally += cases
    return tally


def outcome_of_ctest(test_case: ElementTree.Element) -> Tally:
    if test_case.get("status") == "run":
        return ONE_PASSED
    skipped = test_case.find("skipped")
    reason = skipped.get("message", "") if skipped is not None else ""
    if test_case.get("status") == "disabled" or reason.startswith("SKIP_"):
        return ONE_SKIPPED
    return ONE_FAILED  # also a program that is not there: ctest says "notrun"


def count_cases(path: Path) -> Tally | None:
    """Counts the cases in a JUnit file of GoogleTest or pytest; None where there is none."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    tally = Tally()
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            tally += ONE_FAILED
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            tally += ONE_SKIPPED
        else:
            tally += ONE_PASSED
    return tally


def failed_cases(path: Path) -> tuple[str, ...]:
    """Returns the names of the cases that failed, as their file has them."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return ()
    return tuple(
        f"{case.get('classname')}.{case.get('name')}"
        for case in root.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    )
