# SPDX-License-Identifier: Apache-2.0
"""Paragraphs of prose in a file: Markdown, comments, docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

C_LIKE = {".h", ".hpp", ".c", ".cpp", ".cc", ".cu", ".cuh", ".rs", ".java", ".inc"}
HASH = {".py", ".jl", ".cmake", ".sh"}

C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*", re.DOTALL)
C_MARK = re.compile(r"^[ \t]*(?:/\*+!?<?|\*/|\*|//[/!]?<?)[ \t]?", re.MULTILINE)
BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
HASH_LINE = re.compile(r"[ \t]*#(?!!)[# ]*(.*)")
NEW_ITEM = re.compile(r"(?:[-*+]|\d+\.|>|#+)\s+")


class Block(NamedTuple):
    line: int
    text: str  # on one line


def blocks(suffix: str, text: str) -> Iterator[Block]:
    if suffix == ".md":
        yield from _of_markdown(text)
    elif suffix in C_LIKE:
        yield from _of_c_comments(text)
    elif suffix in HASH or (not suffix and text.startswith("#!")):
        yield from _of_hash_comments(text)
        if suffix in (".py", ".jl"):
            for found in DOCSTRING.finditer(text):
                yield from _paragraphs(found.group(1), text.count("\n", 0, found.start()) + 1)


def _paragraphs(body: str, line: int) -> Iterator[Block]:
    at = 0
    for paragraph in BLANK_LINE.split(body):
        begin = body.index(paragraph, at)
        if words := " ".join(paragraph.split()):
            yield Block(line + body.count("\n", 0, begin), words)
        at = begin + len(paragraph)


def _of_markdown(text: str) -> Iterator[Block]:
    """Paragraphs, headings and list items. Fences and tables are no prose."""
    run: list[str] = []
    start = 0
    in_fence = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        words = line.strip()
        is_fence = words.startswith("```")
        item = None if is_fence or in_fence else NEW_ITEM.match(words)
        ends = is_fence or in_fence or not words or words.startswith("|") or item is not None
        if ends and run:
            yield Block(start, " ".join(run))
            run = []
        in_fence ^= is_fence
        if item or not ends:
            start = start if run else number
            rest = words[item.end() :] if item else words
            run += [rest] if rest else []


def _of_c_comments(text: str) -> Iterator[Block]:
    for found in C_COMMENT.finditer(text):
        at = found.start()
        # An odd number of quotes before it on its line: the slashes are inside a string.
        if text.count('"', text.rfind("\n", 0, at) + 1, at) % 2:
            continue
        body = C_MARK.sub("", found.group()).rstrip()
        yield from _paragraphs(body.removesuffix("*/"), text.count("\n", 0, at) + 1)


def _of_hash_comments(text: str) -> Iterator[Block]:
    run: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if comment := HASH_LINE.match(line):
            start = start if run else number
            run.append(comment.group(1).strip())
        elif run:
            yield Block(start, " ".join(run))
            run = []
