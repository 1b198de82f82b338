# SPDX-License-Identifier: Apache-2.0
"""A superseded decision names the one that replaces it.

The first paragraph of a superseded decision is a status line:

    **Status.** Superseded by [decision 21](0021-one-reduction.md).
    **Status.** Superseded in part by [decision 11](0011-nodes.md): one segment per node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree import File, Offence, Tree

FOLDER = "docs/decisions"
NUMBER = re.compile(r"(\d{4})-[\w-]+\.md")
STATUS = re.compile(
    r"^\*\*Status\.\*\* Superseded (?:in part )?by\s((?:.+\n)+)", re.MULTILINE
)  # the whole paragraph
SUPERSEDED = re.compile(r"\bsuperseded\b", re.IGNORECASE)
SUPERSEDES = re.compile(
    r"\b(?:supersedes|replaces)\b[^.\n]*?\bdecisions? \[?(\d+)\b", re.IGNORECASE
)
LINK = re.compile(r"\[decision (\d+)\]\((\d{4})-[\w-]+\.md\)")
TITLE = re.compile(r"# (\d+)\. ")


def line_of(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


def check_status(page: File, number: int, numbers: set[int]) -> Iterator[Offence]:
    status = STATUS.search(page.text)
    mention = SUPERSEDED.search(page.text)
    if mention and not status:
        said = 'write "**Status.** Superseded by [decision N](file.md)" below the title'
        yield Offence(page.name, line_of(page.text, mention), said)
    if not status:
        return
    line = line_of(page.text, status)
    links = LINK.findall(status.group(1))
    if not links:
        said = "the status names no decision: link to it as [decision N](file.md)"
        yield Offence(page.name, line, said)
    for shown, linked in links:
        if int(shown) != int(linked):
            yield Offence(page.name, line, f"[decision {shown}] links to decision {int(linked)}")
        elif int(shown) not in numbers:
            yield Offence(page.name, line, f"there is no decision {shown}")
        elif int(shown) <= number:
            said = f"decision {shown} is not later, so it cannot supersede decision {number}"
            yield Offence(page.name, line, said)


def check(tree: Tree) -> Iterator[Offence]:
    """A superseded decision of docs/decisions names the later decision that replaces it."""
    pages = {
        int(found.group(1)): file
        for file in tree.under(FOLDER)
        if (found := NUMBER.fullmatch(file.base))
    }
    for number, page in sorted(pages.items()):
        title = TITLE.match(page.text)
        if not title or int(title.group(1)) != number:
            yield Offence(page.name, 1, f'the title of the page is not "# {number}. ..."')
        yield from check_status(page, number, set(pages))
        for found in SUPERSEDES.finditer(page.text):
            old = pages.get(int(found.group(1)))
            if old and f"[decision {number}](" not in old.text:
                said = f"the status of {old.base} does not name decision {number}"
                yield Offence(page.name, line_of(page.text, found), said)
