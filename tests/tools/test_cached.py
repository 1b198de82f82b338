# SPDX-License-Identifier: Apache-2.0
"""Compilations through ccache are found by another clone, also behind a precompiled header."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "cmake/cached.sh"
CCACHE, COMPILER = shutil.which("ccache"), shutil.which("g++")

if CCACHE is None or COMPILER is None:
    pytest.skip("tools/setup --dev installs ccache", allow_module_level=True)


class Clone:
    def __init__(self, folder: Path, cache: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.environment = {**os.environ, "CCACHE_DIR": str(cache)}
        self.header = folder / "cmake_pch.hxx"
        self.header.write_text("#include <vector>\n")
        (folder / "cmake_pch.hxx.cxx").write_text("")
        (folder / "source.cpp").write_text("std::vector<int> numbers() { return {1}; }\n")

    def compile(self, *words: str) -> None:
        """Compiles as CMake does, by a command that names files by their full path."""
        assert CCACHE is not None and COMPILER is not None
        command = ["sh", str(SCRIPT), str(self.folder), CCACHE, COMPILER, "-fpch-preprocess"]
        command += ["-include", str(self.header), *words]
        subprocess.run(command, cwd=self.folder, env=self.environment, check=True)

    def compile_header(self) -> None:
        made, dependencies = f"{self.header}.gch", f"{self.header}.d"
        options = ["-x", "c++-header", "-MD", "-MT", "header", "-MF", dependencies, "-o", made]
        self.compile(*options, "-c", f"{self.header}.cxx")

    def compile_source(self) -> None:
        self.compile("-o", f"{self.folder}/source.o", "-c", f"{self.folder}/source.cpp")

    def counts(self) -> dict[str, str]:
        shown = subprocess.run(
            ["ccache", "--print-stats"],
            env=self.environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return dict(line.split("\t")[:2] for line in shown.stdout.splitlines())


def test_another_clone_finds_what_a_differing_precompiled_header_was_used_for(
    tmp_path: Path,
) -> None:
    one, two = (Clone(tmp_path / name, tmp_path / "cache") for name in ("one", "two"))
    one.compile_header()
    one.compile_source()
    two.compile_header()
    header = Path(f"{two.header}.gch")
    header.write_bytes(header.read_bytes() + b" ")  # GCC's bytes differ from run to run
    two.compile_source()
    assert two.counts()["direct_cache_hit"] == "2"
    assert (two.folder / "source.o").read_bytes() == (one.folder / "source.o").read_bytes()


def test_a_changed_header_is_compiled_anew(tmp_path: Path) -> None:
    one, two = (Clone(tmp_path / name, tmp_path / "cache") for name in ("one", "two"))
    two.header.write_text("#include <vector>\n#include <map>\n")
    for clone in (one, two):
        clone.compile_header()
        clone.compile_source()
    assert two.counts()["direct_cache_hit"] == "0"
