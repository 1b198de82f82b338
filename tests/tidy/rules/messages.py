# SPDX-License-Identifier: Apache-2.0
"""Error messages speak every language.

Errors of the engine reach Python, Rust, Julia and Java unchanged, so no message may name a
function, a constant, a type or a number of the C interface. The names come from the headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree import Offence, Tree

NATIVE = (".cpp", ".h")
# The suffixes of the sources in each folder.
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
# A declaration in a header. Comments there name environment variables too.
DECLARED = re.compile(r"^\s*(?:#define )?(MERON_[A-Z]\w*)(?: *=|\(| +[-\d(\"])", re.MULTILINE)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Idioms of C: 0 and 1 for false and true, times in ns, calls.
C_IDIOM = re.compile(r"\bboundary [01]\b|\b[a-z]\w*_ns\b|\b[a-z]+_\w*\(\)")
COMMENTS = ("//", "*", "#", '"""', "@doc")
# Lines whose strings are names to look up, not messages.
LOOKED_UP = re.compile(
    r"function_of_module|dlsym|getattr|extern \"C\"|#include|MERON_[A-Z_]*SYMBOL|_declspec"
)
TYPE = re.compile(r"(?:struct )?\w+(?: ?\*+|\[\w*\])?")
# Misuse that only C permits, and the search for a foreign library by its symbols.
EXEMPT = {"capi/guard.h", "bindings/python/meron/_library.py"}


def interface_names(tree: Tree) -> set[str]:
    """Functions, types and constants of the public headers."""
    headers = [file.text for file in tree.under("include/meron") if file.suffix == ".h"]
    return {name for text in headers for name in NAME.findall(text) + DECLARED.findall(text)}


def is_message(literal: str) -> bool:
    """True if a string has more than one word and is no type of C."""
    return " " in literal.strip() and not TYPE.fullmatch(literal)


def names_in_messages(text: str, names: set[str], native: bool = True) -> list[tuple[int, str]]:
    """The lines of a source whose messages name the C interface, and the names."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if '"' not in line or line.lstrip().startswith(COMMENTS) or LOOKED_UP.search(line):
            continue
        for literal in filter(is_message, LITERAL.findall(line)):
            words = NAME.findall(literal) + CONSTANT.findall(literal)
            said = [name for name in words if name in names]
            said += C_IDIOM.findall(literal) if native else []
            found += [(number, word) for word in said]
    return found


def check(tree: Tree) -> Iterator[Offence]:
    """No error message names a function, a constant or an idiom of the C interface."""
    names = interface_names(tree)
    for folder, suffixes in SOURCES.items():
        for file in tree.under(folder):
            if file.suffix not in suffixes or {"abi", "test"} & set(file.parts):
                continue
            if file.name in EXEMPT:
                continue
            for line, word in names_in_messages(file.text, names, suffixes == NATIVE):
                said = f"an error names '{word}' of the C interface: describe it for every language"
                yield Offence(file.name, line, said)
