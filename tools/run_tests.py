# SPDX-License-Identifier: Apache-2.0
"""Builds and tests everything, and counts. tools/test starts this after tools/setup."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from functools import partial

from tally import Tally, fail, say, say_failures
from testing import changed, times
from testing.builds import Builds, configure
from testing.checks import run_checks
from testing.ctest import forget_results, run_ctest
from testing.processes import end_all, end_all_on_interrupt, mark
from testing.project import CORES, PRESETS, ROOT, TESTS_AT_A_TIME, known_presets, labels
from testing.stages import Stage, Stages

# Of these the tests run a share; their tables are in bench/results.
CAMPAIGNS = {"fault": "tests/fault/checkpoint/campaign.py"}

HELP = """\
Builds Meron and runs its tests, with progress, and ends with one line:

    N passed, N failed, N skipped

Every GoogleTest and pytest case counts as one; any other test program or check counts as one. A
build that fails counts as one failure. Exits with 0 only if nothing failed.

Stages, in this order; the first that fails ends the run, and its failures are printed again:
  checks    ruff, mypy and clang-format over the sources (each only if it is installed), and the
            tests labelled source. Nothing is built.
  release   every other test: C, C++ and all languages
  asan      AddressSanitizer + UndefinedBehaviorSanitizer: labels unit, capi and distributed
  tsan      ThreadSanitizer: the same
  timed     the tests that measure time, one at a time

asan and tsan are built while the tests of the presets before them run, by processors that are
otherwise idle. Ctrl-C ends all tests and builds within two seconds.
"""

EXAMPLES = """\
examples:
  tools/test                      everything; on two cores plan for 40 minutes
  tools/test --quick              checks and release, without the tests labelled slow: 5 minutes,
                                  and 8 more if the compiler's cache is empty
  tools/test --changed            tests that this branch's changes can reach, nearest first
  tools/test --changed --list     the same, as a list: nothing is built or run
  tools/test --changed HEAD --within 60
                                  the same for uncommitted changes, for about a minute
  tools/test --preset asan        one preset (may be given more than once)
  tools/test --full fault         2,000 kills, 300 power cuts, ... of savers: half an hour
  tools/test -R arena             tests whose name matches, under every preset
  tools/test --times              the dearest tests of the last run
Builds are kept in build/<preset>, so that a second run compiles only what changed. There,
`ctest --preset release -R NAME --verbose` shows one test's whole output.
"""


# ---- Stages -------------------------------------------------------------------------------------


def slow(arguments: argparse.Namespace) -> list[str]:
    return ["slow"] if arguments.quick else []


def check(arguments: argparse.Namespace) -> Tally:
    """Runs what needs no build: a wrong file is found before anything is compiled."""
    say("== checks")
    wrong = configure("release")
    if wrong:
        for line in wrong:
            say(line)
        return fail("release: configuring")
    tally = run_checks()
    forget_results("release")
    words = ["-L", labels("source")]
    if slow(arguments):
        words += ["-LE", labels(*slow(arguments))]
    source = run_ctest("release", arguments, words, quiet=True)
    say(f"  source checks: {source}")
    return tally + source


def test(preset: str, arguments: argparse.Namespace, checked: bool) -> Tally:
    """Runs a preset's tests, without source checks that ran before and without timed tests."""
    say(f"== {preset}: testing")
    words: list[str] = []
    # The other presets choose by label, and ctest leaves out only what all its filters leave out.
    if preset == "release":
        done = ["source"] if checked else []
        words = ["-LE", labels("alone", *done, *slow(arguments))]
    if preset != "release" or not checked:
        forget_results(preset)
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


def run_stages(arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    presets = arguments.preset or (["release"] if arguments.quick else list(PRESETS))
    stages = Stages(arguments.keep_going)
    checked = not arguments.regex and not arguments.preset
    if checked:
        stages.run(Stage("checks", lambda: check(arguments)))
    builds = None if stages.is_over() else Builds(presets, arguments.jobs or CORES)

    def build_and_test(preset: str) -> Tally:
        if builds is None or not builds.wait(preset):
            return fail(f"{preset}: the build")
        return test(preset, arguments, checked)

    for preset in presets:
        stages.run(Stage(preset, partial(build_and_test, preset)))
    if "release" in presets and (builds is None or builds.is_built("release")):
        stages.run(Stage("timed", lambda: test_alone("release", arguments)))
    say(f"\n{', '.join(presets)} in {time.monotonic() - begin:.0f} s")
    stages.say_lines()
    if arguments.times:
        say_times(arguments.run)
    say_failures()
    if stages.tally == Tally():
        say("no test was found to run")
    say(str(stages.tally))
    return 0 if stages.tally.failed == 0 and stages.tally != Tally() else 1


def say_times(run: str | None) -> bool:
    lines = times.report(run)
    for line in lines or []:
        say(line)
    return lines is not None


# ---- Main ---------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise ValueError(text)
    return value


def expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(text) from error
    return text


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    names = known_presets()
    parser = argparse.ArgumentParser(
        prog="tools/test",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="leave out tests labelled slow")
    parser.add_argument(
        "--changed",
        nargs="?",
        const="",
        metavar="BASE",
        help="only tests that can reach what differs from BASE (default: the commit at which this "
        "branch left the main branch), uncommitted changes included; in doubt, every test",
    )
    parser.add_argument(
        "--list", action="store_true", help="with --changed: print the tests and run nothing"
    )
    parser.add_argument(
        "--within",
        type=seconds,
        metavar="SECONDS",
        help="with --changed: only tests that end in time by their last durations, the nearest "
        "first; a build takes as long as it takes",
    )
    parser.add_argument(
        "--preset", action="append", choices=names, metavar="P", help=f"one of {', '.join(names)}"
    )
    parser.add_argument(
        "--full", choices=sorted(CAMPAIGNS), help="all trials of a campaign, and its table"
    )
    parser.add_argument(
        "-R", dest="regex", type=expression, metavar="REGEX", help="only tests whose name matches"
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="run all stages even if one has failed"
    )
    parser.add_argument(
        "--times",
        action="store_true",
        help=f"print the {times.DEAREST} dearest tests: of the last run if it is the only option, "
        "else of this one",
    )
    parser.add_argument(
        "-j",
        dest="jobs",
        type=int,
        metavar="N",
        help=f"compilers, and tests, at a time (default: {CORES} and {TESTS_AT_A_TIME} here)",
    )
    arguments = parser.parse_args(words)
    if arguments.changed is None and (arguments.list or arguments.within is not None):
        parser.error("--list and --within belong to --changed")
    arguments.run = times.run_name()
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if arguments.full:
        campaign = ROOT / CAMPAIGNS[arguments.full]
        os.execv(sys.executable, [sys.executable, "-B", str(campaign)])
    if sys.argv[1:] == ["--times"]:
        if say_times(None):
            return 0
        say("tools/test: --times has no recorded run. Run tools/test first.")
        return 2
    if arguments.changed is not None:
        return changed.run(arguments)
    return run_stages(arguments)


if __name__ == "__main__":
    own = mark()
    end_all_on_interrupt(own, say)
    code = main()
    end_all(own)  # a build behind the stage that failed
    sys.exit(code)
