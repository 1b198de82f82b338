#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_links must find broken links: each test writes a page."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import check_links  # beside this file


class CheckLinks(unittest.TestCase):
    def broken(self, text: str) -> list[str]:
        folder = tempfile.TemporaryDirectory(prefix="meron-links-")
        self.addCleanup(folder.cleanup)
        page = Path(folder.name) / "page.md"
        page.write_text(text, encoding="utf-8")
        (page.parent / "other.md").write_text("# The end\n", encoding="utf-8")
        return list(check_links.broken_links(page))

    def test_files_and_headings_resolve(self) -> None:
        text = "# A `b` c, d\n[1](other.md) [2](other.md#the-end) [3](#a-b-c-d) [4](.) [5](https://x.org/y)"
        self.assertEqual(self.broken(text), [])

    def test_a_missing_file_and_a_missing_heading_are_found(self) -> None:
        found = self.broken("[1](none.md) [2](other.md#start) [3](#nowhere)")
        self.assertEqual(
            [problem.split(":")[0] for problem in found], ["none.md", "other.md#start", "#nowhere"]
        )

    def test_code_has_no_links(self) -> None:
        self.assertEqual(self.broken("`a[0](none.md)`\n```\n[1](none.md)\n```\n"), [])


if __name__ == "__main__":
    unittest.main()
