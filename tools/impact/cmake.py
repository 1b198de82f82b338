# SPDX-License-Identifier: Apache-2.0
"""Reads tests and targets of a configured build folder. Nothing needs to be built."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from impact.graph import Graph, Test, folder_node, target_node, test_node
from impact.rules import TARGETS_IN_BUILD_FOLDER

# CMake answers this query whenever it configures.
QUERY = ".cmake/api/v1/query/codemodel-v2"
REPLY = ".cmake/api/v1/reply"
ADD_TEST = re.compile(r"^add_test\(\[=\[(.+?)\]=\] (.*)\)$")
PROPERTIES = re.compile(r"^set_tests_properties\(\[=\[(.+?)\]=\] PROPERTIES +(.*)\)$")
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
PROPERTY = re.compile(r'(\w+) "((?:[^"\\]|\\.)*)"')
# Programs that a test finds by itself when it is given the build folder.
NOT_FOUND_BY_OTHERS = re.compile(r"(test|replay|fuzz|bench|abi_client)_")
BENCH = re.compile(r"bench_")
# Modules for machines that have a device or MPI; packages contain them.
PACKAGED = re.compile(r"meron_(cuda|nccl|mpi)")


class NotConfigured(Exception):
    """The build folder has no answer of CMake."""


@dataclass
class Target:
    name: str
    kind: str
    folder: str
    sources: list[str]
    artifacts: list[str]  # from the build folder
    uses: set[str]


@dataclass
class Listing:
    """A test as CTestTestfile.cmake lists it."""

    name: str
    command: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)

    def paths(self) -> list[str]:
        """Returns each text that may be a path: arguments, and values of variables."""
        texts = list(self.command)
        for setting in self.properties.get("ENVIRONMENT", "").split(";"):
            name, _, value = setting.partition("=")
            if name not in ("MERON_TEST_XML", "PYTHONPATH"):
                texts.append(value)
        found: list[str] = []
        for text in texts:
            if text.startswith(("--junitxml=", "--gtest_output=")):
                continue
            found += re.split(r"[:|]" if text.startswith("/") else r"[:|=]", text)
        return [text for text in found if text.startswith("/")]


def ask(build: Path) -> None:
    """Makes CMake describe its targets when it configures the folder."""
    query = build / QUERY
    query.parent.mkdir(parents=True, exist_ok=True)
    query.touch()


def read_targets(build: Path, root: Path) -> dict[str, Target]:
    replies = sorted((build / REPLY).glob("index-*.json"))
    if not replies:
        raise NotConfigured(f"{build.name} is not configured")
    index = json.loads(replies[-1].read_text())
    answer = index["reply"].get("codemodel-v2")
    if answer is None:
        raise NotConfigured(f"{build.name} was configured without the query {QUERY}")
    model = json.loads((build / REPLY / answer["jsonFile"]).read_text())
    built = str(build.resolve())
    targets: dict[str, Target] = {}
    for entry in model["configurations"][0]["targets"]:
        data: dict[str, Any] = json.loads((build / REPLY / entry["jsonFile"]).read_text())
        sources = [str((root / source["path"]).resolve()) for source in data.get("sources", [])]
        targets[data["name"]] = Target(
            name=data["name"],
            kind=data["type"],
            folder=data["paths"]["source"],
            sources=[
                str(Path(source).relative_to(root))
                for source in sources
                if source.startswith(f"{root}/") and not source.startswith(f"{built}/")
            ],
            artifacts=[str(PurePosixPath(each["path"])) for each in data.get("artifacts", [])],
            uses={used["id"].split("::@")[0] for used in data.get("dependencies", [])},
        )
    return targets


def direct_uses(targets: dict[str, Target]) -> dict[str, set[str]]:
    """CMake lists what a target uses, directly or not. Returns what no other used target uses, so
    that the length of a path is the distance of a test from a change."""
    uses = {name: target.uses & targets.keys() for name, target in targets.items()}
    direct: dict[str, set[str]] = {}
    for name, used in uses.items():
        through = {far for near in used for far in uses[near] if name not in uses[near]}
        direct[name] = used - through
    return direct


def unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def read_listings(build: Path) -> dict[str, Listing]:
    """Reads the tests as CMake writes them for CTest, whose own listing leaves out the commands of
    programs that are not built yet."""
    listings: dict[str, Listing] = {}
    pending = [build]
    while pending:
        folder = pending.pop()
        file = folder / "CTestTestfile.cmake"
        if not file.is_file():
            continue
        for line in file.read_text().splitlines():
            if match := ADD_TEST.match(line):
                words = [quoted or bare for quoted, bare in WORD.findall(match[2])]
                listings[match[1]] = Listing(match[1], [unescape(word) for word in words])
            elif match := PROPERTIES.match(line):
                listings[match[1]].properties = {
                    name: unescape(value) for name, value in PROPERTY.findall(match[2])
                }
            elif match := re.match(r'^subdirs\("(.*)"\)$', line):
                pending.append(folder / match[1])
    return listings


def folder_of(listing: Listing, root: Path) -> str:
    """Returns the folder whose CMakeLists.txt declares the test."""
    triples = listing.properties.get("_BACKTRACE_TRIPLES", "").split(";")
    for file in triples[::3]:
        if file.endswith("CMakeLists.txt") and Path(file).is_relative_to(root):
            return str(Path(file).parent.relative_to(root))
    return ""


def products(targets: dict[str, Target], test: str, labels: Collection[str]) -> list[str]:
    """Returns the targets that a test may use which is given the build folder as a whole."""
    return [
        target.name
        for target in targets.values()
        if target.artifacts
        and target.kind not in ("STATIC_LIBRARY", "OBJECT_LIBRARY")
        and ("package" in labels or not PACKAGED.fullmatch(target.name))
        and (
            not NOT_FOUND_BY_OTHERS.match(target.name)
            or (test.startswith("bench") and BENCH.match(target.name))
        )
    ]


def targets_in_build_folder(test: str) -> tuple[str, ...] | None:
    for pattern, targets in TARGETS_IN_BUILD_FOLDER:
        if fnmatchcase(test, pattern):
            return targets
    return None


def add_targets(graph: Graph, targets: dict[str, Target]) -> None:
    for target in targets.values():
        for source in target.sources:
            graph.add_use(target_node(target.name), source)
        graph.folders_of_targets[target.folder].add(target.name)
        if target.kind != "STATIC_LIBRARY":
            graph.artifacts[target.name] = target.artifacts
        graph.add_use(target_node(target.name), f"{target.folder}/CMakeLists.txt")
    for name, used in direct_uses(targets).items():
        for each in used:
            graph.add_use(target_node(name), target_node(each))


def add_test(graph: Graph, listing: Listing, targets: dict[str, Target], places: Places) -> None:
    node = test_node(listing.name)
    labels = frozenset(filter(None, listing.properties.get("LABELS", "").split(";")))
    needed: set[str] = set()
    needs_all = False
    for text in listing.paths():
        path = Path(text)
        if path == places.build:
            if "source" in labels:
                continue  # it reads what CMake wrote
            listed = targets_in_build_folder(listing.name)
            found = products(targets, listing.name, labels) if listed is None else listed
            needs_all |= listed is None
            needed |= set(found) & targets.keys()
            for product in found:
                graph.add_use(node, target_node(product))
        elif path.is_relative_to(places.build):
            name = places.target_at(str(path.relative_to(places.build)))
            if name:
                needed.add(name)
                graph.add_use(node, target_node(name))
            elif path.suffix and targets_in_build_folder(listing.name) is None:
                needs_all = True  # a file that a command makes
        elif path.is_relative_to(places.root):
            inside = str(path.relative_to(places.root))
            if not inside.startswith(".venv"):
                graph.add_use(node, folder_node(inside) if path.is_dir() else inside)
    folder = folder_of(listing, places.root)
    graph.add_use(node, f"{folder}/CMakeLists.txt")
    graph.add_test(
        Test(
            listing.name,
            labels,
            folder,
            int(listing.properties.get("PROCESSORS", "1")),
            None if needs_all else frozenset(needed),
        )
    )


@dataclass
class Places:
    root: Path
    build: Path
    artifacts: dict[str, str]  # path from the build folder, to its target

    def target_at(self, path: str) -> str | None:
        """Returns the target of an artifact. A shared library has its version behind its name."""
        while path and path not in self.artifacts:
            path = path.rpartition(".")[0]
        return self.artifacts.get(path)


def add_build(graph: Graph, root: Path, build: Path) -> dict[str, Target]:
    """Adds what CMake knows. Raises NotConfigured."""
    targets = read_targets(build, root)
    add_targets(graph, targets)
    artifacts = {path: target.name for target in targets.values() for path in target.artifacts}
    for listing in read_listings(build).values():
        add_test(graph, listing, targets, Places(root, build, artifacts))
    return targets
