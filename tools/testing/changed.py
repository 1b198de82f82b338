# SPDX-License-Identifier: Apache-2.0
"""`tools/test --changed`: builds and runs what a change can reach, the nearest first."""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from impact.cmake import NotConfigured, ask, read_listings
from impact.git import Change, GitError, find_change
from impact.graph import EVERYTHING, Graph, Selection, impact
from impact.rules import RULES
from impact.tiers import NEAREST, SOURCE, Tier, arrange, fit
from impact.tree import make_graph
from tally import Tally, fail, say, say_failures
from testing.builds import Progress, build, configure
from testing.checks import CHECKED_SUFFIXES, run_checks_of
from testing.ctest import forget_results, only, run_ctest
from testing.project import (
    CHANGED_PRESETS,
    CORES,
    ROOT,
    build_folder,
    known_presets,
    tests_at_a_time,
)
from testing.stages import Stage, Stages
from testing.times import report, wall_seconds

PAGES = (".md", ".png")
MOST_NAMES = 12  # of a list in one line


class BadRequest(Exception):
    """Something that the person who called has to change. The exit code is 2."""


class ConfiguringFailed(Exception):
    """CMake's message. The change itself may be the cause, so that this is a failed test."""


@dataclass
class LeftOut:
    """Tests that do not run, by the reason."""

    reasons: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, names: Iterable[str]) -> None:
        found = sorted(names)
        if found:
            self.reasons[reason] = sorted({*self.reasons.get(reason, []), *found})

    def line(self) -> str:
        if not self.reasons:
            return "left out: nothing"
        texts = [
            f"{len(names)} {reason} ({abridge(names)})" for reason, names in self.reasons.items()
        ]
        return f"left out: {'; '.join(texts)}"


@dataclass
class Plan:
    preset: str
    graph: Graph
    tiers: list[Tier]
    seconds: dict[str, float]
    left_out: LeftOut
    builds: bool = True


def abridge(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def choose_preset(arguments: argparse.Namespace) -> str:
    if arguments.preset:
        if len(arguments.preset) > 1:
            raise BadRequest("--changed takes one --preset, because it builds in one folder")
        return str(arguments.preset[0])
    known = known_presets()
    return next(preset for preset in CHANGED_PRESETS if preset in known)


def read_graph(preset: str) -> Graph:
    folder = build_folder(preset)
    ask(folder)
    wrong = configure(preset)
    if wrong:
        raise ConfiguringFailed("\n".join(wrong))
    try:
        return make_graph(ROOT, folder)
    except NotConfigured as error:
        raise BadRequest(f"CMake did not describe the build: {error}") from None


def has_device() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def explain(change: Change, selection: Selection) -> list[str]:
    """Describes what changed, and why everything runs if it does."""
    count = len(change.files)
    line = f"{count} file{'s differ' if count != 1 else ' differs'} from {change.base}"
    if change.uncommitted:
        line += f"; uncommitted changes count too: {change.uncommitted}"
    lines = [f"{line}: {abridge(change.files)}"]
    if selection.in_doubt:
        names = abridge(selection.in_doubt)
        lines.append(f"in doubt: {names} is not known, so everything runs (tools/impact/rules.py)")
    elif selection.everything:
        pattern = next(
            rule.pattern
            for rule in RULES
            if EVERYTHING in rule.reaches and fnmatchcase(selection.everything[0], rule.pattern)
        )
        lines.append(f"everything runs: {abridge(selection.everything)} matches {pattern}")
    return lines


def drop(plan: Plan, reason: str, names: set[str]) -> None:
    plan.left_out.add(reason, (n for tier in plan.tiers for n in tier.tests if n in names))
    kept = [Tier(t.name, [n for n in t.tests if n not in names]) for t in plan.tiers]
    plan.tiers = [tier for tier in kept if tier.tests]


def unreachable_reason(left_out: list[str], graph: Graph) -> str:
    kinds = Counter(
        next((label for label in ("unit", "source") if label in graph.tests[name].labels), "other")
        for name in left_out
    )
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), reverse=True))
    return f"that the change cannot reach: {counts}"


def is_page(file: str) -> bool:
    return file.endswith(PAGES) or file.startswith("docs/")


def is_built(graph: Graph, preset: str, name: str) -> bool:
    """Returns True if the artifacts that a test needs exist."""
    needed = graph.tests[name].targets
    artifacts = graph.artifacts if needed is None else {n: graph.artifacts[n] for n in needed}
    folder = build_folder(preset)
    return all((folder / path).exists() for paths in artifacts.values() for path in paths)


