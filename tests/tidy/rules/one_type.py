# SPDX-License-Identifier: Apache-2.0
"""Types of one name that the compiler cannot see, because it compiles each file alone."""

from __future__ import annotations

from collections.abc import Iterator

import cxx
from tree import Offence, Tree

FOLDERS = ("impl", "capi", "kernels", "modules", "tools", "include")
SUFFIXES = {".h", ".hpp", ".cpp"}


def one_type(tree: Tree) -> Iterator[Offence]:
    """A namespace has one type of a name: the linker joins the inline functions of two."""
    first: dict[str, str] = {}
    for file in tree.under(*FOLDERS):
        if file.suffix not in SUFFIXES:
            continue
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
