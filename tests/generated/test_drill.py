# SPDX-License-Identifier: Apache-2.0
"""A function with options and a future is added to a copy of the headers: what is generated has it
in every language, and what is left to write by hand is eight files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import notes
from headers import read
from model import Api
from plain import NotPlain, method_of

ROOT = Path(__file__).parents[2]
MOST = 8
BY_HAND = (
    "include/meron/reduce.h",
    "capi/annotations.json",
    "capi/reduce.cpp",
    "tests/capi/misuse/misuses_of_handles.cpp",
    "tests/capi/misuse/misuses_of_pointers.cpp",
    "tests/capi/misuse/misuses_of_structs.cpp",
    "tests/conformance/cases.txt",
    "CHANGELOG.md",
)
DECLARATIONS = """\

/* Options of a rinse. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_rinse_options) */
  meron_reduce_op op;   /* how ranks agree */
  uint32_t gently;      /* 1: without soap */
  uint32_t reserved_0;  /* must be 0 */
  double strength;      /* 0 to 1 */
  uint64_t most_bytes;  /* of water */
  int64_t timeout_ns;   /* of the rinse; 0: the context's */
  void *stream;         /* after the work of this stream; NULL: its default stream */
} meron_rinse_options;

/* Initial value of a meron_rinse_options. */
#define MERON_RINSE_OPTIONS_INIT \\
  { MERON_SIZEOF_U32(meron_rinse_options), MERON_REDUCE_OP_MEAN, 1, 0, 0.5, \\
    18446744073709551615u, 0, NULL }

