# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from graphs import circles_of
from rules import rust_modules
from self_tests.planting import Plant
from tree import Tree

CRATE = "bindings/rust/crate/src"


def write(plant: Plant, **files: str) -> None:
    """Names have `__` for a folder's slash."""
    for name, text in files.items():
        plant.write(f"{CRATE}/{name.replace('__', '/')}.rs", text)


def circles(plant: Plant, **files: str) -> list[list[str]]:
    write(plant, **files)
    return circles_of(rust_modules.Crate(plant.tree(), CRATE).graph())


def test_uses_of_one_direction_are_no_circle(plant: Plant) -> None:
    found = circles(
        plant,
        lib="mod a;\nmod b;\npub use a::A;\npub use b::B;",
        a="use std::fmt;\nuse crate::b::B;\nuse other::a::A;\npub struct A(B);",
        b="pub struct B;",
    )
    assert found == []


def test_finds_a_circle(plant: Plant) -> None:
    found = circles(plant, a="use crate::b::B;", b="pub use crate::c;", c="use crate::a::{self};")
    assert found == [["a", "b", "c"]]


def test_braces_and_aliases_count(plant: Plant) -> None:
    found = circles(
        plant,
        a="use crate::{\n    d::{D, e as f},\n    b as other,\n};",
        b="pub(crate) use crate::{d, r#c::*};",
        c="use crate::a::A as B;",
        d="",
    )
    assert found == [["a", "b", "c"]]


def test_paths_in_code_and_in_macros_count(plant: Plant) -> None:
    found = circles(
        plant,
        a="fn f<'a>(x: &'a crate::b::B) -> char { 'x' }",
        b="macro_rules! m { () => { $crate::c::f::<u8>() }; }",
        c="impl T for S where S: super::a::A {}",
    )
    assert found == [["a", "b", "c"]]


def test_names_that_the_crate_exports_count(plant: Plant) -> None:
    found = circles(
        plant,
        lib="pub use a::A;\npub use b::Inner as B;\npub use c::*;",
        a="use crate::{B, Unknown};",
        b="use super::C;",
        c="pub struct C(crate::A);",
    )
    assert found == [["a", "b", "c"]]


def test_a_wildcard_of_the_crate_uses_every_module(plant: Plant) -> None:
    lib = "pub use a::A;\npub use b::B;"
    assert circles(plant, lib=lib, a="use crate::*;", b="use crate::a;") == [["a", "b"]]


def test_modules_in_folders_count(plant: Plant) -> None:
    found = circles(
        plant, a__mod="mod b;\npub use b::B;", a__b="use super::super::c::C;", c="use crate::a;"
    )
    assert found == [["a", "a::b", "c"]]


def test_comments_and_strings_do_not_count(plant: Plant) -> None:
    found = circles(
        plant,
        a="//! [`B`](crate::b::B)\n/* /* */ use crate::b; */ use crate::c::C;",
        b="use crate::a::A;",
        c='const TEXT: [&str; 2] = ["\\"crate::a", r#"crate::a " crate::b"#];',
    )
    assert found == []


def test_test_items_do_not_count(plant: Plant) -> None:
    found = circles(
        plant,
        lib="mod a;\nmod b;\n#[cfg(test)]\nmod checks;\npub use checks::Check;",
        a="#[cfg(test)]\nuse crate::b::B;\n#[cfg(test)]\nmod t { use crate::b::B; }",
        b="use crate::{a, Check};",
        checks="use crate::{a, b};",
    )
    assert found == []


def test_the_visibility_of_an_item_does_not_count(plant: Plant) -> None:
    assert circles(plant, a="use crate::b::B;", b="pub(in crate::a) struct B;") == []


def test_reports_each_use_of_a_circle(plant: Plant) -> None:
    write(plant, a="\nuse crate::b::B;\nuse crate::b::C;", b="use crate::a::A;")
    assert plant.offences("rust-circles") == [
        f"{CRATE}/a.rs:2: uses b, in a circle of a, b",
        f"{CRATE}/b.rs:1: uses a, in a circle of a, b",
    ]


def test_a_crate_of_one_file_has_no_modules(plant: Plant) -> None:
    write(plant, lib="pub fn f() {}")
    assert rust_modules.crates(plant.tree()) == []


def test_sees_the_crates_of_the_project(project: Tree) -> None:
    crates = rust_modules.crates(project)
    assert {"bindings/rust/meron/src", "tests/conformance/rust/src"} <= set(crates)
    assert any(rust_modules.Crate(project, "bindings/rust/meron/src").graph().values())
