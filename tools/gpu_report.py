# SPDX-License-Identifier: Apache-2.0
"""The report of tools/gpu-check: a table for people, and gpu-check.json."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gpu_machine
from gpu_phases import (
    Check,
    Result,
)
from tally import Tally

ROOT = Path(__file__).resolve().parents[1]


def count_goals(goals: Sequence[Mapping[str, Any]]) -> str:
    met = sum(bool(goal.get("passed")) for goal in goals)
    return f"{met} goals met, {len(goals) - met} missed" if goals else "no goals"


def table(check: Check, results: Sequence[Result]) -> str:
    width = max(len(result.name) for result in results)
    lines = [f"{'phase':<{width}}  result   seconds", "-" * (width + 18)]
    for one in results:
        note = "" if one.result == "passed" else f"  {one.note}"
        lines.append(f"{one.name:<{width}}  {one.result:<7}  {one.seconds:7.1f}{note}")
    lines.append(f"tests: {check.tests}")
    if check.goals:
        lines.append(f"bench: {count_goals(check.goals)}")
        lines += map(describe_goal, check.goals)
    lines += [f"failed: {name}" for name in check.failures]
    return "\n".join(lines)


def describe_goal(goal: Mapping[str, Any]) -> str:
    """A goal of a benchmark's report; those of programs in C++ are all lower bounds."""
    bound = ">=" if goal.get("at_least", True) else "<="
    verdict = "met" if goal.get("passed") else "MISSED"
    value, limit = float(goal["value"]), float(goal["goal"])
    return f"  {verdict:<6}  {value:8.3f} {bound} {limit:<5g}  {goal['name']}"


def commit() -> str:
    git = shutil.which("git")
    words = [git or "git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    return gpu_machine.output_of(words).strip() or "unknown"


def has_passed(tests: Tally, results: Sequence[Result]) -> bool:
    return tests.passed > 0 and all(result.result != "failed" for result in results)


def write_report(check: Check, results: Sequence[Result], seconds: float) -> None:
    report = {
        "commit": commit(),
        "machine": check.machine.facts(),
        "versions": check.machine.versions(),
        "torch": check.torch,
        "seconds": round(seconds, 1),
        "phases": [{**asdict(result), "seconds": round(result.seconds, 1)} for result in results],
        "tests": asdict(check.tests),
        "failures": check.failures,
        "goals": check.goals,
        "passed": has_passed(check.tests, results),
    }
    (check.out / "gpu-check.json").write_text(json.dumps(report, indent=2) + "\n")