def make_plan(
    arguments: argparse.Namespace,
    files: list[str],
    selection: Selection,
    preset: str,
    graph: Graph,
) -> Plan:
    seconds = {**wall_seconds(build_folder("release")), **wall_seconds(build_folder(preset))}
    plan = Plan(preset, graph, arrange(selection, graph.tests, seconds), seconds, LeftOut())
    # Unit tests first: these are the layers that a change leaves alone.
    names = sorted(selection.left_out, key=lambda n: ("unit" not in graph.tests[n].labels, n))
    if names:
        plan.left_out.reasons[unreachable_reason(names, graph)] = names
    if arguments.regex:
        pattern = re.compile(arguments.regex)
        drop(plan, "that -R does not match", {n for n in graph.tests if not pattern.search(n)})
    if not has_device():
        drop(plan, "without a GPU", {n for n, t in graph.tests.items() if "gpu" in t.labels})
    if arguments.quick:
        drop(plan, "labelled slow", {n for n, t in graph.tests.items() if "slow" in t.labels})
    if all(is_page(file) for file in files):
        # Pages compile nothing: what runs their programs takes the library as it is.
        plan.builds = False
        drop(plan, "that need a build", {n for n in graph.tests if not is_built(graph, preset, n)})
    if preset != "release":
        elsewhere = set(read_listings(build_folder("release"))) - graph.tests.keys()
        plan.left_out.add("of the preset release only", elsewhere)
    return plan


def limit(plan: Plan, budget: float, at_a_time: int) -> None:
    """Leaves out what does not fit into the seconds: the nearest tiers have the first choice."""
    too_long: set[str] = set()
    for tier in plan.tiers:
        chosen, needed = fit(tier.tests, plan.graph.tests, plan.seconds, budget, at_a_time)
        too_long |= set(tier.tests) - set(chosen)
        budget -= needed
    drop(plan, "for time", too_long)


def targets_of(plan: Plan, names: list[str]) -> list[str] | None:
    """Returns the targets to build before the tests run. Empty: all of them; None: nothing."""
    needed: set[str] = set()
    for name in names:
        test = plan.graph.tests[name]
        if test.targets is None:
            return []
        needed |= test.targets
    return sorted(needed) or None


class Runner:
    def __init__(self, arguments: argparse.Namespace, plan: Plan, deadline: float | None) -> None:
        self.arguments = arguments
        self.plan = plan
        self.deadline = deadline

    def fitting(self, tier: Tier, names: list[str]) -> list[str]:
        """Drops what no longer fits, but never the tests for which a person calls this."""
        if self.deadline is None or tier.name in (SOURCE, NEAREST):
            return names
        budget = self.deadline - time.monotonic()
        at_a_time = tests_at_a_time(self.arguments)
        chosen, _ = fit(names, self.plan.graph.tests, self.plan.seconds, budget, at_a_time)
        return chosen

    def run_tier(self, tier: Tier) -> Tally:
        say(f"== {tier.name}: {abridge(tier.tests)}")
        names = self.fitting(tier, tier.tests)
        targets = targets_of(self.plan, names) if self.plan.builds else None
        if targets is not None:
            wrong = build(
                self.plan.preset, self.arguments.jobs or CORES, Progress(), targets=targets
            )
            if wrong:
                for line in wrong:
                    say(line)
                return fail(f"{self.plan.preset}: the build")
            names = self.fitting(tier, names)
        self.plan.left_out.add("for time", set(tier.tests) - set(names))
        if not names:
            return Tally()
        return run_ctest(self.plan.preset, self.arguments, only(names), quiet=True)


def run(arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    try:
        change = find_change(ROOT, arguments.changed)
        if not change.files:
            say(f"nothing differs from {change.base}: nothing to test")
            return 0
        preset = choose_preset(arguments)
        graph = read_graph(preset)
    except (GitError, BadRequest) as error:
        say(f"tools/test: {error}")
        return 2
    except ConfiguringFailed as error:
        say(str(error))
        say(str(fail(f"{preset}: configuring")))
        return 1
    selection = impact(change.files, graph)
    plan = make_plan(arguments, change.files, selection, preset, graph)
    arguments.regex = None  # the plan has applied it, and ctest takes one expression
    deadline = None
    if arguments.within is not None:
        deadline = begin + arguments.within
        limit(plan, deadline - time.monotonic(), tests_at_a_time(arguments))
    for line in explain(change, selection):
        say(line)
    if arguments.list:
        for tier in plan.tiers:
            say(f"{tier.name}: {' '.join(tier.tests)}")
        say(plan.left_out.line())
        return 0
    for tier in plan.tiers:
        say(f"will run {len(tier.tests)} of {tier.name}")
    announced = plan.left_out.line()
    say(announced)
    forget_results(preset)
    return run_plan(arguments, plan, deadline, change, announced)


def run_plan(
    arguments: argparse.Namespace,
    plan: Plan,
    deadline: float | None,
    change: Change,
    announced: str,
) -> int:
    begin = time.monotonic()
    stages = Stages(arguments.keep_going)
    runner = Runner(arguments, plan, deadline)

    def check() -> Tally:
        say("== checks of the changed files")
        return run_checks_of(change.files)

    if any(file.endswith(CHECKED_SUFFIXES) for file in change.files):
        stages.run(Stage("checks", check), at_once=True)
    for tier in plan.tiers:
        stages.run(Stage(tier.name, partial(runner.run_tier, tier)), at_once=True)
    say(f"\n{plan.preset}: changed since {change.base}, in {time.monotonic() - begin:.0f} s")
    if plan.left_out.line() != announced:
        say(plan.left_out.line())
    if arguments.times:
        for line in report(arguments.run) or []:
            say(line)
    say_failures()
    say(str(stages.tally))
    return 0 if stages.tally.failed == 0 else 1
