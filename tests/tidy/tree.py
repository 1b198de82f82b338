# SPDX-License-Identifier: Apache-2.0
"""The tracked files of a tree. Each is read once, and all rules share what is parsed from it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import cxx
import text_blocks

# Folders that a walk skips where there is no git.
PRUNED = {
    *("build", ".venv", ".gpu-pack", ".git"),
    *("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
}
# A generator announces itself in the first lines of its output.
GENERATED = re.compile(r"\bgenerated (?:by|from)\b|machine-written", re.IGNORECASE)


class Offence(NamedTuple):
    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class File:
    """A file and what rules derive from its text, each computed at most once."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name  # relative to the root
        path = PurePosixPath(name)
        self.parts = path.parts
        self.base = path.name
        self.suffix = path.suffix
        self.folder = path.parent.as_posix() if len(path.parts) > 1 else ""

    @cached_property
    def text(self) -> str:
        """Empty if the file is not UTF-8."""
        try:
            return (self.root / self.name).read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            return ""

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def is_generated(self) -> bool:
        """The ABI baseline counts as generated because it is a copy."""
        head = "\n".join(self.text[:1000].split("\n", 6)[:6])
        return self.name.startswith("capi/abi/") or bool(GENERATED.search(head))

    @cached_property
    def blocks(self) -> list[text_blocks.Block]:
        """Paragraphs of comments, docstrings or Markdown."""
        return list(text_blocks.blocks(self.suffix, self.text))

    @cached_property
    def bare(self) -> str:
        """C++ without comments, strings and directives."""
        return cxx.bare(self.text)

    @cached_property
    def scopes(self) -> list[cxx.Scope]:
        return cxx.scopes(self.bare)

    @cached_property
    def python(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the Python module, parents first."""
        found: list[ast.AST] = [self.python]
        for node in found:  # grows meanwhile; several times as fast as ast.walk
            for child in vars(node).values():
                if isinstance(child, list):
                    found += [each for each in child if isinstance(each, ast.AST)]
                elif isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
                    found.append(child)
        return found


class Tree:
    """The files under version control, and new ones that git does not ignore. Without git: all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        names = sorted(set(_tracked(root) or _walked(root)))
        self.files = [File(root, name) for name in names]
        self.by_name = {file.name: file for file in self.files}

    def under(self, *folders: str) -> Iterator[File]:
        """The files in any of the folders."""
        starts = tuple(f"{folder}/" for folder in folders)
        return (file for file in self.files if file.name.startswith(starts))

    @cached_property
    def folders(self) -> frozenset[str]:
        found: set[str] = set()
        for file in self.files:
            folder = file.folder
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition("/")[0]
        return frozenset(found)


def _tracked(root: Path) -> list[str]:
    """Nothing if this is no work tree of git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=root, capture_output=True, text=True)
    except OSError:
        return []
    names = listing.stdout.split("\0") if listing.returncode == 0 else []
    return [name for name in names if name and _is_regular(os.path.join(root, name))]


def _walked(root: Path) -> Iterator[str]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in PRUNED]
        for name in names:
            path = os.path.join(folder, name)
            if _is_regular(path):
                yield Path(path).relative_to(root).as_posix()


def _is_regular(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)
