# SPDX-License-Identifier: Apache-2.0
"""Paths that pages, comments and docstrings name exist.

A word in backticks is a path if it has the suffix of a source, or a slash and a first folder of the
tree. It is relative to the root, to a folder of the file that names it, or to one of BASES. A bare
file name may also be that of a file below the folder, and in docs/ of any file: the text around it
names the folder there. In comments, words without backticks count if they begin with a top-level
folder and have the suffix of a source.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import cache

import text_blocks
from layers import ALLOWED
from tree import File, Offence, Tree

BASES = (
    *("impl", "include", "include/meron", "kernels", "modules", "tests", "tests/unit", "docs"),
    *("bindings", "bindings/python", "bindings/python/meron", "bindings/rust/meron/src"),
    *("bindings/julia/src", "bindings/swig", "bindings/swig/java", "tools", "bench", "examples"),
)
SOURCE = {
    *(".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".py", ".rs", ".jl", ".java", ".md"),
    *(".cmake", ".map", ".i"),
}
# Outputs of builds and setups, which are not tracked.
OUTPUTS = {"build", ".venv", ".gpu-pack", "runs", "target"}
# Files that the examples of pages make, and headers of other projects.
FOREIGN = {
    *("train.py", "fit.py", "config.py", "save.py", "fit.c", "fit.cpp", "fit.jl", "Fit.java"),
    "dangling.cpp",
    *("first/src/main.rs", "hwy/highway.h"),
    *("Python.h", "nccl.h", "cuda.h", "mpi.h", "dlpack.h", "zstd.h", "TIGER_STYLE.md"),
}
# The changelog names what later versions removed.
HISTORY = {"CHANGELOG.md"}
# The folder into which the pages clone the project.
CHECKOUT = "meron/"

BACKTICKS = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^[ \t]*```.*?^[ \t]*```", re.MULTILINE | re.DOTALL)
SHAPE = re.compile(r"[\w.+*{},/?\[\]-]*\w[\w.+*{},/?\[\]-]*")
LINE_NUMBER = re.compile(r":\d+(?:-\d+)?$|#.*$")
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*(?:\.\w+)?|.*\.\.\..*|.*NNN.*|x+(?:\.\w+)?")
NOT_NEWLINE = re.compile(r"[^\n]")
ALTERNATIVES = re.compile(r"\{([^{}]*)\}")


def expanded(word: str) -> list[str]:
    """The choices of braces: a.{h,cpp} stands for two files."""
    found = ALTERNATIVES.search(word)
    if not found:
        return [word]
    return [
        each
        for choice in found.group(1).split(",")
        for each in expanded(word[: found.start()] + choice + word[found.end() :])
    ]


@cache
def glob(word: str) -> re.Pattern[str]:
    return re.compile(re.escape(word).replace(r"\*", "[^/]*").replace(r"\?", "[^/]"))


class Paths:
    """All paths of a tree, to look words up in."""

    def __init__(self, tree: Tree) -> None:
        self.known = tree.by_name.keys() | tree.folders
        self.tops = {name.split("/")[0] for name in tree.folders}
        self.bases: dict[str, list[str]] = {}  # the folders of each file name
        for file in tree.files:
            self.bases.setdefault(file.base, []).append(f"{file.folder}/")
        self.first = self.tops | set(ALLOWED) | {"meron"}

    def is_path(self, word: str, file: File) -> bool:
        """True if the word has the shape of a path that should exist."""
        if not SHAPE.fullmatch(word) or word[0] in "-/@.":
            return False
        parts = word.strip("/").split("/")
        if OUTPUTS & set(parts[:2]) or word in FOREIGN or parts[-1] in FOREIGN:
            return False
        if any(PLACEHOLDER.fullmatch(part) and part not in self.bases for part in parts):
            return False
        _, suffix = posixpath.splitext(word)
        if len(parts) == 1 and not word.endswith("/"):
            return suffix in SOURCE and not word.startswith("*.")
        beside = posixpath.join(file.folder, parts[0]) in self.known
        return suffix in SOURCE or parts[0] in self.first or beside

    def exists(self, word: str, file: File) -> bool:
        return all(self._exists(each, file) for each in expanded(word))

    def _exists(self, word: str, file: File) -> bool:
        word = word.rstrip("/")
        if word.startswith(CHECKOUT) and word.split("/")[1] in self.tops:
            word = word.removeprefix(CHECKOUT)
        if word in self.bases:
            below = "" if file.name.startswith("docs/") or not file.folder else f"{file.folder}/"
            if any(folder.startswith(below) for folder in self.bases[word]):
                return True
        folders = [*BASES, "", *ancestors(file.folder)]
        if "*" in word or "?" in word:
            pattern = glob(word)
            starts = tuple(f"{folder}/" if folder else "" for folder in folders)
            if "/" not in word and any(
                pattern.fullmatch(base) and any(folder.startswith(file.folder) for folder in homes)
                for base, homes in self.bases.items()
            ):
                return True
            return any(
                name.startswith(start) and pattern.fullmatch(name, len(start))
                for start in starts
                for name in self.known
            )
        return any(posixpath.normpath(posixpath.join(f, word)) in self.known for f in folders)


def ancestors(folder: str) -> Iterator[str]:
    while folder:
        yield folder
        folder = posixpath.dirname(folder)


def words_in_backticks(text: str) -> Iterator[tuple[int, str]]:
    """The words, with their offset in the text."""
    for span in BACKTICKS.finditer(text):
        for word in span.group(1).split():
            yield span.start(), LINE_NUMBER.sub("", word.strip("\"',;:()").rstrip("."))


def named_paths(file: File, paths: Paths) -> Iterator[tuple[int, str]]:
    """The words of a file that have the shape of a path, with the line."""
    if file.suffix == ".md":
        text = FENCE.sub(lambda fence: NOT_NEWLINE.sub(" ", fence.group()), file.text)
        for at, word in words_in_backticks(text):
            if word and paths.is_path(word, file):
                yield text.count("\n", 0, at) + 1, word
        return
    is_cmake = file.base == "CMakeLists.txt"
    for block in text_blocks.blocks(".cmake", file.text) if is_cmake else file.blocks:
        if "/" not in block.text and "`" not in block.text:
            continue
        found = [word for _, word in words_in_backticks(block.text)]
        found += bare_paths(block.text, paths.tops)
        for word in dict.fromkeys(found):
            if word and paths.is_path(word, file):
                yield block.line, word


def bare_paths(text: str, tops: Iterable[str]) -> Iterator[str]:
    """Words without backticks that begin with a top-level folder and have a source's suffix."""
    for word in BACKTICKS.sub(" ", text).split():
        top, slash, _ = word.lstrip("(\"'").partition("/")
        if slash and top in tops:
            word = LINE_NUMBER.sub("", word.strip("\"',;:()").rstrip("."))
            if posixpath.splitext(word)[1] in SOURCE:
                yield word


def check(tree: Tree) -> Iterator[Offence]:
    """Every path that a page, a comment or a docstring names exists."""
    paths = Paths(tree)
    for file in tree.files:
        if file.is_generated or file.name in HISTORY:
            continue
        for line, word in named_paths(file, paths):
            if not paths.exists(word, file):
                yield Offence(file.name, line, f"{word} does not exist")
