# SPDX-License-Identifier: Apache-2.0
"""Builds and tests everything, and counts. tools/test starts this after tools/setup."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tally import ONE_PASSED, ONE_SKIPPED, Tally, count_ctest, fail, say, say_failures

ROOT = Path(__file__).resolve().parents[1]
PRESETS = ("release", "asan", "tsan")
# Folders whose Python is type-checked strictly. (Examples and tests are linted only.)
TYPED = (
    *("tools/*.py", "tests/tidy/*.py", "bindings/python/*.py"),
    *(f"tests/distributed/hosts/{name}.py" for name in ("hosts", "launchers", "namespaces")),
)
# Of those, what cannot be checked where torch is not installed.
NEED_TORCH = tuple(
    f"bindings/python/meron/{name}/"
    for name in ("checkpointing", "convert", "lightning", "torch", "zero")
)
CORES = len(os.sched_getaffinity(0))
# Most tests wait most of their time: for ranks, for drives, for deadlines.
TESTS_AT_A_TIME = CORES + (CORES + 1) // 2
# Of these the tests run a share; their tables are in bench/results.
CAMPAIGNS = {"fault": "tests/fault/checkpoint/campaign.py"}

HELP = """\
Builds Meron and runs its tests, with progress, and ends with one line:

    N passed, N failed, N skipped

Every GoogleTest and pytest case counts as one; any other test program or check counts as one. A
build that fails counts as one failure. Exits with 0 only if nothing failed.

What runs:
  checks    ruff, mypy and clang-format over the sources (each only where it is installed)
  release   every test
  asan      AddressSanitizer + UndefinedBehaviorSanitizer: labels unit, capi and distributed
  tsan      ThreadSanitizer: the same

asan and tsan are built while the tests of the presets before them run, in what these leave of the
processors. Tests that measure time come last, one at a time.
"""

EXAMPLES = """\
examples:
  tools/test                      everything; on two cores plan for 40 minutes
  tools/test --quick              checks and release, without the tests labelled slow: 5 minutes,
                                  and 8 more where the compiler's cache knows nothing yet
  tools/test --preset asan        one preset (may be given more than once)
  tools/test --full fault         2,000 kills, 300 power cuts, ... of savers: half an hour
  tools/test -R arena             tests whose name matches, under every preset
Builds are kept in build/<preset>, so that a second run compiles only what changed. There,
`ctest --preset release -R NAME --verbose` shows one test's whole output.
"""


# ---- Checks: each is one test -------------------------------------------------------------------


def sources(*patterns: str) -> list[str]:
    """Files under version control, and new ones that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode == 0:
        found = [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]
        return sorted(set(found))
    paths = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.rglob(pattern)}
    made = ("build", ".venv", ".gpu-pack")
    return sorted(str(path) for path in paths if path.parts[0] not in made)


def typed_sources() -> list[str]:
    files = sources(*TYPED)
    if importlib.util.find_spec("torch") is None:
        files = [name for name in files if not name.startswith(NEED_TORCH)]
    return files


def run_check(name: str, command: list[str] | None, missing: str) -> Tally:
    if command is None:
        say(f"  {name}: skipped, {missing}")
        return ONE_SKIPPED
    begin = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seconds = time.monotonic() - begin
    if done.returncode == 0:
        say(f"  {name}: passed ({seconds:.1f} s)")
        return ONE_PASSED
    say(f"  {name}: FAILED\n{done.stdout}")
    return fail(name)


