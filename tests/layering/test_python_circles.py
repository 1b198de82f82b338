#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_circles must find what it is there to find: each test plants a small package."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import python_circles  # beside this file


class PythonCircles(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="meron-circles-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def circles(self, **files: str) -> list[list[str]]:
        """Names have `__` for a folder's slash; `init` is a package's own file."""
        for name, text in files.items():
            path = self.folder / "meron" / (name.replace("__", "/") + ".py")
            path = path.with_name("__init__.py") if path.name == "init.py" else path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        modules = python_circles.modules_of(self.folder)
        graph = {
            name: dict(python_circles.imported(name, path, modules))
            for name, path in modules.items()
        }
        return python_circles.circles_of(graph)

    def test_one_way_is_fine(self) -> None:
        self.assertEqual(
            self.circles(init="from meron import a", a="from meron.b import x", b="x = 1"), []
        )

    def test_a_circle_is_found(self) -> None:
        found = self.circles(
            init="", a="from meron.b import x", b="import meron.c", c="import meron.a"
        )
        self.assertEqual(found, [["meron.a", "meron.b", "meron.c"]])

    def test_imports_in_functions_and_for_type_checkers_count(self) -> None:
        self.assertEqual(
            self.circles(
                init="",
                a="def f():\n    from meron import b",
                b="if TYPE_CHECKING:\n    from meron.a import f",
            ),
            [["meron.a", "meron.b"]],
        )

    def test_relative_imports_and_packages_count(self) -> None:
        self.assertEqual(
            self.circles(
                init="", p__init="from .q import x", p__q="from ..r import y", r="import meron.p"
            ),
            [["meron.p", "meron.p.q", "meron.r"]],
        )

    def test_the_tree_has_none(self) -> None:
        self.assertEqual(python_circles.main([]), 0)


if __name__ == "__main__":
    unittest.main()
