# SPDX-License-Identifier: Apache-2.0
"""Each public header compiles alone, twice, as C99 and as C++17, without a warning; so does what
the headers are used with: initializers, handles and callbacks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
HEADERS = sorted(path.name for path in (ROOT / "include" / "meron").glob("*.h"))
API = json.loads((ROOT / "capi" / "api.json").read_text())

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-Wconversion", "-Wundef"]
LANGUAGES = {
    "c99": ["-x", "c", "-std=c99", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wc++-compat"],
    "c++17": ["-x", "c++", "-std=c++17", "-Wnon-virtual-dtor", "-Wextra-semi", "-Wold-style-cast"],
}


def compilers() -> Iterator[tuple[str, str]]:
    """(compiler, language): this build's compilers, and gcc and clang where they are installed."""
    c = {os.environ.get("CC", "cc"), "gcc", "clang-14", "clang"}
    cxx = {os.environ.get("CXX", "c++"), "g++", "clang++-14", "clang++"}
    for names, language in ((c, "c99"), (cxx, "c++17")):
        found = {os.path.realpath(path): path for path in map(shutil.which, names) if path}
        yield from ((path, language) for path in sorted(found.values()))


CASES = list(compilers())


def sized(struct: dict[str, Any]) -> bool:
    return bool(struct["fields"][0]["name"] == "struct_size")


def accepts(compiler: str, language: str, source: str, *flags: str) -> None:
    command = [compiler, *LANGUAGES[language], *STRICT, *flags, "-fsyntax-only", "-"]
    command[1:1] = ["-I", str(ROOT / "include")]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(("compiler", "language"), CASES)
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_needs_no_other(compiler: str, language: str, header: str) -> None:
    accepts(compiler, language, f'#include "meron/{header}"\n' * 2)


@pytest.mark.parametrize(("compiler", "language"), CASES)
def test_initializers_and_callbacks(compiler: str, language: str) -> None:
    lines = ["#include <meron/meron.h>"]
    for struct in API["structs"]:
        for init in [*filter(None, [struct["init"]]), *struct["inits"]]:
            declared = f"{struct['name']} of_{init['macro']}"
            lines += [f"extern {declared};", f"{declared} = {init['macro']};"]
    for handle in API["handles"]:
        lines.append(f"extern {handle['name']} null_{handle['name']};")
        lines.append(f"{handle['name']} null_{handle['name']} = {{0}};")
    lines += [
        "static void write(void *user, meron_log_level level, const char *text, size_t length) {",
        "  (void)user; (void)level; (void)text; (void)length;",
        "}",
        "static int32_t stop(void *user) { (void)user; return 0; }",
        "int use(void);",
        "int use(void) {",
        "  meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;",
        "  options.log = write;",
        "  options.should_stop = stop;",
        "  return options.rank;",
        "}",
    ]
    accepts(compiler, language, "\n".join(lines) + "\n")


@pytest.mark.parametrize("struct", [s["name"] for s in API["structs"] if sized(s)])
def test_every_struct_with_a_size_has_an_initial_value(struct: str) -> None:
    init = next(s["init"] for s in API["structs"] if s["name"] == struct)
    assert init["macro"] == f"{struct.upper()}_INIT"
    assert init["values"]["struct_size"] == "sizeof"


C_COMPILERS = [compiler for compiler, language in CASES if language == "c99"]
CXX_COMPILERS = [compiler for compiler, language in CASES if language == "c++17"]


def refuses(compiler: str, body: str, reason: str) -> None:
    source = f'#include "meron/meron.h"\nvoid f(meron_unit);\nvoid f(meron_unit u) {{ {body} }}\n'
    command = [compiler, *LANGUAGES["c99"], *STRICT, "-I", str(ROOT / "include")]
    command += ["-c", "-o", os.devnull, "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode != 0
    assert reason in done.stderr


@pytest.mark.parametrize("compiler", C_COMPILERS)
def test_an_ignored_status_is_a_warning(compiler: str) -> None:
    refuses(compiler, "meron_reduce_discard(u, 0);", "unused-result")


@pytest.mark.parametrize("compiler", C_COMPILERS)
def test_handles_of_different_kinds_do_not_mix(compiler: str) -> None:
    refuses(compiler, "meron_param_release(u, 0);", "incompatible type")


NEW = {"c++17": ["-x", "c++", "-std=c++17"], "c2x": ["-x", "c", "-std=c2x"]}


@pytest.mark.parametrize("language", NEW)
@pytest.mark.parametrize("compiler", sorted({*C_COMPILERS, *CXX_COMPILERS}))
def test_a_cast_to_void_ignores_a_status_on_purpose(compiler: str, language: str) -> None:
    if not supports(compiler, NEW[language]):
        pytest.skip(f"{compiler} has no {language}")
    start = '#include "meron/meron.h"\nvoid f(meron_unit);\nvoid f(meron_unit u) { '
    command = [compiler, *NEW[language], *STRICT, "-I", str(ROOT / "include")]
    command += ["-c", "-o", os.devnull, "-"]
    for call, warning in (("(void)meron_reduce_discard", ""), ("meron_reduce_discard", "unused")):
        done = subprocess.run(
            command, input=f"{start}{call}(u, 0); }}\n", capture_output=True, text=True
        )
        assert done.returncode == (1 if warning else 0), done.stderr
        assert warning in done.stderr


def supports(compiler: str, language: list[str]) -> bool:
    command = [compiler, *language, "-fsyntax-only", "-"]
    return subprocess.run(command, input="", capture_output=True, text=True).returncode == 0


@pytest.mark.parametrize("compiler", CXX_COMPILERS)
def test_the_cpp_headers_name_the_standard_that_they_need(compiler: str) -> None:
    command = [compiler, "-x", "c++", "-std=c++14", "-I", str(ROOT / "include"), "-fsyntax-only"]
    done = subprocess.run(
        [*command, "-"], input='#include "meron/meron.hpp"\n', capture_output=True, text=True
    )
    assert done.returncode != 0
    first = done.stderr.partition("error: ")[2].splitlines()[0]
    assert "needs C++17: compile with -std=c++17" in first
