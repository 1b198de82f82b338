# SPDX-License-Identifier: Apache-2.0
"""Runs ctest, counts its tests and records their times."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tally import Tally, count_ctest, fail, failures
from testing.project import ROOT, build_folder, results_of, tests_at_a_time
from testing.times import Measuring, Times, save


def needs_fixed_addresses(preset: str) -> bool:
    """ThreadSanitizer of these compilers cannot map its shadow if the kernel randomizes addresses
    by more than 28 bits."""
    try:
        bits = int(Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    except (OSError, ValueError):
        return False
    if preset != "tsan" or bits <= 28:
        return False
    return subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0


def forget_results(preset: str) -> None:
    results = results_of(preset)
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)


def only(names: list[str]) -> list[str]:
    """Returns the arguments by which ctest runs these tests."""
    return ["-R", f"^({'|'.join(re.escape(name) for name in names)})$"]


def run_ctest(
    preset: str, arguments: argparse.Namespace, words: list[str], quiet: bool = False
) -> Tally:
    """Runs the tests that `words` select. If `quiet`, only failures are printed."""
    build = build_folder(preset)
    report = build / "ctest-report.xml"
    report.unlink(missing_ok=True)
    command = ["ctest", "--preset", preset, "--parallel", str(tests_at_a_time(arguments))]
    command += ["--output-junit", str(report), *words]
    if arguments.regex:
        command += ["-R", arguments.regex, "--no-tests=ignore"]
    if needs_fixed_addresses(preset):
        command = ["setarch", "-R", *command]
    known = len(failures)
    with Measuring(build) as measuring:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
        )
        measuring.ctest = process.pid
        status = process.wait()
    tally = count_ctest(preset, report, results_of(preset))
    record(build, report, measuring, arguments.run)
    if status != 0 and len(failures) == known:
        tally += fail(f"{preset}: ctest itself, with exit status {status}")
    return tally


def record(build: Path, report: Path, measuring: Measuring, run: str) -> None:
    try:
        cases = ElementTree.parse(report).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError):
        return
    save(
        build,
        {
            name: Times(
                wall=round(float(case.get("time", "0")), 2),
                processor=round(measuring.sampler.seconds(name), 2),
                run=run,
            )
            for case in cases
            if (name := case.get("name")) and case.get("status") in ("run", "fail")
        },
    )