def check_layout(files: list[str]) -> Tally:
    formatter = shutil.which("clang-format-14")  # each version lays out a little differently
    if not formatter:
        return run_check("clang-format", None, "tools/setup --dev installs clang-format-14")
    done = subprocess.run(
        [formatter, "--dry-run", "-Werror", "--ferror-limit=1", *files],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        say("  clang-format: passed")
        return ONE_PASSED
    wrong = sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error", done.stderr, re.MULTILINE)))
    say(f"  clang-format: FAILED; clang-format-14 -i {' '.join(wrong)}")
    return fail("clang-format")


def run_checks() -> Tally:
    say("== checks")
    python_files = sources("*.py")
    cxx_files = sources("*.h", "*.hpp", "*.c", "*.cpp", "*.cu", "*.cuh")

    def python_tool(module: str, *arguments: str) -> list[str] | None:
        probe = [sys.executable, "-c", f"import {module}"]
        if subprocess.run(probe, capture_output=True).returncode != 0:
            return None
        return [sys.executable, "-m", module, *arguments]

    tally = Tally()
    if python_files:
        lint = python_tool("ruff", "check", "--no-cache", "--quiet", *python_files)
        layout = python_tool("ruff", "format", "--no-cache", "--check", "--quiet", *python_files)
        types = python_tool("mypy", "--no-error-summary", *typed_sources())
        tally += run_check("ruff check", lint, "ruff is not installed")
        tally += run_check("ruff format", layout, "ruff is not installed")
        tally += run_check("mypy", types, "mypy is not installed")
    if cxx_files:
        tally += check_layout(cxx_files)
    return tally


# ---- Building -----------------------------------------------------------------------------------


def build(
    preset: str, jobs: int, show: Callable[[str], None], prefix: list[str]
) -> list[str] | None:
    """Configures and builds, by commands that `prefix` starts; `show` gets ninja's count. None when
    all went well, else what is wrong."""
    configuring = ["cmake", "--preset", preset, "-DMERON_WERROR=ON"]
    configured = subprocess.run(
        [*prefix, *configuring, f"-DMERON_PYTHON={sys.executable}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if configured.returncode != 0:
        return [configured.stdout, f"{preset}: configuring FAILED"]
    process = subprocess.Popen(
        [*prefix, "cmake", "--build", "--preset", preset, "--parallel", str(jobs)],
        cwd=ROOT,
        env={**os.environ, "NINJA_STATUS": "[%f/%t] "},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        count = re.match(r"\[(\d+)/(\d+)\] ", line)
        if count:
            show(f"{count[1]} of {count[2]}")
        else:
            said.append(line.rstrip("\n"))
    return None if process.wait() == 0 else [*said, f"{preset}: the build FAILED"]


def idle_prefix() -> list[str]:
    """Starts a command that runs when nothing else wants to."""
    if shutil.which("chrt"):
        return ["chrt", "--idle", "0"]
    return ["nice", "-n", "19"]


class Progress:
    """Shows a count where it is seen: at once on a terminal, else now and then."""

    def __init__(self) -> None:
        self.shown = time.monotonic()

    def __call__(self, count: str) -> None:
        if sys.stdout.isatty():
            print(f"\r  {count} ", end="", flush=True)
        elif time.monotonic() - self.shown >= 20:
            self.shown = time.monotonic()
            say(f"  {count}")


class Builds:
    """The presets' builds, one after the other. The first is made at once; the others while tests
    of those before leave a processor idle: many tests wait most of their time."""

    def __init__(self, presets: list[str], jobs: int) -> None:
        self.presets = presets
        self.jobs = jobs
        self.wrong: dict[str, list[str] | None] = {}
        self.ended = {preset: threading.Event() for preset in presets}
        self.count = ""
        threading.Thread(target=self.build_all, daemon=True).start()

    def build_all(self) -> None:
        prefix: list[str] = []
        for preset in self.presets:
            try:
                self.wrong[preset] = build(preset, self.jobs, self.take_count, prefix)
            except Exception as error:  # no other code reports it
                self.wrong[preset] = [f"{preset}: the build FAILED: {error}"]
            self.ended[preset].set()
            prefix = idle_prefix()

    def is_built(self, preset: str) -> bool:
        return preset in self.wrong and self.wrong[preset] is None

    def take_count(self, count: str) -> None:
        self.count = count

    def wait(self, preset: str) -> bool:
        """Whether the preset is built; says what is wrong if it is not."""
        say(f"== {preset}: building")
        begin = time.monotonic()
        show = Progress()
        while not self.ended[preset].wait(1):
            show(self.count)
        if sys.stdout.isatty():
            print("\r", end="")
        wrong = self.wrong[preset]
        for line in wrong or []:
            say(line)
        if wrong is None:
            say(f"  built; {time.monotonic() - begin:.0f} s were waited")
        return wrong is None


# ---- Testing ------------------------------------------------------------------------------------


def needs_fixed_addresses(preset: str) -> bool:
    """ThreadSanitizer of these compilers cannot map its shadow where the kernel randomizes
    addresses by more than 28 bits."""
    try:
        bits = int(Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    except (OSError, ValueError):
        return False
    if preset != "tsan" or bits <= 28:
        return False
    return subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0


def test(preset: str, arguments: argparse.Namespace) -> Tally:
    say(f"== {preset}: testing")
    results = results_of(preset)
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    words: list[str] = []
    # The other presets choose by label, and ctest leaves out only what all its filters leave out.
    if preset == "release":
        words = ["-LE", labels("alone", *slow(arguments))]
    tally = run_ctest(preset, arguments, words)
    say(f"  {preset}: {tally}")
    return tally


def test_alone(preset: str, arguments: argparse.Namespace) -> Tally:
    """Runs the tests that measure time: when nothing is built beside them any more."""
    say(f"== {preset}: testing, one test at a time")
    words = ["-L", labels("alone"), "--no-tests=ignore"]
    if slow(arguments):
        words += ["-LE", labels(*slow(arguments))]
    tally = run_ctest(preset, arguments, words)
    say(f"  {preset}: {tally}")
    return tally


def slow(arguments: argparse.Namespace) -> list[str]:
    return ["slow"] if arguments.quick else []


def results_of(preset: str) -> Path:
    return ROOT / "build" / preset / "test-results"


def labels(*names: str) -> str:
    """What ctest takes for any of the labels."""
    return f"^({'|'.join(names)})$"


def run_ctest(preset: str, arguments: argparse.Namespace, words: list[str]) -> Tally:
    binary_dir = ROOT / "build" / preset
    handle, name = tempfile.mkstemp(prefix="ctest-", suffix=".xml", dir=binary_dir)
    os.close(handle)
    report = Path(name)
    command = ["ctest", "--preset", preset, "--parallel", str(arguments.jobs or TESTS_AT_A_TIME)]
    command += ["--output-junit", str(report), *words]
    if arguments.regex:
        command += ["-R", arguments.regex, "--no-tests=ignore"]
    if needs_fixed_addresses(preset):
        command = ["setarch", "-R", *command]
    try:
        status = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
        tally = count_ctest(preset, report, results_of(preset))
    finally:
        report.unlink()
    if status != 0 and tally.failed == 0:
        tally += fail(f"{preset}: ctest itself, with exit status {status}")
    return tally


# ---- Main ---------------------------------------------------------------------------------------


def parse_arguments() -> argparse.Namespace:
    known = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    names = [preset["name"] for preset in known if not preset.get("hidden")]
    parser = argparse.ArgumentParser(
        prog="tools/test",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="the shortest useful run")
    parser.add_argument(
        "--preset", action="append", choices=names, metavar="P", help=f"one of {', '.join(names)}"
    )
    parser.add_argument(
        "--full", choices=sorted(CAMPAIGNS), help="all trials of a campaign, and its table"
    )
    parser.add_argument("-R", dest="regex", metavar="REGEX", help="only tests whose name matches")
    parser.add_argument(
        "-j",
        dest="jobs",
        type=int,
        metavar="N",
        help=f"compilers, and tests, at a time (default: {CORES} and {TESTS_AT_A_TIME} here)",
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.full:
        campaign = ROOT / CAMPAIGNS[arguments.full]
        os.execv(sys.executable, [sys.executable, "-B", str(campaign)])
    begin = time.monotonic()
    presets = arguments.preset or (["release"] if arguments.quick else list(PRESETS))
    tally = Tally()
    builds = Builds(presets, arguments.jobs or CORES)
    if not arguments.regex and not arguments.preset:
        tally += run_checks()
    for preset in presets:
        if builds.wait(preset):
            tally += test(preset, arguments)
        else:
            tally += fail(f"{preset}: the build")
    if builds.is_built("release"):
        tally += test_alone("release", arguments)
    say(f"\n{', '.join(presets)} in {time.monotonic() - begin:.0f} s")
    say_failures()
    if tally == Tally():
        say("no test was found to run")
    say(str(tally))
    return 0 if tally.failed == 0 and tally != Tally() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("\ninterrupted")
        sys.exit(130)
