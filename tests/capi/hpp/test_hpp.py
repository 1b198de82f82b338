# SPDX-License-Identifier: Apache-2.0
"""meron/meron.hpp compiles as C++17 without a warning under both compilers, each part alone, and
without exceptions; covers the whole C interface; and refuses what would dangle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INCLUDE = ROOT / "include"
PARTS = sorted(path.name for path in (INCLUDE / "meron" / "cpp").glob("*.hpp"))
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-Wconversion", "-Wundef"]
STRICT += ["-Wsign-conversion", "-Wnon-virtual-dtor", "-Wextra-semi", "-Wold-style-cast"]

# Without a counterpart: C++ starts from the INIT macros, and an Error has its call's status.
INITIAL_VALUES = "_init"
NOT_NEEDED = {"meron_error_code"}

COMPILER = os.environ.get("CXX", "c++")


def compilers() -> list[str]:
    """This build's compiler, and gcc and clang where they are installed."""
    names = {COMPILER, "g++", "clang++-14", "clang++"}
    found = {os.path.realpath(path): path for path in map(shutil.which, names) if path}
    return sorted(found.values())


def compile_(compiler: str, source: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [compiler, "-x", "c++", "-std=c++17", *STRICT, *flags, f"-I{INCLUDE}"]
    command += ["-fsyntax-only", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True)


def accepts(compiler: str, header: str, *flags: str) -> None:
    done = compile_(compiler, f'#include "meron/{header}"\n' * 2, *flags)
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


OWN = r"namespace detail \{.*?\n\}  // namespace detail"
CLASSES = r"^(?:class|struct|enum class) (?:MERON_CPP_SHARED )?(\w+)\b(?!;|::)"
FUNCTIONS = r"^(?:\[\[nodiscard\]\] )?(?:inline |template <.*>\n)[\w:<>&*\[\] ]+?[ &*](\w+)\("


def test_the_page_lists_all_classes_and_functions() -> None:
    page = (ROOT / "docs" / "bindings" / "cpp.md").read_text()
    listed = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", page))))
    names: set[str] = set()
    for part in PARTS:
        text = (INCLUDE / "meron" / "cpp" / part).read_text()
        text = re.sub(OWN, "", text, flags=re.DOTALL)
        names |= {*re.findall(CLASSES, text, re.M), *re.findall(FUNCTIONS, text, re.M)}
    assert {"Gather", "gather_into", "source", "Adopt", "Error"} <= names
    assert not names - listed


def test_refuses_what_would_dangle_and_takes_what_a_user_of_cpp20_tries() -> None:
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    source = Path(__file__).with_name("refused.cpp")
    command = [COMPILER, *flags, f"-I{INCLUDE}", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


IGNORED = """#include <meron/meron.hpp>
void f(meron::Context&, meron::Unit&, meron::Schedule&, meron::Future&);
void f(meron::Context&, meron::Unit& unit, meron::Schedule& schedule, meron::Future& future) {
  meron::gather(unit);
  meron::gather_copy(unit);
  meron::update(unit);
  meron::reduce_begin(unit);
  schedule.enter(0);
  future.poll();
  future.try_poll();
}
"""


def test_a_result_that_is_dropped_at_once_is_a_warning() -> None:
    done = compile_(COMPILER, IGNORED)
    lines = {int(line) for line in re.findall(r"<stdin>:(\d+):\d+: error: ignoring", done.stderr)}
    assert lines == set(range(4, 11)), done.stderr


def test_compiles_without_exceptions() -> None:
    accepts(COMPILER, "meron.hpp", "-fno-exceptions")


# Else a `catch` of one shared object misses an error of another, or its cause.
def test_shares_errors_between_shared_objects_that_hide_their_symbols() -> None:
    source = """#include <meron/meron.hpp>
void* address(bool fails);
void* address(bool fails) {
  if (fails) throw meron::Error(0, nullptr);
  return &meron::detail::thrown_by_callback();
}
"""
    command = [COMPILER, "-x", "c++", "-std=c++17", "-fvisibility=hidden", f"-I{INCLUDE}"]
    command += ["-S", "-o", "-", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for symbol in ("_ZTI", "_ZTS", "_ZTV"):
        assert re.search(rf"\.weak\s+{symbol}N5meron\S+5ErrorE\n", done.stdout)
    assert re.search(r"\.weak\s+_ZN5meron\S+thrown_by_callback", done.stdout)
    assert not re.search(r"\.hidden\s+_Z\S*(5ErrorE|thrown_by_callback)", done.stdout)
