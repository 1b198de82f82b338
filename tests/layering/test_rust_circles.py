#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rust_circles must find what it is there to find: each test plants a small crate."""

from __future__ import annotations

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import rust_circles  # beside this file
from python_circles import circles_of


class RustCircles(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="meron-circles-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def plant(self, **files: str) -> None:
        """Names have `__` for a folder's slash."""
        for name, text in files.items():
            path = self.folder / (name.replace("__", "/") + ".rs")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def circles(self, **files: str) -> list[list[str]]:
        self.plant(**files)
        return circles_of(rust_circles.graph_of(self.folder))

    def test_one_way_is_fine(self) -> None:
        self.assertEqual(
            self.circles(
                lib="mod a;\nmod b;\npub use a::A;\npub use b::B;",
                a="use std::fmt;\nuse crate::b::B;\nuse other::a::A;\npub struct A(B);",
                b="pub struct B;",
            ),
            [],
        )

    def test_a_circle_is_found(self) -> None:
        found = self.circles(a="use crate::b::B;", b="pub use crate::c;", c="use crate::a::{self};")
        self.assertEqual(found, [["a", "b", "c"]])

    def test_braces_and_aliases_count(self) -> None:
        self.assertEqual(
            self.circles(
                a="use crate::{\n    d::{D, e as f},\n    b as other,\n};",
                b="pub(crate) use crate::{d, r#c::*};",
                c="use crate::a::A as B;",
                d="",
            ),
            [["a", "b", "c"]],
        )

    def test_paths_in_code_and_in_macros_count(self) -> None:
        self.assertEqual(
            self.circles(
                a="fn f<'a>(x: &'a crate::b::B) -> char { 'x' }",
                b="macro_rules! m { () => { $crate::c::f::<u8>() }; }",
                c="impl T for S where S: super::a::A {}",
            ),
            [["a", "b", "c"]],
        )

    def test_names_that_the_crate_exports_count(self) -> None:
        self.assertEqual(
            self.circles(
                lib="pub use a::A;\npub use b::Inner as B;\npub use c::*;",
                a="use crate::{B, Unknown};",
                b="use super::C;",
                c="pub struct C(crate::A);",
            ),
            [["a", "b", "c"]],
        )

    def test_all_names_of_the_crate_are_of_every_module(self) -> None:
        self.assertEqual(
            self.circles(lib="pub use a::A;\npub use b::B;", a="use crate::*;", b="use crate::a;"),
            [["a", "b"]],
        )

    def test_modules_in_folders_count(self) -> None:
        self.assertEqual(
            self.circles(
                a__mod="mod b;\npub use b::B;", a__b="use super::super::c::C;", c="use crate::a;"
            ),
            [["a", "a::b", "c"]],
        )

    def test_comments_and_strings_do_not_count(self) -> None:
        self.assertEqual(
            self.circles(
                a="//! [`B`](crate::b::B)\n/* /* */ use crate::b; */ use crate::c::C;",
                b="use crate::a::A;",
                c='const TEXT: [&str; 2] = ["\\"crate::a", r#"crate::a " crate::b"#];',
            ),
            [],
        )

    def test_tests_do_not_count(self) -> None:
        self.assertEqual(
            self.circles(
                lib="mod a;\nmod b;\n#[cfg(test)]\nmod checks;\npub use checks::Check;",
                a="#[cfg(test)]\nuse crate::b::B;\n#[cfg(test)]\nmod t { use crate::b::B; }",
                b="use crate::{a, Check};",
                checks="use crate::{a, b};",
            ),
            [],
        )

    def test_who_may_see_an_item_does_not_count(self) -> None:
        self.assertEqual(self.circles(a="use crate::b::B;", b="pub(in crate::a) struct B;"), [])

    def test_a_circle_is_printed_with_its_lines(self) -> None:
        self.plant(a="\nuse crate::b::B;\nuse crate::b::C;", b="use crate::a::A;")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(rust_circles.main([str(self.folder)]), 1)
        self.assertEqual(
            said.getvalue().splitlines(),
            [
                "a circle of 2 modules:",
                "  a.rs:2 uses b",
                "  b.rs:1 uses a",
                f"{self.folder}: 2 modules, 1 circles",
            ],
        )

    def test_the_tree_has_none(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(rust_circles.main([]), 0)
        for crate in ("bindings/rust/meron/src", "tests/conformance/rust/src"):
            self.assertIn(f"{crate}: ", said.getvalue())

    def test_a_folder_without_modules_is_refused(self) -> None:
        self.plant(a="")
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(rust_circles.main([str(self.folder), str(self.folder / "x")]), 2)


if __name__ == "__main__":
    unittest.main()
