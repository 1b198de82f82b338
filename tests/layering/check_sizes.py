#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that files, structs and classes stay small enough to be one idea each.

    python3 tests/layering/check_sizes.py [ROOT]

Rules:
  lines   a file of code that people write has at most 400 lines
  fields  a struct of the engine has at most 12 fields of its own, and a class at most 20

Prints one `file:line: message` per offence and exits with 1 if there was any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import check_tree
import cxx_text

MOST_LINES = 400
MOST_FIELDS = {"struct": 12, "class": 20}
SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".java", ".jl", ".py", ".rs"}
# Each with the reason why it is longer.
LONGER = {
    "include/meron/backend.h": "the table that a device module fills in: one C struct and its docs",
}
# What a program writes says so in its first lines. The baseline of the ABI is a copy.
GENERATED = re.compile(r"generated|machine-written", re.IGNORECASE)
COPIED = re.compile(r"capi/abi/")
NO_FIELD = re.compile(r"(using|friend|typedef|static_assert|enum|struct|class|union)\b")
CONSTANT = re.compile(r"(inline\s+)?(static\s+constexpr|constexpr\s+static)\b")


def fields(text: str, begin: int, end: int) -> Iterator[str]:
    """The names of a type's own fields, of a bare text."""
    for _, said in cxx_text.declarations(text, begin, end):
        head = re.sub(r"\b(public|private|protected)\s*:", "", said)
        head = cxx_text.without_templates(head).strip()
        head = re.sub(r"^template\s*", "", head)
        if not head or NO_FIELD.match(head) or CONSTANT.match(head) or "operator" in head:
            continue
        if cxx_text.is_function(head):
            continue
        head = re.sub(r"=[^,]*", "", re.sub(r":\s*\d+\s*$", "", head))
        for part in head.split(","):
            yield re.split(r"[\s*&]+", part.strip())[-1]


def large_types(text: str) -> Iterator[tuple[int, str]]:
    text = cxx_text.bare(text)
    for scope in cxx_text.scopes(text):
        most = MOST_FIELDS.get(scope.kind)
        if most is None:
            continue
        count = len(list(fields(text, scope.opening + 1, scope.closing)))
        if count > most:
            yield (
                cxx_text.line_of(text, scope.opening),
                f"{scope.kind} {scope.name} has {count} fields, more than {most}: name the ideas "
                "among them, and give each a struct of its own",
            )


def check(root: Path) -> list[str]:
    offences = []
    for path in check_tree.files_of(root):
        name = path.as_posix()
        if path.suffix not in SUFFIXES or COPIED.match(name):
            continue
        text = (root / path).read_text(encoding="utf-8")
        lines = text.count("\n")
        head = "\n".join(text.splitlines()[:6])
        if lines > MOST_LINES and name not in LONGER and not GENERATED.search(head):
            offences.append(
                f"{name}:1: {lines} lines, more than {MOST_LINES}: split it by its ideas"
            )
        if path.parts[0] in ("impl", "capi") and path.suffix in (".h", ".cpp"):
            offences += [f"{name}:{line}: {said}" for line, said in large_types(text)]
    return offences


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = check(root)
    for offence in offences:
        print(offence)
    print(f"{len(offences)} offences" if offences else "files and types keep their sizes")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
