# SPDX-License-Identifier: Apache-2.0
"""The table of layers in CONTRIBUTING.md is written from layers.py."""

from __future__ import annotations

import re
from collections.abc import Iterator

from layers import DESCRIPTIONS, LAYERS
from tree import Offence, Tree

PAGE = "CONTRIBUTING.md"
BEGIN = "<!-- layers: written by tests/tidy/tidy.py --write -->"
END = "<!-- end of layers -->"
BLOCK = re.compile(re.escape(BEGIN) + r"\n(.*?)" + re.escape(END), re.DOTALL)


def table() -> str:
    rows = ["| folders | contents |", "|---|---|"]
    for row in (*LAYERS, ("capi",)):
        folders = ", ".join(f"`{layer}`" for layer in row)
        contents = "; ".join(DESCRIPTIONS[layer] for layer in row)
        rows.append(f"| {folders} | {contents} |")
    return "\n".join([*rows, ""])


def written(text: str) -> str:
    """The page with a current table."""
    return BLOCK.sub(lambda _: f"{BEGIN}\n{table()}{END}", text)


def check(tree: Tree) -> Iterator[Offence]:
    """CONTRIBUTING.md has the table of layers that layers.py describes."""
    page = tree.by_name.get(PAGE)
    if page is None:
        return
    if not BLOCK.search(page.text):
        yield Offence(PAGE, 1, f"the table of layers between {BEGIN} and {END} is missing")
    elif written(page.text) != page.text:
        line = page.text.count("\n", 0, page.text.index(BEGIN)) + 1
        yield Offence(PAGE, line, "the table differs from layers.py: run tidy.py --write")
