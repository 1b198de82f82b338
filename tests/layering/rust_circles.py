#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if modules of a Rust crate use each other in a circle.

    python3 tests/layering/rust_circles.py [FOLDER ...]

Each FOLDER holds a crate's sources; without one, all crates of the project are looked at. Every
path to another module counts: in `use` and in code. `crate::Name` counts as a path to the module
from which lib.rs exports the name. lib.rs itself is left out, because it names all modules, and so
are items under `#[cfg(test)]`. Calls of methods are not seen, because they need no path. A circle
is printed with one line per module that is used.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from python_circles import circles_of  # beside this file

ROOT = Path(__file__).resolve().parents[2]
HOMES = ("bench", "bindings", "examples", "tests")  # of crates

# Comments, strings and characters. A lifetime such as 'a has no closing quote.
NO_CODE = re.compile(
    r"""/\*
    | //[^\n]*
    | (?<!\w)b?r(?P<marks>\#*)".*?"(?P=marks)
    | "(?:\\.|[^"\\])*"
    | '(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])'""",
    re.DOTALL | re.VERBOSE,
)
COMMENT_MARK = re.compile(r"/\*|\*/")
TEST = re.compile(r"#\[cfg\(test\)\]")
TEST_FILE = re.compile(r"#\[cfg\(test\)\]\s*(?:pub\s+)?mod\s+(\w+)\s*;")
USE = re.compile(r"\buse\s+([^;]*);")
HEAD = r"(?<![\w:])(?:{})\s*::"
TOKEN = re.compile(r"\s*(::|[{},*]|(?:r#)?\w+)")
ALIAS = re.compile(r"\s+as\s+(\w+)")
ITEM = r"\bpub (?:struct|enum|union|trait|type|fn|const|static) {}\b"


def blank(text: str) -> str:
    """As many lines, with nothing in them."""
    return re.sub(r"[^\n]", " ", text)


def without_comments(text: str) -> str:
    """Also without strings. Comments of several lines nest."""
    parts, at = [], 0
    while found := NO_CODE.search(text, at):
        end, depth = found.end(), int(found[0] == "/*")
        while depth and (mark := COMMENT_MARK.search(text, end)):
            depth += 1 if mark[0] == "/*" else -1
            end = mark.end()
        parts += [text[at : found.start()], blank(text[found.start() : end])]
        at = end
    return "".join([*parts, text[at:]])


def without_tests(text: str) -> str:
    """An item ends with its braces, or with a semicolon outside of them."""
    while found := TEST.search(text):
        end, depth = found.end(), 0
        while end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
            if depth == 0 and text[end - 1] in ";}":
                break
        text = text[: found.start()] + blank(text[found.start() : end]) + text[end:]
    return text


@functools.cache
def code_of(path: Path) -> str:
    return without_tests(without_comments(path.read_text("utf-8")))


def modules_of(folder: Path) -> dict[str, Path]:
    """The files of the crate by the paths of their modules, such as `io::memory`."""
    found: dict[str, Path] = {}
    tests = set()
    for path in sorted(folder.rglob("*.rs")):
        parts = path.relative_to(folder).with_suffix("").parts
        parts = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
        for name in TEST_FILE.findall(without_comments(path.read_text("utf-8"))):
            tests.add("::".join([*parts, name]))
        if parts:
            found["::".join(parts)] = path
    return {name: path for name, path in found.items() if name not in tests}


def paths_at(text: str, at: int) -> tuple[list[list[str]], int]:
    """The paths that begin here, several if there are braces, and where they end."""
    path: list[str] = []
    while (token := TOKEN.match(text, at)) and token[1] not in ",}":
        at = token.end()
        if token[1] == "{":
            paths = []
            while True:
                inner, at = paths_at(text, at)
                paths += [[*path, *each] for each in inner]
                mark = TOKEN.match(text, at)
                at = mark.end() if mark else at
                if not mark or mark[1] != ",":
                    return paths, at
        if token[1] != "::":
            path.append(token[1].removeprefix("r#"))
            if alias := ALIAS.match(text, at):
                return [path], alias.end()
            if not re.compile(r"\s*::").match(text, at):
                break
    return ([path] if path else []), at


