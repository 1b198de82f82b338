# SPDX-License-Identifier: Apache-2.0
"""The checks that need no build: linters, layouts, types, and the tests of the label `source`."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tally import ONE_PASSED, ONE_SKIPPED, Tally, fail, say
from testing.project import CORES, ROOT, sources

# Folders whose Python is type-checked strictly. (Examples and tests are linted only.)
TYPED = (
    *("tools/*.py", "tests/tidy/*.py", "tests/ranks/*.py", "bindings/python/*.py"),
    "tests/bindings/python/typed_program.py",
    *(f"tests/distributed/hosts/{name}.py" for name in ("hosts", "launchers", "namespaces")),
)
# Of those, what cannot be checked where torch is not installed.
NEED_TORCH = tuple(
    f"bindings/python/meron/{name}/"
    for name in ("checkpointing", "convert", "lightning", "torch", "zero")
)
PYTHON = ("*.py",)
CXX = ("*.h", "*.hpp", "*.c", "*.cpp", "*.cu", "*.cuh")
CHECKED_SUFFIXES = tuple(pattern[1:] for pattern in (*PYTHON, *CXX))


@dataclass(frozen=True)
class Outcome:
    name: str
    text: str  # a line, and after a failure the output
    tally: Tally


def typed_sources() -> list[str]:
    files = sources(*TYPED)
    if importlib.util.find_spec("torch") is None:
        files = [name for name in files if not name.startswith(NEED_TORCH)]
    return files


def skipped(name: str, reason: str) -> Outcome:
    return Outcome(name, f"skipped, {reason}", ONE_SKIPPED)


def run_check(name: str, command: list[str], explain: Callable[[str], str]) -> Outcome:
    begin = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode == 0:
        return Outcome(name, f"passed ({time.monotonic() - begin:.1f} s)", ONE_PASSED)
    return Outcome(name, f"FAILED{explain(done.stdout)}", Tally(failed=1))


def run_python_tool(name: str, module: str, *arguments: str) -> Outcome:
    if importlib.util.find_spec(module) is None:
        return skipped(name, f"{module} is not installed")
    command = [sys.executable, "-m", module, *arguments]
    return run_check(name, command, lambda output: f"\n{output}")


def check_cxx_layout(files: list[str]) -> Outcome:
    formatter = shutil.which("clang-format-14")  # each version lays out a little differently
    if not formatter:
        return skipped("clang-format", "tools/setup --dev installs clang-format-14")

    def explain(output: str) -> str:
        wrong = sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error", output, re.MULTILINE)))
        return f"; clang-format-14 -i {' '.join(wrong)}"

    command = [formatter, "--dry-run", "-Werror", "--ferror-limit=1", *files]
    return run_check("clang-format", command, explain)


def jobs_for(
    python_files: list[str], cxx_files: list[str], typed_files: list[str]
) -> list[Callable[[], Outcome]]:
    """Returns the checks that the files need, the shortest first."""
    jobs: list[Callable[[], Outcome]] = []
    if python_files:
        jobs += [
            lambda: run_python_tool(
                "ruff check", "ruff", "check", "--no-cache", "--quiet", *python_files
            ),
            lambda: run_python_tool(
                "ruff format", "ruff", "format", "--no-cache", "--check", "--quiet", *python_files
            ),
        ]
    if cxx_files:
        jobs.append(lambda: check_cxx_layout(cxx_files))
    if typed_files:
        jobs.append(lambda: run_python_tool("mypy", "mypy", "--no-error-summary", *typed_files))
    return jobs


def run_jobs(jobs: list[Callable[[], Outcome]]) -> Tally:
    """Runs as many at a time as there are processors, and prints each result."""
    tally = Tally()
    with ThreadPoolExecutor(CORES) as pool:
        for outcome in pool.map(lambda job: job(), jobs):
            say(f"  {outcome.name}: {outcome.text}")
            tally += outcome.tally
            if outcome.tally.failed:
                fail(outcome.name)
    return tally


def run_checks() -> Tally:
    return run_jobs(jobs_for(sources(*PYTHON), sources(*CXX), typed_sources()))


def run_checks_of(files: list[str]) -> Tally:
    """Checks some files only. Types depend on each other: if one is typed, all are checked."""
    existing = [name for name in files if (ROOT / name).is_file()]
    python_files = [name for name in existing if name.endswith(".py")]
    suffixes = tuple(pattern[1:] for pattern in CXX)
    cxx_files = [name for name in existing if name.endswith(suffixes)]
    typed_files = typed_sources() if python_files else []
    if not set(python_files) & set(typed_files):
        typed_files = []
    return run_jobs(jobs_for(python_files, cxx_files, typed_files))
