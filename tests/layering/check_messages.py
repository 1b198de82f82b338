# SPDX-License-Identifier: Apache-2.0
"""Errors reach Python, Rust, Julia and Java as they are: none names a function, a constant, a type
or a number of the C interface, and neither do those that bindings raise. The names are read from
the headers, and the messages from all sources. Usage: check_messages.py ROOT; prints FILE:LINE:
what, and exits with 1 if there is one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

# Folders, and how sources there end.
NATIVE = (".cpp", ".h")
SOURCES = {
    "impl": NATIVE,
    "capi": NATIVE,
    "modules": NATIVE,
    "kernels": NATIVE,
    "bindings/python": (".py",),
    "bindings/rust/meron": (".rs",),
    "bindings/julia": (".jl",),
    "bindings/swig/java": (".java",),
}
NAME = re.compile(r"\bmeron_[a-z0-9]\w*")
CONSTANT = re.compile(r"\bMERON_[A-Z]\w*")
# Where a header declares one; its comments name variables of the environment too.
DECLARED = re.compile(r"^\s*(?:#define )?(MERON_[A-Z]\w*)(?: *=|\(| +[-\d(\"])", re.MULTILINE)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# What C alone has: 0 and 1 for false and true, times in ns, calls.
C_ALONE = re.compile(r"\bboundary [01]\b|\b[a-z]\w*_ns\b|\b[a-z]+_\w*\(\)")
COMMENTS = ("//", "*", "#", '"""', "@doc")
# Names that are looked up in a library, and no words for people.
LOOKED_UP = re.compile(
    r"function_of_module|dlsym|getattr|extern \"C\"|#include|MERON_[A-Z_]*SYMBOL|_declspec"
)
TYPE = re.compile(r"(?:struct )?\w+(?: ?\*+|\[\w*\])?")
# Misuse that C alone can do; a library that is none of Meron's, found by its symbols.
OF_C = {"capi/guard.h", "bindings/python/meron/_library.py"}


def interface_names(root: Path) -> set[str]:
    """Functions, types and constants of the headers."""
    headers = [header.read_text() for header in (root / "include" / "meron").glob("*.h")]
    return {name for text in headers for name in NAME.findall(text) + DECLARED.findall(text)}


def is_message(literal: str) -> bool:
    """Whether it is for people: more than one word, and no type of C's."""
    return " " in literal.strip() and not TYPE.fullmatch(literal)


def messages_with_names(text: str, names: set[str], native: bool = True) -> list[tuple[int, str]]:
    """The lines of a source that speak C, and what they say."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if LOOKED_UP.search(line) or line.lstrip().startswith(COMMENTS):
            continue
        for literal in filter(is_message, LITERAL.findall(line)):
            words = NAME.findall(literal) + CONSTANT.findall(literal)
            said = [name for name in words if name in names]
            said += C_ALONE.findall(literal) if native else []
            found += [(number, word) for word in said]
    return found


def main() -> int:
    root = Path(sys.argv[1])
    names = interface_names(root)
    wrong = []
    for folder, endings in SOURCES.items():
        for path in sorted((root / folder).rglob("*")):
            place = path.relative_to(root)
            if path.suffix not in endings or {"abi", "test"} & set(place.parts):
                continue
            if place.as_posix() in OF_C:
                continue
            native = endings == NATIVE
            for number, word in messages_with_names(path.read_text(), names, native):
                wrong.append(f"{place}:{number}: an error says '{word}': say it for every language")
    print("\n".join(wrong) if wrong else "no message names the C interface")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
