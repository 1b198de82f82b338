# SPDX-License-Identifier: Apache-2.0
"""Finding and loading the library, and saying why not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import run_python

import meron

TRY = """
try:
    import meron
    print("loaded", meron.library_path)
except ImportError as error:
    assert type(error).__name__ == "LoadError"
    print(error)
"""


def attempt(library: object) -> str:
    done = run_python(TRY, MERON_LIBRARY=str(library))
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(path: Path, source: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)],
        input=source,
        text=True,
        check=True,
    )
    return path


def test_a_file_or_its_folder() -> None:
    path = Path(meron.library_path)
    assert path.samefile(path.parent / "libmeron.so")
    assert attempt(path) == f"loaded {path}\n"
    assert attempt(path.parent) == f"loaded {path.parent / 'libmeron.so'}\n"


def test_a_missing_file_lists_the_candidates_and_the_remedy(tmp_path: Path) -> None:
    text = attempt(tmp_path / "none.so")
    assert f"{tmp_path}/none.so (MERON_LIBRARY): no such file" in text
    assert "set MERON_LIBRARY" in text.replace("Set", "set")
    assert "cmake --preset release" in text


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "libmeron.so"
    path.write_text("not a library")
    text = attempt(tmp_path)
    assert f"{path} (MERON_LIBRARY): " in text
    assert "file too short" in text or "invalid ELF header" in text


def test_a_library_of_something_else(tmp_path: Path) -> None:
    path = build(tmp_path / "other.so", "int other(void) { return 1; }")
    assert "is no libmeron" in attempt(path)


@pytest.mark.parametrize(
    ("version", "loads"),
    [(0x000200, True), (0x000209, True), (0x000300, False), (0x000100, False), (0x010200, False)],
)
def test_versions(tmp_path: Path, version: int, loads: bool) -> None:
    """Needed is 0.2.0: before 1.0 the minor number must be equal, and not older."""
    source = f"""
    unsigned meron_version(void) {{ return {version}u; }}
    const char *meron_version_string(void) {{ return "9.8.7"; }}
    """
    path = build(tmp_path / "versioned.so", source)
    done = run_python(
        f"""
from cffi import FFI
from meron import _library
ffi = FFI()
ffi.cdef(_library.CDEF)
try:
    _library.check_version(ffi, ffi.dlopen({str(path)!r}), "the path")
    print("fits")
except _library.LoadError as error:
    print(error)
"""
    )
    assert done.returncode == 0, done.stderr
    if loads:
        assert done.stdout == "fits\n"
    else:
        assert "the path is version 9.8.7" in done.stdout
        assert "needs 0.2.0" in done.stdout


def test_every_place_is_listed_when_none_has_it(tmp_path: Path) -> None:
    package = tmp_path / "bindings" / "python" / "meron"
    shutil.copytree(Path(meron.__file__).parent, package)
    done = run_python(
        TRY, MERON_LIBRARY="", PYTHONPATH=str(package.parent), LD_LIBRARY_PATH=str(tmp_path)
    )
    for place in (
        f"{package}/libmeron.so (beside the package): no such file",
        f"{tmp_path}/build/release/capi/libmeron.so (the build tree): no such file",
        "libmeron.so.0.2 (the system's loader): ",
        "libmeron.so (the system's loader): ",
    ):
        assert place in done.stdout


@pytest.mark.parametrize("place", ["bindings/python/meron", "build/release/capi"])
def test_places_without_a_word(tmp_path: Path, place: str) -> None:
    package = tmp_path / "bindings" / "python" / "meron"
    shutil.copytree(Path(meron.__file__).parent, package)
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / "libmeron.so").symlink_to(meron.library_path)
    done = run_python(TRY, MERON_LIBRARY="", PYTHONPATH=str(package.parent))
    assert done.stdout == f"loaded {tmp_path / place / 'libmeron.so'}\n"


def test_system_info() -> None:
    info = meron.system_info()
    assert info["version"] == meron.version == meron.__version__
    assert "transports" in info
