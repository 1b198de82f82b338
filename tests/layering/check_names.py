#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what a unity build hides: such a build compiles many files as one.

    python3 tests/layering/check_names.py [ROOT]

Rules:
  one type  a namespace has one type of a name in all files: two with different members share their
            inline functions, and one corrupts the other's memory. (An unnamed namespace is a file's
            own.)
  includes  what a file names, a header that it includes declares (or one that these include)

Both read text and not the language: a name that a file declares itself, also as a member or a
local variable, is never reported.

Prints one `file:line: message` per offence and exits with 1 if there was any.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import check_tree
import cxx_text

# Where includes may begin, besides the file's own folder.
INCLUDE_ROOTS = ("impl", "", "include")
FOLDERS = ("impl", "capi", "kernels", "modules", "tools", "tests")
SUFFIXES = {".h", ".hpp", ".cpp"}
HEADERS = {".h", ".hpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)
NAME = re.compile(r"[A-Za-z_]\w*")
TYPE_OR_ALIAS = re.compile(
    r"\b(?:struct|class|union|enum(?:\s+class)?|using)\s+([A-Z]\w*)\s*(?:$|[:={]|final)"
)
CALLED = re.compile(r"(?<![.\w:>~])([a-z]\w*_\w+)\s*\(")
USED_TYPE = re.compile(r"(?<![.\w:>])([A-Z][a-z]\w*)\b")
NAMES_OF_TESTS = re.compile(r"^(?:TEST|INSTANTIATE)\w*\([^)\n]*", re.M)
NO_TYPE = {"return", "throw", "co_return", "case", "else", "new", "delete", "goto", "not"}
NO_FUNCTION = {"static_assert", "static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"}


class Source(NamedTuple):
    path: Path
    text: str  # bare
    includes: tuple[Path, ...]
    names: frozenset[str]  # all of its tokens
    declares: frozenset[str]  # types and functions, in its namespaces


def declared_in(text: str) -> Iterator[str]:
    """Types and functions of the text's namespaces."""
    spaces = [(0, len(text))]
    spaces += [
        (scope.opening + 1, scope.closing)
        for scope in cxx_text.scopes(text)
        if scope.kind == "namespace" and scope.in_namespaces()
    ]
    for begin, end in spaces:
        for _, said in cxx_text.declarations(text, begin, end):
            type_ = TYPE_OR_ALIAS.search(said)
            if type_:
                yield type_.group(1)
            elif cxx_text.is_function(said):
                called = re.search(r"(?<![.\w:>])(\w+)\s*\(", cxx_text.without_templates(said))
                if called and called.group(1) not in NO_FUNCTION:
                    yield called.group(1)


def read_sources(root: Path) -> dict[Path, Source]:
    sources: dict[Path, Source] = {}
    paths = [
        path
        for path in check_tree.files_of(root)
        if path.parts[0] in (*FOLDERS, "include") and path.suffix in SUFFIXES
    ]
    of_tests: dict[str, list[Path]] = {}  # what several tests share is found by its name
    for path in paths:
        if path.parts[0] == "tests" and path.suffix in HEADERS:
            of_tests.setdefault(path.name, []).append(path)
    for path in paths:
        raw = (root / path).read_text(encoding="utf-8")
        includes: list[Path] = []
        for target in INCLUDE.findall(raw):
            places = [path.parent / target, *(Path(top, target) for top in INCLUDE_ROOTS)]
            there = [Path(os.path.normpath(p)) for p in places if (root / p).is_file()]
            includes += there[:1] or (of_tests.get(target, []) if path.parts[0] == "tests" else [])
        text = NAMES_OF_TESTS.sub(lambda named: " " * len(named.group()), cxx_text.bare(raw))
        sources[path] = Source(
            path,
            text,
            tuple(includes),
            frozenset(NAME.findall(text)),
            frozenset(declared_in(text)) if path.suffix in HEADERS else frozenset(),
        )
    return sources


def check_one_type(sources: Iterable[Source]) -> Iterator[str]:
    first: dict[str, str] = {}
    for source in sources:
        if source.path.parts[0] == "tests":
            continue  # each is a program of its own
        for scope in cxx_text.scopes(source.text):
            if scope.kind not in ("struct", "class", "union") or not scope.in_namespaces():
                continue
            if not scope.outside or any(not name for _, name in scope.outside):
                continue
            place = f"{source.path}:{cxx_text.line_of(source.text, scope.opening)}"
            other = first.setdefault(scope.qualified(), place)
            if other != place:
                yield (
                    f"{place}: {scope.qualified()} is a type of {other} too: give one another "
                    "name, or put it into an unnamed namespace"
                )


def included(path: Path, sources: dict[Path, Source]) -> set[Path]:
    found: set[Path] = set()
    left = [path]
    while left:
        next_ = left.pop()
        if next_ in found or next_ not in sources:
            continue
        found.add(next_)
        left += sources[next_].includes
    return found


def is_own(name: str, text: str) -> bool:
    """Whether the file declares the name itself, somewhere."""
    if re.search(rf"\b(?:struct|class|union|enum|using|typename)\s+(?:class\s+)?{name}\b", text):
        return True
    for match in re.finditer(rf"([\w>&*]+)[\s&*]+{name}\s*[({{=;,)\[]", text):
        before = match.group(1)
        if before not in NO_TYPE and not before.isdigit():
            return True
    return False


def check_includes(sources: dict[Path, Source]) -> Iterator[str]:
    homes: dict[str, set[Path]] = {}
    for source in sources.values():
        for name in source.declares:
            homes.setdefault(name, set()).add(source.path)
    for source in sources.values():
        if source.path.parts[0] == "include":
            continue
        seen = included(source.path, sources)
        known: set[str] = set()
        for path in seen - {source.path}:
            known |= sources[path].names
        reported: set[str] = set()
        for pattern in (CALLED, USED_TYPE):
            for match in pattern.finditer(source.text):
                name = match.group(1)
                if name in known or name in reported or name not in homes:
                    continue
                if source.path in homes[name] or is_own(name, source.text):
                    continue
                reported.add(name)
                home = ", ".join(sorted(path.as_posix() for path in homes[name])[:3])
                line = cxx_text.line_of(source.text, match.start(1))
                place = f"{source.path}:{line}"
                yield f"{place}: {name} is declared in {home}, which it does not include"


def check(root: Path) -> list[str]:
    sources = read_sources(root)
    return [*check_one_type(sources.values()), *check_includes(sources)]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = check(root)
    for offence in offences:
        print(offence)
    print(f"{len(offences)} offences" if offences else "names have one home each, and are included")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
