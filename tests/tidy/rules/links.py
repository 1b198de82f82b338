# SPDX-License-Identifier: Apache-2.0
"""Links of Markdown pages resolve. Links to other sites are not followed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cache

from tree import File, Offence, Tree

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Code, in which brackets are no links. Blanked so that offsets stay the same.
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
NOT_NEWLINE = re.compile(r"[^\n]")
URL = re.compile(r"[a-z][a-z0-9+.-]*:")


@cache
def anchors(text: str) -> set[str]:
    """The fragments of the headings: lower case, hyphens for spaces, repeated ones numbered."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = found.get(anchor, 0)
        found[anchor] = count + 1
        if count:
            found[f"{anchor}-{count}"] = 1
    return set(found)


def error_of(tree: Tree, page: File, target: str) -> str | None:
    """The reason why a link of the page does not resolve, or None."""
    path, _, fragment = target.partition("#")
    name = posixpath.normpath(posixpath.join(page.folder, path)) if path else page.name
    if name != "." and name not in tree.by_name and name not in tree.folders:
        return "there is no such file"
    file = tree.by_name.get(name)
    if fragment and file and file.suffix == ".md" and fragment not in anchors(file.text):
        return f"{file.base} has no such heading"
    return None


def check(tree: Tree) -> Iterator[Offence]:
    """Every link of a Markdown page names a file and a heading of the tree."""
    for page in tree.files:
        if page.suffix != ".md":
            continue
        text = CODE.sub(lambda code: NOT_NEWLINE.sub(" ", code.group()), page.text)
        for link in LINK.finditer(text):
            target = link.group(1)
            if URL.match(target):
                continue
            if reason := error_of(tree, page, target):
                line = text.count("\n", 0, link.start()) + 1
                yield Offence(page.name, line, f"{target}: {reason}")
