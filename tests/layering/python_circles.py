#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if modules of the Python package import each other in a circle.

    python3 tests/layering/python_circles.py [FOLDER]

Every import of the package's own modules counts: also those within functions, and those that only a
type checker reads. FOLDER holds the package `meron` (bindings/python). A circle is printed with one
line per import in it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "meron"


def modules_of(folder: Path) -> dict[str, Path]:
    """Files of the package by their dotted names."""
    found = {}
    for path in sorted((folder / PACKAGE).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path, modules: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """The modules of the package that a module imports, with the line. `from a import b` is an
    import of a.b if that is a module, else of a."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            names = [f"{base}.{alias.name}" for alias in node.names]
            names = [each if each in modules else base for each in names]
        else:
            continue
        for each in dict.fromkeys(names):
            if each in modules and each != name:
                yield each, node.lineno


def circles_of(graph: dict[str, dict[str, int]]) -> list[list[str]]:
    """The strongly connected parts of more than one module (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in graph[name]:
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for name in sorted(graph):
        if name not in number:
            visit(name)
    return found


def main(words: list[str]) -> int:
    folder = Path(words[0]) if words else ROOT / "bindings" / "python"
    modules = modules_of(folder)
    if not modules:
        print(f"there is no package {PACKAGE} in {folder}")
        return 2
    graph = {name: dict(imported(name, path, modules)) for name, path in modules.items()}
    circles = circles_of(graph)
    for circle in circles:
        print(f"a circle of {len(circle)} modules:")
        for name in circle:
            for other, line in sorted(graph[name].items()):
                if other in circle:
                    print(f"  {modules[name].relative_to(folder)}:{line} imports {other}")
    print(f"{len(modules)} modules, {len(circles)} circles")
    return 1 if circles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
