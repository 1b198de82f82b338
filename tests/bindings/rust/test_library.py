# SPDX-License-Identifier: Apache-2.0
"""When the library is not there, or is of another version."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import CRATES, EXAMPLE, ROOT, cargo, run

WITHOUT = {"MERON_DIR": "", "PKG_CONFIG_PATH": "/nonexistent", "PKG_CONFIG_LIBDIR": "/nonexistent"}


def failed_build(tmp_path: Path, **environment: str) -> str:
    if shutil.which("cargo") is None:
        pytest.skip("there is no cargo (tools/setup --rust brings one)")
    environment["CARGO_TARGET_DIR"] = str(tmp_path)
    done = run(["cargo", "build", "--offline", "-p", "meron-sys"], CRATES, environment)
    assert done.returncode != 0
    return done.stderr


def test_a_folder_without_the_library(tmp_path: Path) -> None:
    said = failed_build(tmp_path, MERON_DIR="/nonexistent/meron")
    assert "there is no libmeron.so in MERON_DIR=/nonexistent/meron" in said
    assert "/nonexistent/meron/lib/libmeron.so" in said
    assert "Set MERON_DIR to" in said


def test_no_pkg_config_file(tmp_path: Path) -> None:
    said = failed_build(tmp_path, **WITHOUT)
    assert "libmeron was not found. MERON_DIR is not set" in said
    assert "PKG_CONFIG_PATH=" in said


def test_no_pkg_config_program(tmp_path: Path) -> None:
    said = failed_build(tmp_path, **WITHOUT, PKG_CONFIG="/nonexistent/pkg-config")
    assert "/nonexistent/pkg-config" in said


def test_pkg_config_finds_it(tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("there is no pkg-config")
    library = Path(os.environ["MERON_LIBRARY"]).parent
    (tmp_path / "meron.pc").write_text(
        f"Name: meron\nDescription: a test's\nVersion: 0.2.0\nLibs: -L{library} -lmeron\n"
    )
    environment = {**WITHOUT, "PKG_CONFIG_PATH": str(tmp_path), "CARGO_TARGET_DIR": str(tmp_path)}
    cargo("test", "--offline", "-p", "meron", "--test", "one_rank", **environment)


def other_library(folder: Path, version: int) -> Path:
    """A library that has every function, and says that it is of another version."""
    lines = ['const char *meron_version_string(void) { return "0.9.9"; }']
    lines.append(f"unsigned meron_version(void) {{ return {version}; }}")
    for name in (ROOT / "capi" / "symbols.txt").read_text().split():
        if not name.startswith("meron_version"):
            lines.append(f"int {name}(void) {{ __builtin_trap(); }}")
    (folder / "other.c").write_text("\n".join(lines) + "\n")
    real = subprocess.run(
        ["readelf", "-d", os.environ["MERON_LIBRARY"]], capture_output=True, text=True, check=True
    ).stdout
    soname = real.split("Library soname: [")[1].split("]")[0]
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, "-shared", "-fPIC", "-o", str(folder / soname), str(folder / "other.c")]
    command.append(f"-Wl,-soname,{soname}")
    script = ROOT / "capi" / "meron.map"
    subprocess.run([*command, f"-Wl,--version-script={script}"], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(
    ("version", "found"), [(0x000000, "0.0.0"), (0x000300, "0.3.0"), (0x010000, "1.0.0")]
)
def test_another_version_says_found_and_needed(tmp_path: Path, version: int, found: str) -> None:
    cargo("build", "--offline", "--release", folder=EXAMPLE)
    program = Path(os.environ["CARGO_TARGET_DIR"]) / "release" / "language_model"
    other = other_library(tmp_path, version)
    done = run([program, "--plan", "zero1"], tmp_path, {"LD_LIBRARY_PATH": str(other)})
    assert done.returncode == 1, done.stderr
    assert f"the library that was loaded is version {found}" in done.stderr
    assert "this program needs 0.2.0" in done.stderr
