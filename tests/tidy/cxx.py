# SPDX-License-Identifier: Apache-2.0
"""C++ as text laid out by clang-format, as far as the rules need it. This is not a parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# Comments, strings, directives, alignments and attributes.
HIDDEN = re.compile(
    r"""(?m:^[ \t]*)\#(?:[^\n]*\\\n)*[^\n]*
    | //[^\n]* | /\*.*?\*/
    | R"(?P<mark>\w*)\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | (?<!\w)'(?:\\.|[^'\\\n])+'
    | \balignas\s*\([^()]*\)
    | \[\[.*?\]\]""",
    re.DOTALL | re.VERBOSE,
)
NOT_NEWLINE = re.compile(r"[^\n]")
BRACE_OR_END = re.compile(r"[{};]")
BRACE = re.compile(r"[{}]")
NAMESPACE = re.compile(r"\bnamespace(?:\s+([\w:]+))?\s*$")
TYPE = re.compile(
    r"(?<!enum )\b(struct|class|union)\s+([A-Za-z_]\w*)(?:\s+final)?\s*(?::([^:;{(][^;{]*))?$"
)
ENUM = re.compile(r"\benum\s+(?:class\s+|struct\s+)?(\w+)\s*(?::\s*[\w:]+\s*)?$")
OPERATOR = re.compile(r"operator\s*(<=>|<<|>>|<=|>=|<|>|->)")
TEMPLATE = re.compile(r"<[^<>]*>")


class Scope(NamedTuple):
    kind: str  # namespace, struct, class, union, enum, or "" for any other braces
    name: str
    opening: int  # offset of the opening brace
    closing: int
    outside: tuple[tuple[str, str], ...]  # kinds and names around it, outermost first
    head: str  # the text before the opening brace
    bases: str = ""  # the base clause of a type

    def qualified(self) -> str:
        names = (name or "(unnamed)" for _, name in self.outside)
        return "::".join((*names, self.name))

    def in_namespaces(self) -> bool:
        return all(kind == "namespace" for kind, _ in self.outside)

    def in_unnamed_namespace(self) -> bool:
        return any(kind == "namespace" and not name for kind, name in self.outside)


def _blank(match: re.Match[str]) -> str:
    hidden = match.group()
    return NOT_NEWLINE.sub(" ", hidden) if "\n" in hidden else " " * len(hidden)


def bare(text: str) -> str:
    """The text with all that is HIDDEN replaced by spaces. Offsets and lines stay the same."""
    return HIDDEN.sub(_blank, text)


def scopes(text: str) -> list[Scope]:
    """Every pair of braces of a bare text, ordered by closing brace."""
    found: list[Scope] = []
    open_: list[tuple[str, str, int, str, str]] = []
    start = 0
    for match in BRACE_OR_END.finditer(text):
        at = match.start()
        brace = match.group()
        if brace == "{":
            head = text[start:at].rstrip()
            kind, name, bases = "", "", ""
            if space := NAMESPACE.search(head):
                kind, name = "namespace", space.group(1) or ""
            elif type_ := TYPE.search(head):
                kind, name, bases = type_.group(1), type_.group(2), type_.group(3) or ""
            elif enum := ENUM.search(head):
                kind, name = "enum", enum.group(1)
            open_.append((kind, name, at, head, bases))
        elif brace == "}" and open_:
            kind, name, opening, head, bases = open_.pop()
            outside = tuple(entry[:2] for entry in open_)
            found.append(Scope(kind, name, opening, at, outside, head, bases))
        start = at + 1
    return found


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def without_templates(head: str) -> str:
    if "<" not in head:
        return head
    head = OPERATOR.sub("operator", head)
    shorter = TEMPLATE.sub("", head)
    while shorter != head:
        head, shorter = shorter, TEMPLATE.sub("", shorter)
    return head


def is_function(head: str) -> bool:
    return "(" in head and "(" in without_templates(head).split("=")[0]


def _closing(text: str, opening: int) -> int:
    depth = 0
    for match in BRACE.finditer(text, opening):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    return len(text)


def declarations(text: str, begin: int, end: int) -> Iterator[str]:
    """The declarations directly in these braces, each without its own braces."""
    head = ""
    at = begin
    while match := BRACE_OR_END.search(text, at, end):
        head += text[at : match.start()]
        at = match.end()
        if match.group() == ";":
            if head := head.strip():
                yield head
            head = ""
        elif match.group() == "{":
            at = min(_closing(text, match.start()) + 1, end)
            # A body ends the declaration of a function or a namespace. Others end with `;`.
            after = text[at : at + 200].lstrip()[:1] if at < end else ""
            if NAMESPACE.search(head.rstrip()) or (is_function(head) and after not in ",{;"):
                yield head.strip()
                head = ""
