# SPDX-License-Identifier: Apache-2.0
"""Gathers what Meron is built with into one folder that can be moved to a machine without it.

The folder is a prefix as CMAKE_PREFIX_PATH has them: include/, lib/ and lib/cmake/, with sources of
GoogleTest in src/ and Python packages in python/. The distribution's own CMake files have paths
of this machine, so the pack has files of its own, with paths relative to themselves."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACK = ROOT / ".gpu-pack"
FORMAT = 1
MOST_BYTES = 60_000_000

# The versions of CPython that the pack has compiled packages for.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Imports of the package meron: compiled ones, and plain Python.
COMPILED, PLAIN = "cffi", "pycparser"

HEAD = """\
# Made by tools/gpu-check --pack. All paths are relative to the folder of this file.
get_filename_component(prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
"""

# Headers alone: a target that says where they are.
HEADERS = """\
if(NOT TARGET @target@)
  add_library(@target@ INTERFACE IMPORTED)
  set_target_properties(@target@ PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include"
                                            INTERFACE_COMPILE_DEFINITIONS "@definitions@")
endif()
"""

# Compiled where it is used, by the compiler that is used.
GOOGLETEST = """\
if(NOT TARGET GTest::gtest)
  set(source "${prefix}/src/googletest")
  add_library(packed_gtest STATIC EXCLUDE_FROM_ALL "${source}/googletest/src/gtest-all.cc"
                                                   "${source}/googlemock/src/gmock-all.cc")
  target_include_directories(packed_gtest SYSTEM
    PUBLIC "${source}/googletest/include" "${source}/googlemock/include"
    PRIVATE "${source}/googletest" "${source}/googlemock")
  find_package(Threads REQUIRED)
  target_link_libraries(packed_gtest PUBLIC Threads::Threads)
  add_library(packed_gtest_main STATIC EXCLUDE_FROM_ALL "${source}/googletest/src/gtest_main.cc")
  target_link_libraries(packed_gtest_main PUBLIC packed_gtest)
  foreach(target packed_gtest packed_gtest_main)
    target_compile_options(${target} PRIVATE -w)
  endforeach()
  add_library(GTest::gtest ALIAS packed_gtest)
  add_library(GTest::gmock ALIAS packed_gtest)
  add_library(GTest::gtest_main ALIAS packed_gtest_main)
endif()
"""


class PackError(Exception):
    """Something that belongs into the pack is not on this machine; the message says what."""


@dataclass(frozen=True)
class Library:
    package: str  # Debian's
    headers: tuple[str, ...] = ()
    archive: str = ""
    sources: tuple[str, ...] = ()
    cmake: str = ""  # the name that find_package() looks for
    config: str = ""


def header_library(package: str, folder: str, cmake: str, *targets: tuple[str, str]) -> Library:
    """`targets`: each with what its users are compiled with."""
    config = "".join(
        HEADERS.replace("@target@", target).replace("@definitions@", definitions)
        for target, definitions in targets
    )
    return Library(package, headers=(folder,), cmake=cmake, config=config)


LIBRARIES = (
    Library("libhwy-dev", headers=("hwy",)),
    Library("liburing-dev", headers=("liburing.h", "liburing"), archive="liburing.a"),
    header_library(
        "nlohmann-json3-dev",
        "nlohmann",
        "nlohmann_json",
        ("nlohmann_json::nlohmann_json", ""),
    ),
    header_library(
        "libfmt-dev",
        "fmt",
        "fmt",
        ("fmt::fmt-header-only", "FMT_HEADER_ONLY=1"),
        ("fmt::fmt", "FMT_HEADER_ONLY=1"),
    ),
    header_library("libcli11-dev", "CLI", "CLI11", ("CLI11::CLI11", "")),
    Library(
        "libgtest-dev",
        sources=(
            *("googletest/googletest/include", "googletest/googletest/src"),
            *("googletest/googlemock/include", "googletest/googlemock/src"),
        ),
        cmake="GTest",
        config=GOOGLETEST,
    ),
)


def prefixes() -> list[Path]:
    return [Path("/usr/local"), Path("/usr")]


def library_folders() -> list[str]:
    """Below a prefix, the most specific first."""
    return [f"lib/{sysconfig.get_config_var('MULTIARCH')}", "lib64", "lib"]


def find(package: str, name: str, folders: Sequence[str]) -> Path:
    for prefix in prefixes():
        for folder in folders:
            path = prefix / folder / name
            if path.exists():
                return path
    raise PackError(f"{name} of {package} is not here: tools/setup installs it")


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def add_library(library: Library, prefix: Path) -> None:
    for name in library.headers:
        copy(find(library.package, name, ["include"]), prefix / "include" / name)
    if library.archive:
        name = library.archive
        copy(find(library.package, name, library_folders()), prefix / "lib" / name)
    for name in library.sources:
        copy(find(library.package, name, ["src"]), prefix / "src" / name)
    if library.cmake:
        config = prefix / "lib" / "cmake" / library.cmake / f"{library.cmake}Config.cmake"
        config.parent.mkdir(parents=True)
        config.write_text(HEAD + library.config)


# ---- Python packages ----------------------------------------------------------------------------


def pinned(name: str) -> str:
    text = (ROOT / "tools" / "requirements.txt").read_text()
    found = re.search(rf"^{name}==\S+", text, re.MULTILINE)
    return found[0] if found else name


def add_wheel(requirement: str, target: Path, *options: str) -> None:
    with tempfile.TemporaryDirectory(prefix="meron-gpu-pack-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", folder]
        done = subprocess.run([*command, *options, requirement], capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            said = done.stderr.strip().splitlines() or ["pip gave no wheel"]
            raise PackError(f"{requirement}: {said[-1]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(target)


def python_folder(prefix: Path, version: str) -> Path:
    return prefix / "python" / version


def add_python_packages(prefix: Path) -> None:
    machine = platform.machine()
    for version in PYTHONS:
        folder = python_folder(prefix, version)
        platforms = [f"--platform=manylinux{tag}_{machine}" for tag in ("2014", "_2_17", "_2_28")]
        add_wheel(
            pinned(COMPILED),
            folder,
            *platforms,
            f"--python-version={version}",
            "--implementation=cp",
        )
        add_wheel(pinned(PLAIN), folder)


# ---- The pack -----------------------------------------------------------------------------------


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def make(target: Path = PACK, python: bool = True) -> list[str]:
    """Makes the pack, or leaves the one that is there as it is and raises. Returns what a user
    should know of it, line by line."""
    notes = []
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".gpu-pack-", dir=target.parent))
    try:
        fresh.chmod(0o755)
        for library in LIBRARIES:
            add_library(library, fresh)
        if python:
            try:
                add_python_packages(fresh)
            except PackError as error:
                shutil.rmtree(fresh / "python", ignore_errors=True)
                notes.append(f"without Python's cffi, which the other machine then needs: {error}")
        facts = {"format": FORMAT, "machine": platform.machine()}
        (fresh / "pack.json").write_text(json.dumps(facts) + "\n")
        if size_of(fresh) > MOST_BYTES:
            raise PackError(f"the pack would have more than {MOST_BYTES // 10**6} MB")
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return [f"{size_of(target) / 1e6:.1f} MB in {target}", *notes]


def fault_of(pack: Path = PACK) -> str | None:
    """Why the pack cannot be used here, or None: it can."""
    try:
        facts = json.loads((pack / "pack.json").read_text())
    except (OSError, ValueError):
        return f"there is no {pack.name}"
    if facts.get("format") != FORMAT:
        return f"{pack.name} was made by another version of tools/gpu-check"
    if facts.get("machine") != platform.machine():
        return f"{pack.name} was made on {facts.get('machine')}, and this is {platform.machine()}"
    return None
