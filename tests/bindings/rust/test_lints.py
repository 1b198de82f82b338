# SPDX-License-Identifier: Apache-2.0
"""Lints, documentation and packages of the crates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import CRATES, EXAMPLE, TRANSPORT, cargo

FOLDERS = (CRATES, EXAMPLE, TRANSPORT)


@pytest.mark.parametrize("folder", FOLDERS, ids=("crates", "example", "transport"))
def test_clippy_has_nothing_to_say(folder: Path) -> None:
    cargo("clippy", "--offline", "--all-targets", "--", "-D", "warnings", folder=folder)


@pytest.mark.parametrize(
    "folder",
    (*FOLDERS, CRATES / "meron-interop"),
    ids=("crates", "example", "transport", "interop"),
)
def test_sources_are_formatted(folder: Path) -> None:
    cargo("fmt", "--check", folder=folder)


def test_the_documentation_has_no_dead_links() -> None:
    cargo("doc", "--offline", "--no-deps", RUSTDOCFLAGS="-D warnings")


@pytest.mark.parametrize("crate", ("meron-sys", "meron"))
def test_packages_contain_their_requirements(crate: str) -> None:
    listed = cargo("package", "--list", "--offline", "--allow-dirty", "-p", crate).splitlines()
    assert {"Cargo.toml", "README.md", "src/lib.rs"} <= set(listed)
    assert not [name for name in listed if "target/" in name]


def test_packages_are_made() -> None:
    arguments = ("package", "--offline", "--no-verify", "--allow-dirty")
    for crate in ("meron-sys", "meron"):
        manifest = (CRATES / crate / "Cargo.toml").read_text()
        for key in ("license", "description", "rust-version", "readme"):
            assert re.search(rf"^{key} = ", manifest, re.MULTILINE), key
    said = cargo(*arguments, "--workspace")
    assert len(re.findall(r"Packaging meron", said)) == 2
