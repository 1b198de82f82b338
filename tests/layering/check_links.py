#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a link of a Markdown page names no file, or no heading, of the tree.

    python3 tests/layering/check_links.py [ROOT]

Links to other sites are not followed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import check_tree  # beside this file

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Fragments of the headings: lower case, hyphens for spaces, repeated ones numbered."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = found.get(anchor, 0)
        found[anchor] = count + 1
        if count:
            found[f"{anchor}-{count}"] = 1
    return set(found)


def broken_links(page: Path) -> Iterator[str]:
    """The links of a page that do not resolve, each with the reason."""
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(CODE.sub("", FENCE.sub("", text))):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists():
            yield f"{target}: there is no such file"
        elif (
            fragment
            and file.suffix == ".md"
            and fragment not in anchors(file.read_text(encoding="utf-8"))
        ):
            yield f"{target}: {file.name} has no such heading"


def main(root: Path) -> int:
    pages = [root / path for path in check_tree.files_of(root) if path.suffix == ".md"]
    problems = [
        f"{page.relative_to(root)}: {problem}" for page in pages for problem in broken_links(page)
    ]
    print("\n".join(problems) or f"all links of {len(pages)} pages resolve")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
