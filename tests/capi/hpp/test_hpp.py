# SPDX-License-Identifier: Apache-2.0
"""meron/meron.hpp compiles as C++17 without a warning under both compilers, each part alone; covers
the whole C interface; and refuses what would dangle."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INCLUDE = ROOT / "include"
PARTS = sorted(path.name for path in (INCLUDE / "meron" / "cpp").glob("*.hpp"))
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-Wconversion", "-Wundef"]
STRICT += ["-Wsign-conversion", "-Wnon-virtual-dtor", "-Wextra-semi"]

# Without a counterpart: C++ starts from the INIT macros, and an Error has its call's status.
INITIAL_VALUES = "_init"
NOT_NEEDED = {"meron_error_code"}

COMPILER = os.environ.get("CXX", "c++")


def compilers() -> list[str]:
    """This build's compiler, and gcc and clang where they are installed."""
    names = {COMPILER, "g++", "clang++-14", "clang++"}
    found = {os.path.realpath(path): path for path in map(shutil.which, names) if path}
    return sorted(found.values())


def compile_(compiler: str, source: str) -> subprocess.CompletedProcess[str]:
    command = [compiler, "-x", "c++", "-std=c++17", *STRICT, f"-I{INCLUDE}", "-fsyntax-only", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True)


def accepts(compiler: str, header: str) -> None:
    done = compile_(compiler, f'#include "meron/{header}"\n' * 2)
    assert done.returncode == 0 and not done.stderr, f"{header}:\n{done.stderr}"


@pytest.mark.parametrize("compiler", compilers())
def test_every_compiler_takes_it_without_a_warning(compiler: str) -> None:
    accepts(compiler, "meron.hpp")


@pytest.mark.parametrize("part", PARTS)
def test_each_part_compiles_alone(part: str) -> None:
    accepts(COMPILER, f"cpp/{part}")


def test_every_function_has_a_counterpart() -> None:
    text = "".join((INCLUDE / "meron" / "cpp" / part).read_text() for part in PARTS)
    names = (ROOT / "capi" / "symbols.txt").read_text().split()
    missing = {name for name in names if name not in text and not name.endswith(INITIAL_VALUES)}
    assert missing == NOT_NEEDED


DANGLING = {
    "an object is copied": "meron::Unit copy = unit;",
    "a view of a gather that dies at once": "(void)meron::gather(unit).view(param);",
    "a span of a temporary": "meron::Span<float> span = std::vector<float>(3);",
    "a text from a number": "(void)context.param(1.5, {3});",
    "a lease that is dropped at once": "meron::gather(unit);",
    "a future that is dropped at once": "meron::reduce_begin(unit);",
    "a source of a type without a dtype": "(void)meron::source(param, std::vector<int>(3));",
}


@pytest.mark.parametrize("body", ["", *DANGLING.values()], ids=["nothing", *DANGLING])
def test_misuse_does_not_compile(body: str) -> None:
    source = (
        "#include <meron/meron.hpp>\n#include <vector>\n"
        "void f(meron::Context&, meron::Param&, meron::Unit&);\n"
        "void f(meron::Context& context, meron::Param& param, meron::Unit& unit) {\n"
        f"  (void)context; (void)param; (void)unit; {body}\n}}\n"
    )
    assert (compile_(COMPILER, source).returncode == 0) == (body == "")
