# SPDX-License-Identifier: Apache-2.0
"""Modules of a Rust crate form no circle.

Every path to another module counts, in `use` and in code. `crate::Name` counts as a path to the
module from which lib.rs exports the name. lib.rs itself is left out because it names all modules,
and so are items under `#[cfg(test)]`. Method calls need no path, so they are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphs import circles_of
from tree import File, Offence, Tree

HOMES = ("bench", "bindings", "examples", "tests")  # folders with crates

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
SEPARATOR = re.compile(r"\s*::")
ALIAS = re.compile(r"\s+as\s+(\w+)")
ITEM = r"\bpub (?:struct|enum|union|trait|type|fn|const|static) {}\b"
NOT_NEWLINE = re.compile(r"[^\n]")


def blank(text: str) -> str:
    return NOT_NEWLINE.sub(" ", text)


def without_comments(text: str) -> str:
    """The text without comments, which nest, and without strings. Lines stay the same."""
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


class Crate:
    """The sources in one `src` folder."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self.files: dict[str, File] = {}  # by module path, such as `io::memory`
        self.code: dict[str, str] = {}
        self.exports: dict[str, set[str]] = {}
        tests = set()
        library = ""
        for file in tree.under(folder):
            if file.suffix != ".rs":
                continue
            code = without_comments(file.text)
            parts = file.name.removeprefix(f"{folder}/").removesuffix(".rs").split("/")
            if parts == ["lib"]:
                library = without_tests(code)
            parts = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
            tests |= {"::".join([*parts, name]) for name in TEST_FILE.findall(code)}
            if parts:
                self.files["::".join(parts)] = file
                self.code["::".join(parts)] = without_tests(code)
        for name in tests & self.files.keys():
            del self.files[name], self.code[name]
        self._read_exports(library)

    def _read_exports(self, library: str) -> None:
        """Fills the modules from which lib.rs has each name; under `*`, those with all names."""
        for use in USE.findall(library):
            aliases = dict(re.findall(r"(\w+)\s+as\s+(\w+)", use))
            for path in paths_at(use, 0)[0]:
                if module := self.innermost(path[path[0] in ("crate", "self") :]):
                    name = aliases.get(path[-1], path[-1])
                    self.exports.setdefault(name, set()).add(module)

    def innermost(self, path: list[str]) -> str:
        """The module that a path from the crate's root leads to or into, or nothing."""
        outwards = ("::".join(path[:end]) for end in range(len(path), 0, -1))
        return next((name for name in outwards if name in self.files), "")

    def targets(self, path: list[str], module: str) -> set[str]:
        """The modules that a path within a module leads to."""
        base = module.split("::")
        while path and path[0] in ("crate", "self", "super"):
            base = {"crate": [], "self": base, "super": base[:-1]}[path[0]]
            path = path[1:]
        if found := self.innermost([*base, *path]):
            return {found}
        if base or not path:
            return set()
        if path[0] == "*":
            return set().union(*self.exports.values())
        pattern = re.compile(ITEM.format(path[0]))
        return self.exports.get(path[0]) or {
            other for other in self.exports.get("*", ()) if pattern.search(self.code[other])
        }

    def used(self, module: str) -> Iterator[tuple[str, int]]:
        """The other modules that a module has paths to, with the line."""
        text = self.code[module]
        inside = [each.rpartition("::") for each in self.files]
        heads = ["crate", "self", "super", *(name for outer, _, name in inside if outer == module)]
        for found in re.finditer(HEAD.format("|".join(heads)), text):
            if text.endswith("pub(in ", 0, found.start()):
                continue  # the visibility of an item
            for path in paths_at(text, found.start())[0]:
                for other in self.targets(path, module) - {module}:
                    yield other, text.count("\n", 0, found.start()) + 1

    def graph(self) -> dict[str, dict[str, int]]:
        """The modules that each module uses, with the first line of a use."""
        graph: dict[str, dict[str, int]] = {name: {} for name in self.files}
        for name, others in graph.items():
            for other, line in self.used(name):
                others.setdefault(other, line)
        return graph


def paths_at(text: str, at: int) -> tuple[list[list[str]], int]:
    """The paths that begin here, several if there are braces, and their end."""
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
            if not SEPARATOR.match(text, at):
                break
    return ([path] if path else []), at


def crates(tree: Tree) -> list[str]:
    """The source folders of all crates that have modules."""
    folders = {file.folder for file in tree.under(*HOMES) if file.suffix == ".rs"}
    return sorted(
        folder
        for folder in folders
        if folder.endswith("/src") and not {"lib.rs", "main.rs"} >= set(_sources(tree, folder))
    )


def _sources(tree: Tree, folder: str) -> Iterator[str]:
    return (file.base for file in tree.under(folder) if file.suffix == ".rs")


def check(tree: Tree) -> Iterator[Offence]:
    """No modules of a Rust crate use each other in a circle."""
    for folder in crates(tree):
        crate = Crate(tree, folder)
        graph = crate.graph()
        for circle in circles_of(graph):
            for name in circle:
                for other, line in sorted(graph[name].items()):
                    if other in circle:
                        said = f"uses {other}, in a circle of {', '.join(circle)}"
                        yield Offence(crate.files[name].name, line, said)
