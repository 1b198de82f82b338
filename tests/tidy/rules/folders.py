# SPDX-License-Identifier: Apache-2.0
"""Folders have a README, sources a licence, and pytest files names of their own."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import ceilings
from ceilings import Measured
from tree import Offence, Tree

FOLDERS_WITH_README = (
    *("impl/*", "kernels/*", "modules/*", "bindings/*"),
    *("capi", "bench", "tools", "examples"),
)
SOURCES = {".h", ".c", ".cpp", ".hpp", ".cu", ".cuh", ".py", ".cmake", ".sh", ".map"}
LICENCE = "SPDX-License-Identifier: Apache-2.0"


def wants_readme(folder: str) -> bool:
    return any(
        fnmatchcase(folder, pattern) and folder.count("/") == pattern.count("/")
        for pattern in FOLDERS_WITH_README
    )


def readmes(tree: Tree) -> Iterator[Offence]:
    """Every layer, module, binding and tool folder has a README.md."""
    for folder in sorted(tree.folders):
        page = f"{folder}/README.md"
        if wants_readme(folder) and page not in tree.by_name:
            yield Offence(page, 1, "this page is missing: describe the purpose of the folder")


def licences(tree: Tree) -> Iterator[Offence]:
    """Every source names its licence in its first lines."""
    for file in tree.files:
        is_script = file.text.startswith("#!")
        if file.suffix in SOURCES or file.base == "CMakeLists.txt" or is_script:
            head = file.text[:400].split("\n")[: 2 if is_script else 1]
            if not any(LICENCE in line for line in head):
                yield Offence(file.name, 1, f"the line {LICENCE} is missing")


def measure_test_names(tree: Tree) -> Iterator[Measured]:
    """Counts the test files of each base name."""
    homes: dict[str, list[str]] = {}
    for file in tree.under("tests"):
        if not (file.base.startswith("test_") and file.suffix == ".py"):
            continue
        if f"{file.folder}/__init__.py" in tree.by_name:
            continue  # a package: pytest imports it by its full name
        homes.setdefault(file.base, []).append(file.name)
    for base, names in homes.items():
        fact = f"{len(names)} files have this base name, by which pytest imports them"
        advice = f"rename all but one ({', '.join(names)})"
        yield Measured(base, len(names), 1, names[-1], 1, fact, advice)


test_names = ceilings.rule(
    "test-names", "No two pytest files of tests/ share a base name.", measure_test_names
)
