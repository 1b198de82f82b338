# SPDX-License-Identifier: Apache-2.0
"""A graph of dependencies, and the tests that are reachable from changed files.

A node is a file (its path from the root), a folder (`folder:tests/fuzz`), a target of CMake
(`target:meron_io`) or a test (`test:io`). An edge leads from a node to a node that uses it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

EVERYTHING = "everything"


def folder_node(folder: str) -> str:
    return f"folder:{folder}"


def target_node(target: str) -> str:
    return f"target:{target}"


def test_node(test: str) -> str:
    return f"test:{test}"


@dataclass(frozen=True)
class Test:
    name: str
    labels: frozenset[str] = frozenset()
    folder: str = ""  # of the CMakeLists.txt that declares it
    processors: int = 1
    targets: frozenset[str] | None = frozenset()  # to build before it runs; None: all

    @property
    def reads_sources(self) -> bool:
        """True if it needs no build, so that it runs first."""
        return "source" in self.labels


@dataclass(frozen=True)
class Rule:
    """Tests that files reach on a way that no include, import or link shows.

    `pattern` is matched against the whole path; `*` matches `/` too. A member of `reaches` is a
    test's name (a pattern), `label:NAME`, `folder:PATH` for the tests declared below it,
    `target:NAME`, or EVERYTHING.
    """

    pattern: str
    reaches: tuple[str, ...]


@dataclass
class Graph:
    tests: dict[str, Test] = field(default_factory=dict)
    users: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    folders_of_targets: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    artifacts: dict[str, list[str]] = field(default_factory=dict)  # of targets, in the build
    rules: tuple[Rule, ...] = ()
    layers_above: dict[str, set[str]] = field(default_factory=dict)

    def add_use(self, user: str, used: str) -> None:
        self.users[used].add(user)

    def add_test(self, test: Test) -> None:
        self.tests[test.name] = test

    def tests_below(self, folder: str) -> list[str]:
        """Returns the tests that are declared in the folder or below it."""
        return [
            name
            for name, test in self.tests.items()
            if test.folder == folder or test.folder.startswith(f"{folder}/")
        ]


@dataclass(frozen=True)
class Reach:
    """The shortest way from a changed file to a test."""

    distance: int
    file: str


@dataclass(frozen=True)
class Selection:
    tests: dict[str, Reach]
    left_out: list[str]
    in_doubt: list[str]  # changed files of which nothing is known: every test runs
    everything: list[str]  # changed files that reach every test by a rule


def parents(path: str) -> Iterator[str]:
    """Yields the folders that contain the path, the nearest first and the root (`.`) last."""
    for parent in PurePosixPath(path).parents:
        yield str(parent)


def expand(graph: Graph, word: str) -> list[str]:
    """Returns the nodes that a member of `Rule.reaches` names."""
    kind, _, value = word.partition(":")
    if kind == "label":
        return [test_node(name) for name, test in graph.tests.items() if value in test.labels]
    if kind == "folder":
        return [test_node(name) for name in graph.tests_below(value)]
    if kind == "target":
        return [word]
    return [test_node(name) for name in graph.tests if fnmatchcase(name, word)]


def reachable(graph: Graph, starts: Iterable[str]) -> dict[str, int]:
    """Returns each test that uses a start, directly or not, with its distance."""
    distances = dict.fromkeys(starts, 0)
    queue = deque(distances)
    while queue:
        node = queue.popleft()
        for user in graph.users.get(node, ()):
            if user not in distances:
                distances[user] = distances[node] + 1
                queue.append(user)
    prefix = test_node("")
    return {
        node.removeprefix(prefix): distance
        for node, distance in distances.items()
        if node.startswith(prefix)
    }


def by_folder(graph: Graph, file: str) -> list[str] | None:
    """Returns the nodes that a file without known users belongs to, or None if there are none.

    That is a new file which no target lists yet, or a file that a test reads in its own way.
    """
    parts = PurePosixPath(file).parts
    for folder in parents(file):
        package = f"{folder}/__init__.py"
        if file.endswith(".py") and graph.users.get(package):
            return [package]
        if folder in graph.folders_of_targets and parts[0] != "tests" and folder != ".":
            return [target_node(name) for name in sorted(graph.folders_of_targets[folder])]
        if parts[0] == "tests" and len(PurePosixPath(folder).parts) > 1:
            tests = graph.tests_below(folder)
            if tests:
                return [test_node(name) for name in tests]
    if parts[0] == "impl" and len(parts) > 2 and parts[1] in graph.layers_above:
        folders = [f"impl/{layer}" for layer in graph.layers_above[parts[1]]]
        targets = {name for folder in folders for name in graph.folders_of_targets.get(folder, ())}
        return [target_node(name) for name in sorted(targets)] or None
    return None


def starts_of(graph: Graph, file: str) -> tuple[list[str], bool]:
    """Returns the nodes at which a changed file begins, and False if nothing is known of it."""
    starts = [file, *(folder_node(folder) for folder in parents(file))]
    rules = [rule for rule in graph.rules if fnmatchcase(file, rule.pattern)]
    for rule in rules:
        for word in rule.reaches:
            starts += expand(graph, word)
    tests = reachable(graph, starts)
    if rules or any(not graph.tests[name].reads_sources for name in tests):
        return starts, True
    own = [name for name in reachable(graph, [file]) if graph.tests[name].reads_sources]
    if own:  # a source check, or a module of one
        return starts, True
    found = by_folder(graph, file)
    return (starts, False) if found is None else ([*starts, *found], True)


def impact(changed: Iterable[str], graph: Graph) -> Selection:
    """Selects the tests that the changed files reach. In doubt, that is every test."""
    reached: dict[str, Reach] = {}
    in_doubt: list[str] = []
    everything: list[str] = []

    def add(name: str, reach: Reach) -> None:
        if name in graph.tests and (name not in reached or reach.distance < reached[name].distance):
            reached[name] = reach

    for file in sorted(set(changed)):
        starts, known = starts_of(graph, file)
        for name, distance in reachable(graph, starts).items():
            add(name, Reach(distance, file))
        if not known:
            in_doubt.append(file)
        elif any(
            EVERYTHING in rule.reaches for rule in graph.rules if fnmatchcase(file, rule.pattern)
        ):
            everything.append(file)
    far = 1 + max((reach.distance for reach in reached.values()), default=0)
    for file in [*in_doubt, *everything]:
        for name in graph.tests:
            add(name, Reach(far, file))
    left_out = sorted(name for name in graph.tests if name not in reached)
    return Selection(reached, left_out, in_doubt, everything)