def innermost(path: list[str], modules: dict[str, Path]) -> str:
    """The module that a path from the crate's root leads to or into, or nothing."""
    outwards = ("::".join(path[:end]) for end in range(len(path), 0, -1))
    return next((name for name in outwards if name in modules), "")


def exports_of(folder: Path, modules: dict[str, Path]) -> dict[str, set[str]]:
    """The modules from which lib.rs has each name; under `*`, those from which it has all names."""
    found: dict[str, set[str]] = {}
    library = folder / "lib.rs"
    for use in USE.findall(code_of(library)) if library.exists() else ():
        aliases = dict(re.findall(r"(\w+)\s+as\s+(\w+)", use))
        for path in paths_at(use, 0)[0]:
            module = innermost(path[path[0] in ("crate", "self") :], modules)
            if module:
                found.setdefault(aliases.get(path[-1], path[-1]), set()).add(module)
    return found


def targets(
    path: list[str], module: str, modules: dict[str, Path], exports: dict[str, set[str]]
) -> set[str]:
    """The modules that a path within a module leads to."""
    base = module.split("::")
    while path and path[0] in ("crate", "self", "super"):
        base = {"crate": [], "self": base, "super": base[:-1]}[path[0]]
        path = path[1:]
    if found := innermost([*base, *path], modules):
        return {found}
    if base or not path:
        return set()
    if path[0] == "*":
        return set().union(*exports.values())
    pattern = re.compile(ITEM.format(path[0]))
    return exports.get(path[0]) or {
        other for other in exports.get("*", ()) if pattern.search(code_of(modules[other]))
    }


def used(
    module: str, modules: dict[str, Path], exports: dict[str, set[str]]
) -> Iterator[tuple[str, int]]:
    """The other modules of the crate that a module has paths to, with the line."""
    text = code_of(modules[module])
    inside = [each.rpartition("::") for each in modules]
    heads = ["crate", "self", "super", *(name for outer, _, name in inside if outer == module)]
    for found in re.finditer(HEAD.format("|".join(heads)), text):
        if text.endswith("pub(in ", 0, found.start()):
            continue  # only who may see an item
        for path in paths_at(text, found.start())[0]:
            for other in targets(path, module, modules, exports) - {module}:
                yield other, text.count("\n", 0, found.start()) + 1


def graph_of(folder: Path) -> dict[str, dict[str, int]]:
    """For each module those that it uses, with the first line that does."""
    modules = modules_of(folder)
    exports = exports_of(folder, modules)
    graph: dict[str, dict[str, int]] = {name: {} for name in modules}
    for name, others in graph.items():
        for other, line in used(name, modules, exports):
            others.setdefault(other, line)
    return graph


def crates() -> list[Path]:
    """The sources of all crates of the project that have modules."""
    found = {path.parent for home in HOMES for path in (ROOT / home).rglob("src/*.rs")}
    return sorted(folder for folder in found if modules_of(folder))


def check(folder: Path) -> int:
    """Prints the circles of a crate, and how many there are."""
    modules = modules_of(folder)
    graph = graph_of(folder)
    circles = circles_of(graph)
    for circle in circles:
        print(f"a circle of {len(circle)} modules:")
        for name in circle:
            for other, line in sorted(graph[name].items()):
                if other in circle:
                    print(f"  {modules[name].relative_to(folder)}:{line} uses {other}")
    print(f"{folder}: {len(modules)} modules, {len(circles)} circles")
    return len(circles)


def main(words: list[str]) -> int:
    folders = [Path(word) for word in words] or crates()
    for folder in folders:
        if not modules_of(folder):
            print(f"there are no modules in {folder}")
            return 2
    return 1 if sum([check(folder) for folder in folders]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
