# SPDX-License-Identifier: Apache-2.0
"""Defects that a unity build hides because it compiles many files as one.

Both rules read text, not the language. They never report a name that the file declares itself,
also not as a member or as a local variable. Delete this module when the unity build goes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

import cxx
from tree import File, Offence, Tree

# Where the path of an include may begin, besides the folder of the file.
INCLUDE_ROOTS = ("impl", "", "include")
FOLDERS = ("impl", "capi", "kernels", "modules", "tools", "tests", "include")
SUFFIXES = {".h", ".hpp", ".cpp"}
HEADERS = {".h", ".hpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
NAME = re.compile(r"[A-Za-z_]\w*")
TYPE_OR_ALIAS = re.compile(
    r"\b(?:struct|class|union|enum(?:\s+class)?|using)\s+([A-Z]\w*)\s*(?:$|[:={]|final)"
)
FUNCTION = re.compile(r"(?<![.\w:>])(\w+)\s*\(")
CALLED = re.compile(r"(?<![.\w:>~])([a-z]\w*_\w+)\s*\(")
USED_TYPE = re.compile(r"(?<![.\w:>])([A-Z][a-z]\w*)\b")
NAMES_OF_TESTS = re.compile(r"^(?:TEST|INSTANTIATE)\w*\([^)\n]*", re.MULTILINE)
NO_TYPE = {"return", "throw", "co_return", "case", "else", "new", "delete", "goto", "not"}
NO_FUNCTION = {"static_assert", "static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"}


class Source(NamedTuple):
    file: File
    text: str  # bare, and without the names of tests
    includes: tuple[str, ...]
    names: frozenset[str]  # all tokens
    declares: frozenset[str]  # types and functions at namespace level


def declared_in(file: File) -> Iterator[str]:
    """Types and functions at namespace level."""
    text = file.bare
    spaces = [(0, len(text))]
    spaces += [
        (scope.opening + 1, scope.closing)
        for scope in file.scopes
        if scope.kind == "namespace" and scope.in_namespaces()
    ]
    for begin, end in spaces:
        for head in cxx.declarations(text, begin, end):
            if type_ := TYPE_OR_ALIAS.search(head):
                yield type_.group(1)
            elif cxx.is_function(head):
                called = FUNCTION.search(cxx.without_templates(head))
                if called and called.group(1) not in NO_FUNCTION:
                    yield called.group(1)


def read_sources(tree: Tree) -> dict[str, Source]:
    files = [file for file in tree.under(*FOLDERS) if file.suffix in SUFFIXES]
    shared: dict[str, list[str]] = {}  # headers of tests, which includes find by base name
    for file in files:
        if file.parts[0] == "tests" and file.suffix in HEADERS:
            shared.setdefault(file.base, []).append(file.name)
    sources = {}
    for file in files:
        includes: list[str] = []
        for target in INCLUDE.findall(file.text):
            folders = (file.folder, *INCLUDE_ROOTS)
            paths = (posixpath.normpath(posixpath.join(folder, target)) for folder in folders)
            found = next((path for path in paths if path in tree.by_name), None)
            if found:
                includes.append(found)
            elif file.parts[0] == "tests":
                includes += shared.get(target, [])
        text = file.bare
        if file.parts[0] == "tests":
            text = NAMES_OF_TESTS.sub(lambda named: " " * len(named.group()), text)
        sources[file.name] = Source(
            file,
            text,
            tuple(includes),
            frozenset(NAME.findall(text)),
            frozenset(declared_in(file)) if file.suffix in HEADERS else frozenset(),
        )
    return sources


def one_type(tree: Tree) -> Iterator[Offence]:
    """A namespace has one type of a name: two of them corrupt each other's memory."""
    first: dict[str, str] = {}
    for file in tree.under(*FOLDERS):
        if file.suffix not in SUFFIXES or file.parts[0] == "tests":
            continue  # each test is a program of its own
        for scope in file.scopes:
            if scope.kind not in ("struct", "class", "union") or not scope.in_namespaces():
                continue
            if not scope.outside or scope.in_unnamed_namespace():
                continue
            line = cxx.line_of(file.bare, scope.opening)
            place = f"{file.name}:{line}"
            other = first.setdefault(scope.qualified(), place)
            if other != place:
                said = (
                    f"{other} defines another {scope.qualified()}: rename one, or put it into an "
                    "unnamed namespace"
                )
                yield Offence(file.name, line, said)


def reachable(name: str, sources: dict[str, Source]) -> set[str]:
    """The file and all that it includes, directly or not."""
    found: set[str] = set()
    left = [name]
    while left:
        next_ = left.pop()
        if next_ not in found and next_ in sources:
            found.add(next_)
            left += sources[next_].includes
    return found


def is_own(name: str, text: str) -> bool:
    """True if the file declares the name itself, anywhere."""
    if re.search(rf"\b(?:struct|class|union|enum|using|typename)\s+(?:class\s+)?{name}\b", text):
        return True
    for match in re.finditer(rf"([\w>&*]+)[\s&*]+{name}\s*[({{=;,)\[]", text):
        before = match.group(1)
        if before not in NO_TYPE and not before.isdigit():
            return True
    return False


def includes(tree: Tree) -> Iterator[Offence]:
    """A header that a file includes, directly or not, declares the names that the file uses."""
    sources = read_sources(tree)
    homes: dict[str, set[str]] = {}
    for source in sources.values():
        for name in source.declares:
            homes.setdefault(name, set()).add(source.file.name)
    for source in sources.values():
        if source.file.parts[0] == "include":
            continue
        used = source.names & homes.keys()
        for path in reachable(source.file.name, sources) - {source.file.name}:
            used -= sources[path].names
        used -= source.declares
        if used:
            yield from unknown_names(source, used, homes)


def unknown_names(
    source: Source, used: frozenset[str], homes: dict[str, set[str]]
) -> Iterator[Offence]:
    reported: set[str] = set()
    for pattern in (CALLED, USED_TYPE):
        for match in pattern.finditer(source.text):
            name = match.group(1)
            if name not in used or name in reported or is_own(name, source.text):
                continue
            reported.add(name)
            home = ", ".join(sorted(homes[name])[:3])
            line = cxx.line_of(source.text, match.start(1))
            said = f"{name} is declared in {home}, which it does not include"
            yield Offence(source.file.name, line, said)