/**
 * Fills the first `struct_size` bytes of *options with the initial value.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_rinse_options_init(meron_rinse_options *options,
                                                                size_t struct_size,
                                                                meron_error **err);

/**
 * Begins to rinse a unit.
 * @param out      receives the future.
 * @param factor   of the water.
 * @param label    NULL or text for people.
 * @param options  NULL for the defaults.
 * Ownership: the caller releases *out. Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_unit_rinse_begin(
    meron_future *out, meron_unit unit, double factor, const char *label,
    const meron_rinse_options *options, meron_error **err);

/**
 * The water that a unit has.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_unit_water(double *out, meron_unit unit,
                                                        meron_error **err);

/**
 * Changes the soap of a unit.
 * @param op       how it mixes.
 * @param amount   of soap.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_unit_mix(meron_unit unit, meron_reduce_op op,
                                                      uint32_t amount, meron_error **err);

/**
 * The soap that a unit has.
 * Ownership: borrowed from the unit. Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_unit_soap(const char **out, meron_unit unit,
                                                       meron_error **err);
"""
NOTES: dict[str, dict[str, Any]] = {
    "options": {
        "meron_rinse_options": {
            "types": {"rust": "RinseOptions", "cpp": "RinseOptions", "java": "RinseOptions"},
            "flags": ["gently"],
        }
    },
    "functions": {
        "meron_unit_rinse_begin": {
            "nullable": ["label", "options"],
            "method": {"julia": "rinse_begin!"},
        },
        "meron_unit_water": {"method": {}},
        "meron_unit_mix": {"method": {"julia": "mix!"}},
        "meron_unit_soap": {"method": {}},
    },
}
JAVA = "bindings/swig/java/org/meron"
# By file: lines of it, without regard to blanks.
GENERATED = {
    "capi/symbols.txt": ["meron_unit_rinse_begin", "meron_rinse_options_init"],
    "capi/field_ends.h": ["MERON_FIELD_END(meron_rinse_options, stream)"],
    "docs/reference/reduce.md": ["meron_unit_rinse_begin", "of the water"],
    "bindings/python/meron/_cdef.py": ["meron_unit_rinse_begin"],
    "bindings/python/meron/_methods.py": [
        """def rinse_begin(
            self,
            factor: float,
            label: str | None = None,
            *,
            op: str = "mean",
            gently: bool = True,
            strength: float = 0.5,
            most_bytes: int = (1 << 64) - 1,
            timeout: float | None = None,
            stream: int = 0,
        ) -> Future:
            \"\"\"Begins to rinse a unit.""",
        "`factor`: of the water.",
        "`gently`: 1: without soap.",
        'options.op = code_of(REDUCE_OPS, op, "op")',
        "options.gently = bool(gently)",
        "options.timeout_ns = max(nanoseconds(timeout), 1)",
        "options.stream = stream_pointer(stream)",
        "return begin(",
        '-> None: """As `rinse_begin`, and waits for its end.',
        "stream=stream",
        "def water(self) -> float:",
        "def soap(self) -> str:",
        "def mix(self, op: str, amount: int) -> None:",
        'code_of(REDUCE_OPS, op, "op"),',
    ],
    "include/meron/cpp/values.hpp": ["struct RinseOptions {"],
    "include/meron/cpp/methods.hpp": [
        "Begins to rinse a unit.",
        "[[nodiscard]] Future rinse_begin(double factor, const Text& label = nullptr,"
        " const RinseOptions& options = {}) const {",
        "void rinse(double factor, const Text& label = nullptr,"
        " const RinseOptions& options = {}) const { rinse_begin(factor, label, options).wait(); }",
        "double water() const {",
        "void mix(ReduceOp op, uint32_t amount) const {",
    ],
    "bindings/rust/meron-sys/src/generated.rs": ["pub fn meron_unit_rinse_begin"],
    "bindings/rust/meron/src/values/reduce.rs": ["pub struct RinseOptions {"],
    "bindings/rust/meron/src/methods.rs": [
        "/// Begins to rinse a unit.",
        "pub fn rinse_begin(&self, factor: f64, label: Option<&str>, options: &RinseOptions)"
        " -> Result<Operation> {",
        "pub fn rinse(&self, factor: f64, label: Option<&str>, options: &RinseOptions)"
        " -> Result<()> { self.rinse_begin(factor, label, options)?.wait() }",
        "pub fn soap(&self) -> Result<String> {",
        "copy_text(|out, err| unsafe {",
        "pub fn mix(&self, op: ReduceOp, amount: u32) -> Result<()> {",
    ],
    "bindings/julia/src/methods.jl": [
        "export rinse_begin!",
        "Begins to rinse a unit.",
        """function rinse_begin!(unit::Unit, factor, label = nothing;
            op = :mean,
            gently = true,
            strength = 0.5,
            most_bytes = typemax(UInt64),
            timeout = nothing,
            stream = C_NULL,
        )""",
        "function mix!(unit::Unit, op, amount)",
        "rinse!(unit::Unit, factor, label = nothing; options...) ="
        " finish(rinse_begin!(unit, factor, label; options...))",
    ],
    "bindings/swig/meron.i": ["meron_unit_rinse_begin", "inline double meron_unit_water"],
    f"{JAVA}/RinseOptions.java": [
        "public final class RinseOptions {",
        "long unitRinseBegin(long unit, double factor, String label) {",
    ],
    f"{JAVA}/UnitMethods.java": [
        "Begins to rinse a unit.",
        "public Operation rinseBegin(double factor, String label, RinseOptions options) {",
        "public void rinse(double factor, String label, RinseOptions options) {",
        "public Operation rinseBegin(double factor, String label) {",
        "public double water() {",
        "public String soap() {",
        "public void mix(ReduceOp op, int amount) {",
    ],
    "tests/conformance/c/calls.cpp": [
        "meron_rinse_options options = MERON_RINSE_OPTIONS_INIT;",
        'one_of(statement, "op", {{"sum", MERON_REDUCE_OP_SUM}, {"mean", MERON_REDUCE_OP_MEAN},'
        '{"max", MERON_REDUCE_OP_MAX}, {"min", MERON_REDUCE_OP_MIN}})',
        "finish_or_keep(session, statement, out);",
    ],
    "tests/conformance/python/calls.py": [
        '"meron_unit_rinse_begin": lambda it, s: it.rinse_begin(',
        "**given(s, op=str, gently=flag, strength=float, most_bytes=int, timeout=float),",
    ],
    "tests/conformance/rust/src/calls.rs": [
        '("meron_unit_rinse_begin", Object::Unit(it)) => {',
        'Some("sum") => ReduceOp::Sum,',
    ],
    "tests/conformance/julia/calls.jl": ["Meron.rinse_begin!(it, "],
    "tests/conformance/java/Calls.java": [
        'case "meron_unit_rinse_begin": {',
        "final RinseOptions options = new RinseOptions();",
    ],
}


def squeezed(text: str) -> str:
    """Without blanks, line breaks and the signs that continue a comment."""
    return "".join(text.replace("\n     *", " ").replace("\n  //", " ").split())


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the headers, the new declarations, and everything generated from them."""
    folder = tmp_path_factory.mktemp("drilled")
    shutil.copytree(ROOT / "include", folder / "include")
    header = folder / "include" / "meron" / "reduce.h"
    text = header.read_text()
    end = text.rindex("\nMERON_END_DECLS")
    header.write_text(text[:end] + DECLARATIONS + text[end:])
    known = json.loads((ROOT / "capi" / "annotations.json").read_text())
    for kind, some in NOTES.items():
        known[kind].update(some)
    (folder / "capi").mkdir()
    (folder / "capi" / "annotations.json").write_text(json.dumps(known))
    command = [sys.executable, "-B", ROOT / "tools/generate/generate.py", "--root", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def api() -> Api:
    return read(ROOT / "include")[0]


@pytest.mark.parametrize("name", GENERATED)
def test_what_is_generated_has_it(drilled: Path, name: str) -> None:
    text = squeezed((drilled / name).read_text())
    for line in GENERATED[name]:
        assert squeezed(line) in text, line


def test_few_files_are_left_to_write() -> None:
    assert len(BY_HAND) <= MOST
    for path in BY_HAND:
        assert (ROOT / path).exists(), path
    assert not set(BY_HAND) & set(GENERATED)


def test_python_has_correct_syntax(drilled: Path) -> None:
    for name in ("bindings/python/meron/_methods.py", "tests/conformance/python/calls.py"):
        compile((drilled / name).read_text(), name, "exec")


@pytest.mark.parametrize("source", ["meron/meron.hpp", "calls.cpp"])
def test_cxx_compiles(drilled: Path, source: str) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or pytest.skip("no C++ compiler")
    runner = "tests/conformance/c"
    use = "void use(const meron::Unit& unit) { unit.rinse(0.5, nullptr, {}); }\n"
    text = f"#include <{source}>\n" + (use if source.endswith(".hpp") else "")
    command = [*compiler.split(), "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    for folder in (drilled / "include", drilled / runner, ROOT / runner):
        command += ["-I", str(folder)]
    done = subprocess.run([*command, "-x", "c++", "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("meron_update_begin", "units is const meron_unit *"),
        ("meron_gather_view", "it hands out meron_view *"),
        ("meron_io_read_begin", "data is void *"),
        ("meron_plan_predict", "bytes is the length of a text"),
        ("meron_checkpoint_save_begin", "options is const meron_checkpoint_save_options *"),
    ],
)
def test_functions_that_are_not_plain(api: Api, function: str, reason: str) -> None:
    notes.apply(api, ROOT / "capi" / "annotations.json")
    found = next(item for item in api.functions if item.name == function)
    with pytest.raises(NotPlain) as caught:
        method_of(found, api)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("types", "reason"),
    [
        ({"rust": "ScheduleOptions", "cpp": "ScheduleOptions"}, "has no type for java"),
        ({}, "has no type for cpp"),
    ],
)
def test_options_without_a_type_are_refused(
    api: Api, tmp_path: Path, types: dict[str, str], reason: str
) -> None:
    known = json.loads((ROOT / "capi" / "annotations.json").read_text())
    known["options"]["meron_reduce_options"]["types"] = types
    known["functions"]["meron_reduce_finish_begin"]["method"] = {}
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(known))
    with pytest.raises(notes.AnnotationError, match=reason):
        notes.apply(api, path)
