# SPDX-License-Identifier: Apache-2.0
"""Errors reach Python, Rust, Julia and Java as they are: none names a function, a type or a number
of the C interface. Usage: check_messages.py ROOT; prints FILE:LINE: what, and exits with 1 if there
is one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOLDERS = ("impl", "capi", "modules")
NAME = re.compile(r"\bmeron_[a-z0-9]\w*")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# 0 and 1 stand for false and true in C alone.
FLAG = re.compile(r"\bboundary [01]\b")
# Names that are looked up in a library, and no words for people.
LOOKED_UP = re.compile(r"function_of_module|dlsym|extern \"C\"|#include|MERON_[A-Z_]*SYMBOL")


def interface_names(root: Path) -> set[str]:
    headers = (root / "include" / "meron").glob("*.h")
    return {name for header in headers for name in NAME.findall(header.read_text())}


def messages_with_names(text: str, names: set[str]) -> list[tuple[int, str]]:
    """The lines of a source that speak C, and what they say."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if LOOKED_UP.search(line) or line.lstrip().startswith(("//", "*")):
            continue
        for literal in LITERAL.findall(line):
            said = [name for name in NAME.findall(literal) if name in names]
            said += FLAG.findall(literal)
            found += [(number, word) for word in said]
    return found


def main() -> int:
    root = Path(sys.argv[1])
    names = interface_names(root)
    wrong = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".cpp", ".h") or "abi" in path.relative_to(root).parts:
                continue
            for number, word in messages_with_names(path.read_text(), names):
                place = f"{path.relative_to(root)}:{number}"
                wrong.append(f"{place}: an error says '{word}': say it for every language")
    print("\n".join(wrong) if wrong else "no message names the C interface")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
