# SPDX-License-Identifier: Apache-2.0
"""C++ as text, as far as the checks of this folder need it. It is laid out by clang-format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.S
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
ALIGNMENT = re.compile(r"\balignas\s*\([^()]*\)")
ATTRIBUTE = re.compile(r"\[\[.*?\]\]", re.S)
NAMESPACE = re.compile(r"\bnamespace(?:\s+([\w:]+))?\s*$")
TYPE = re.compile(
    r"(?<!enum )\b(struct|class|union)\s+([A-Za-z_]\w*)(?:\s+final)?\s*(?::[^:;{(][^;{]*)?$"
)
ENUM = re.compile(r"\benum\s+(?:class\s+|struct\s+)?(\w+)\s*(?::\s*[\w:]+\s*)?$")


class Scope(NamedTuple):
    kind: str  # namespace, struct, class, union, enum, or "" for any other braces
    name: str
    opening: int  # where its brace is
    closing: int
    outside: tuple[tuple[str, str], ...]  # kinds and names around it, from the outermost

    def qualified(self) -> str:
        names = (name or "(unnamed)" for _, name in self.outside)
        return "::".join((*names, self.name))

    def in_namespaces(self) -> bool:
        return all(kind == "namespace" for kind, _ in self.outside)


def bare(text: str) -> str:
    """Without comments, strings, directives, alignments and attributes. Lines keep numbers."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    for pattern in (COMMENT_OR_STRING, DIRECTIVE, ALIGNMENT, ATTRIBUTE):
        text = pattern.sub(blank, text)
    return text


def scopes(text: str) -> list[Scope]:
    """Everything in braces of a bare text, in the order of its end."""
    found: list[Scope] = []
    open_: list[tuple[str, str, int]] = []
    start = 0
    for match in re.finditer(r"[{};]", text):
        at = match.start()
        if match.group() == "{":
            head = text[start:at].rstrip()
            kind, name = "", ""
            if space := NAMESPACE.search(head):
                kind, name = "namespace", space.group(1) or ""
            elif type_ := TYPE.search(head):
                kind, name = type_.group(1), type_.group(2)
            elif enum := ENUM.search(head):
                kind, name = "enum", enum.group(1)
            open_.append((kind, name, at))
        elif match.group() == "}" and open_:
            kind, name, opening = open_.pop()
            outside = tuple((kind_, name_) for kind_, name_, _ in open_)
            found.append(Scope(kind, name, opening, at, outside))
        start = at + 1
    return found


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def without_templates(head: str) -> str:
    head = re.sub(r"operator\s*(<=>|<<|>>|<=|>=|<|>|->)", "operator", head)
    shorter = re.sub(r"<[^<>]*>", "", head)
    while shorter != head:
        head, shorter = shorter, re.sub(r"<[^<>]*>", "", shorter)
    return head


def is_function(head: str) -> bool:
    return "(" in without_templates(head).split("=")[0]


def _closing(text: str, opening: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    return len(text)


def declarations(text: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    """What stands directly in these braces: where each begins, and it without its own braces."""
    said: list[str] = []
    first = at = begin
    while at < end:
        char = text[at]
        if not said and char.isspace():
            at += 1
            continue
        if not said:
            first = at
        if char == "{":
            closing = _closing(text, at)
            head = "".join(said)
            # A function's body ends its declaration, and so does a namespace; others end with `;`.
            after = text[closing + 1 : end].lstrip()[:1]
            if NAMESPACE.search(head.rstrip()) or (is_function(head) and after not in ",{;"):
                yield first, head
                said = []
            at = closing + 1
            continue
        if char == ";":
            yield first, "".join(said)
            said = []
        else:
            said.append(char)
        at += 1
