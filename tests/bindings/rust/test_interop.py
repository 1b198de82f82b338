# SPDX-License-Identifier: Apache-2.0
"""The features of meron-interop, with the crates that Debian packages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from conftest import CRATES, cargo

# Where Debian's packages of crates are, such as librust-half-dev.
REGISTRY = Path(os.environ.get("MERON_TEST_CRATES", "/usr/share/cargo/registry"))
NEEDED = ("bytemuck", "half", "serde", "serde_json", "tracing")
# Debian does not package these. The test leaves out the features of crates that are not there.
WANTED = ("ndarray",)


def is_there(crate: str) -> bool:
    return any(REGISTRY.glob(f"{crate}-[0-9]*"))


def leave_out(manifest: Path, crates: list[str]) -> None:
    """Removes features: cargo resolves the crates of those that are disabled too."""
    lines = manifest.read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.split(" = ")[0] not in crates]
    manifest.write_text("".join(kept))


def test_features_work_with_packaged_crates(tmp_path: Path) -> None:
    missing = [name for name in NEEDED if not is_there(name)]
    if missing:
        packages = ", ".join(f"librust-{name.replace('_', '-')}-dev" for name in missing)
        pytest.skip(f"these packages are not installed: {packages}")
    # A copy, because cargo writes a Cargo.lock with the versions of that distribution.
    crates = tmp_path / "rust"
    shutil.copytree(CRATES, crates)
    source = ["--config", 'source.crates-io.replace-with="debian"']
    source += ["--config", f'source.debian.directory="{REGISTRY}"']
    folder = crates / "meron-interop"
    leave_out(folder / "Cargo.toml", [name for name in WANTED if not is_there(name)])
    said = cargo("test", "--offline", "--all-features", "--tests", *source, folder=folder)
    assert "2 passed" in said
