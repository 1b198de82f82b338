# SPDX-License-Identifier: Apache-2.0
"""Orders the tests of a change: the nearest and cheapest first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from impact.graph import Selection, Test

# In the order in which they run. A test belongs to the first tier that fits.
SOURCE = "source checks"
NEAREST = "nearest tests"
UNIT = "other unit tests"
LINKED = "C API and ranks"
LANGUAGES = "languages and commands"
SLOW = "slow tests"
TIMED = "tests that measure time"
TIERS = (SOURCE, NEAREST, UNIT, LINKED, LANGUAGES, SLOW, TIMED)

# Assumed wall seconds of a test that has not run here yet.
ASSUMED_SECONDS = {"slow": 30.0, "python": 4.0, "bindings": 4.0, "distributed": 4.0}
ASSUMED_OTHERWISE = 2.0
# Words of paths that do not distinguish tests.
SAME_FOLDER = 100
COMMON = {"impl", "bindings", "python", "meron", "src", "tests", "test", "unit", "init"}


@dataclass(frozen=True)
class Tier:
    name: str
    tests: list[str] = field(default_factory=list)


def assumed(test: Test) -> float:
    for label, seconds in ASSUMED_SECONDS.items():
        if label in test.labels:
            return seconds
    return ASSUMED_OTHERWISE


def words_of(text: str) -> set[str]:
    return {word for word in re.split(r"[^a-z0-9]+", text.lower()) if word} - COMMON


def affinity(test: Test, file: str) -> int:
    """Returns how close a test is by its names. If the folders have the same name, as impl/io and
    tests/unit/io, that weighs most. Otherwise it is the number of common words: two, say, of
    `torch_checkpoint` and `meron/torch/checkpoint/save.py`."""
    stem = file.rpartition(".")[0] or file
    folder = str(PurePosixPath(file).parent)
    same_folder = words_of(folder.replace("_", "/")) == words_of(test.folder.replace("_", "/"))
    return SAME_FOLDER * same_folder + len(
        words_of(stem.replace("_", "/")) & words_of(test.name.replace("_", "/"))
    )


def nearest(selection: Selection, tests: Mapping[str, Test]) -> set[str]:
    """Returns the tests that are closest to a change: by their names, unit tests before others, and
    if no name matches, unit tests by the length of the way."""
    best: set[str] = set()
    for file in {reach.file for reach in selection.tests.values()}:
        mine = {
            name: reach.distance
            for name, reach in selection.tests.items()
            if reach.file == file and not tests[name].reads_sources
        }
        own = [name for name, distance in mine.items() if distance <= 1]
        units = [name for name in mine if "unit" in tests[name].labels]
        if own:  # the file belongs to these tests
            best |= set(own)
        else:
            quick = units or [name for name in mine if "slow" not in tests[name].labels]
            most = max((affinity(tests[name], file) for name in quick), default=0)
            if most:
                best |= {name for name in quick if affinity(tests[name], file) == most}
            elif units:
                least = min(mine[name] for name in units)
                best |= {name for name in units if mine[name] == least}
    return best


def tier_of(test: Test, is_nearest: bool) -> str:
    if test.reads_sources and "slow" not in test.labels:
        return SOURCE
    if "alone" in test.labels:
        return TIMED
    if "slow" in test.labels:
        return SLOW
    if is_nearest:
        return NEAREST
    if "unit" in test.labels:
        return UNIT
    if test.labels & {"capi", "distributed"}:
        return LINKED
    return LANGUAGES


def arrange(
    selection: Selection, tests: Mapping[str, Test], seconds: Mapping[str, float]
) -> list[Tier]:
    """Returns the tiers that have tests, each with its cheapest test first."""
    near = nearest(selection, tests)
    tiers = {name: Tier(name) for name in TIERS}
    for name in selection.tests:
        tiers[tier_of(tests[name], name in near)].tests.append(name)
    for tier in tiers.values():
        tier.tests.sort(key=lambda name: (seconds.get(name, assumed(tests[name])), name))
    return [tier for tier in tiers.values() if tier.tests]


def fit(
    names: list[str],
    tests: Mapping[str, Test],
    seconds: Mapping[str, float],
    budget: float,
    at_a_time: int,
) -> tuple[list[str], float]:
    """Returns those of the tests, which are sorted by cost, that end within `budget` seconds when
    `at_a_time` run at once, and the seconds that they take."""
    chosen: list[str] = []
    work = 0.0
    longest = 0.0
    for name in names:
        test = tests[name]
        cost = seconds.get(name, assumed(test))
        alone = at_a_time if "alone" in test.labels else min(test.processors, at_a_time)
        more = work + cost * alone
        if max(more / at_a_time, longest, cost) > budget:
            continue
        chosen.append(name)
        work = more
        longest = max(longest, cost)
    return chosen, max(work / at_a_time, longest)
