# SPDX-License-Identifier: Apache-2.0
"""A temporary tree in which tests plant files."""

from __future__ import annotations

from pathlib import Path

from rules import RULES
from tree import Tree


class Plant:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def tree(self) -> Tree:
        return Tree(self.root)

    def offences(self, rule: str, files: dict[str, str] | None = None) -> list[str]:
        """The offences of one rule, after writing the files."""
        for name, text in (files or {}).items():
            self.write(name, text)
        return [str(offence) for offence in RULES[rule](self.tree())]
