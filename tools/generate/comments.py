# SPDX-License-Identifier: Apache-2.0
"""Cuts a header into its top-level pieces and gives each the comment that documents it.

A compiler's parser drops comments and macros; this scanner keeps both and knows nothing about C
beyond comments, `#define`, braces and semicolons. A comment documents the piece that starts on the
line after it, and a comment that starts on a piece's last line documents that piece too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""
      (?P<comment> /\*.*?\*/ )
    | (?P<directive> ^[ \t]*\# (?: \\\n | /\*.*?\*/ | [^\n/] | /(?!\*) )* )
    | (?P<linkage> ^MERON_(?:BEGIN|END)_DECLS$ )
    | (?P<string> "(?: \\. | [^"\\] )*" )
    | (?P<open> \{ )
    | (?P<close> \} )
    | (?P<end> ; )
    | (?P<space> \s+ )
    | (?P<other> [^\s;{}"/]+ | / )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DEFINE = re.compile(r"\s*#\s*define\s+(\w+)[ \t]+(.+)", re.DOTALL)


@dataclass
class Piece:
    """A top-level declaration, with its semicolon, or a `#define` with a value."""

    text: str
    doc: str  # cleaned; "" where there is none
    line: int
    macro: str | None = None  # the name that a #define defines


def clean(comment: str) -> str:
    """A comment's text without stars; line structure and indentation kept."""
    lines = comment.removeprefix("/**").removeprefix("/*").removesuffix("*/").split("\n")
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() if i else line for i, line in enumerate(lines)]
    return "\n".join(lines).strip()


def is_code(paragraph: str) -> bool:
    """Lines that are all indented by four spaces, as in Markdown."""
    return all(line.startswith("    ") for line in paragraph.split("\n"))


def join(*docs: str) -> str:
    return " ".join(doc for doc in docs if doc)


def header_doc(source: str) -> str:
    """The comment that says what the header is for: the second, after the licence's."""
    comments = [clean(comment) for comment in COMMENT.findall(source)[:2]]
    return comments[1] if len(comments) == 2 and comments[0].startswith("SPDX") else ""


def pieces(source: str) -> list[Piece]:
    found: list[Piece] = []
    comment, comment_end = "", -1  # the last comment and the line on which it ends
    start, depth = -1, 0  # where the declaration under way began; its brace depth
    line = 1
    for token in TOKEN.finditer(source):
        text, kind = token.group(), token.lastgroup
        at = line
        line += text.count("\n")
        if start >= 0 and kind not in ("open", "close", "end"):
            continue
        if kind == "comment":
            if found and end_line(found[-1]) == at:
                found[-1].doc = join(found[-1].doc, clean(text))
            else:
                comment, comment_end = clean(text), line
        elif kind == "directive":
            define = DEFINE.fullmatch(text)
            if define:
                doc = comment if comment_end == at - 1 else ""
                trailing = "".join(clean(inner) for inner in COMMENT.findall(define[2]))
                found.append(Piece(text, join(doc, trailing), at, define[1]))
        elif kind in ("open", "other", "string") and start < 0:
            start = token.start()
            doc = comment if comment_end == at - 1 else ""
            found.append(Piece("", doc, at))
            depth = 1 if kind == "open" else 0
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
        elif kind == "end" and depth == 0 and start >= 0:
            found[-1].text = source[start : token.end()]
            start = -1
    return found


def end_line(piece: Piece) -> int:
    return piece.line + piece.text.count("\n")


def member_docs(text: str, separator: str) -> list[str]:
    """The comments of a struct's fields (separator ";") or of an enum's values (","), in order.

    A member's comment is on lines of its own before it, or begins on its last line.
    """
    body = text[text.index("{") + 1 : text.rindex("}")]
    docs: list[str] = []
    pending = ""  # a comment that stood on its own: the next member's
    member, ended_on, line = "", -1, 0

    def finish() -> None:
        nonlocal member, pending, ended_on
        docs.append(pending)
        member, pending, ended_on = "", "", line

    for part in re.finditer(rf"/\*.*?\*/|\n|{separator}|[^/\n{separator}]+|/", body, re.DOTALL):
        piece = part.group()
        if piece.startswith("/*"):
            if not member.strip() and ended_on == line:
                docs[-1] = join(docs[-1], clean(piece))
            elif member.strip():  # the last enumerator has no comma before its comment
                finish()
                docs[-1] = join(docs[-1], clean(piece))
            else:
                pending = join(pending, clean(piece))
            line += piece.count("\n")
        elif piece == separator:
            finish()
        elif piece == "\n":
            line += 1
        else:
            member += piece
    if member.strip():
        finish()
    return [re.sub(r"\s*\n\s*", " ", doc) for doc in docs]
