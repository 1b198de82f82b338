# SPDX-License-Identifier: Apache-2.0
"""A plain function of the C interface costs at most eight files by hand; the rest is generated."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import touched

ROOT = Path(__file__).parents[2]
MOST = 8
# What adding meron_plan_entries takes, beside the header and the notes that the test below changes.
BY_HAND = (
    "include/meron/plan.h",
    "capi/annotations.json",
    "capi/plan.cpp",
    "tests/capi/misuse/misuses_of_handles.cpp",
    "tests/capi/misuse/misuses_of_pointers.cpp",
    "tests/conformance/cases.txt",
    "CHANGELOG.md",
)
DECLARATION = """\

/**
 * The number of entries of the plan.
 * Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_plan_entries(uint32_t *out, meron_plan plan,
                                                          meron_error **err);
"""
# Where each language has it, and each runner of the conformance cases.
GENERATED = {
    "capi/symbols.txt": "meron_plan_entries",
    "docs/reference/plan.md": "meron_plan_entries",
    "bindings/python/meron/_cdef.py": "meron_plan_entries",
    "bindings/python/meron/_methods.py": "def entries(self) -> int:",
    "include/meron/cpp/methods.hpp": "uint32_t entries() const",
    "bindings/rust/meron-sys/src/generated.rs": "pub fn meron_plan_entries",
    "bindings/rust/meron/src/methods.rs": "pub fn entries(&self) -> Result<u32>",
    "bindings/julia/src/generated.jl": "meron_plan_entries",
    "bindings/julia/src/methods.jl": "function entries(plan::Plan)",
    "bindings/swig/meron.i": "meron_plan_entries",
    "bindings/swig/java/org/meron/PlanMethods.java": "public int entries()",
    "tests/capi/contract/functions.h": "FUNCTION(meron_plan_entries),",
    "tests/conformance/c/calls.cpp": "meron_plan_entries",
    "tests/conformance/python/calls.py": "it.entries()",
    "tests/conformance/rust/src/calls.rs": "it.entries()",
    "tests/conformance/julia/calls.jl": "Meron.entries(it)",
    "tests/conformance/java/Calls.java": ".entries()",
}


pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")


def test_a_plain_function_that_there_is() -> None:
    found = touched.sort(touched.mentioning("meron_plan_table"))
    assert len(found.by_hand) <= MOST, "\n".join(found.by_hand)
    assert {"capi/plan.cpp", "include/meron/plan.h"} <= set(found.by_hand)
    assert set(GENERATED) <= set(found.generated)


def headers_copied(folder: Path) -> Path:
    shutil.copytree(ROOT / "include", folder / "include")
    (folder / "capi").mkdir()
    shutil.copy(ROOT / "capi" / "annotations.json", folder / "capi")
    return folder / "include" / "meron"


def generate(folder: Path) -> None:
    command = [sys.executable, "-B", ROOT / "tools/generate/generate.py", "--root", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_plain_function_that_is_added(tmp_path: Path) -> None:
    assert len(BY_HAND) <= MOST
    for path in BY_HAND:
        assert (ROOT / path).exists(), path
    header = headers_copied(tmp_path) / "plan.h"
    text = header.read_text()
    end = text.index("\n\n", text.index("meron_plan_table(char **out"))
    header.write_text(f"{text[:end]}\n{DECLARATION}{text[end:]}")
    path = tmp_path / "capi" / "annotations.json"
    notes = json.loads(path.read_text())
    notes["functions"]["meron_plan_entries"] = {"method": {}}
    path.write_text(json.dumps(notes))

    generate(tmp_path)
    for name, line in GENERATED.items():
        assert line in (tmp_path / name).read_text(), name


# What a counter is called where it is generated.
COUNTER = {
    "bindings/python/meron/_values.py": "    drilled_bytes: int",
    "bindings/rust/meron/src/values/context.rs": "drilled_bytes: raw.drilled_bytes",
    "bindings/swig/java/org/meron/Stats.java": "drilledBytes = from.getDrilled_bytes();",
    "bindings/julia/src/generated.jl": "    drilled_bytes::UInt64",
    "tests/conformance/c/counters.cpp": "&meron_stats::drilled_bytes",
    "tests/conformance/rust/src/counters.rs": "stats.drilled_bytes",
}


def test_a_counter_that_is_added(tmp_path: Path) -> None:
    header = headers_copied(tmp_path) / "context.h"
    text = header.read_text()
    field = "  uint64_t drilled_bytes; /* of the drill */\n"
    text = text.replace("} meron_stats;", f"{field}}} meron_stats;")
    header.write_text(text.replace("SIZEOF_U32(meron_stats),", "SIZEOF_U32(meron_stats), 0,"))
    generate(tmp_path)
    for name, line in COUNTER.items():
        assert line in (tmp_path / name).read_text(), name


# The same of an update rule.
DRILL_INIT = """\
/* Defaults of the drill. */
#define MERON_OPTIMIZER_DRILL_INIT \\
  { MERON_SIZEOF_U32(meron_optimizer_options), MERON_OPTIMIZER_DRILL, 0.5, 0.9, 0.999, 1e-8, \\
    0.01, 0.0, 0.0, 0, 6, 0.0 }
"""
RULE = {
    "bindings/python/meron/_optimizing.py": "    def drill(",
    "include/meron/cpp/values.hpp": "struct Drill {",
    "include/meron/cpp/rules.hpp": "inline Optimizer drill(",
    "bindings/rust/meron/src/values/optimizer.rs": "pub struct Drill {",
    "bindings/rust/meron/src/rules.rs": "pub fn drill(&self",
    "bindings/julia/src/rules.jl": "drill(units; options...)",
    "bindings/swig/java/org/meron/Drill.java": "super(Abi.MERON_OPTIMIZER_DRILL);",
}


def test_an_update_rule_that_is_added(tmp_path: Path) -> None:
    header = headers_copied(tmp_path) / "optimizer.h"
    text = header.read_text()
    first = "enum {\n"
    assert text.count(first) == 2 and text.index(first) < text.index("MERON_OPTIMIZER_ADAMW")
    text = text.replace(first, f"{first}  MERON_OPTIMIZER_DRILL = 5, /* of the drill */\n", 1)
    after = "/* Initial value of a meron_optimizer_options"
    assert after in text
    header.write_text(text.replace(after, f"{DRILL_INIT}\n{after}"))
    path = tmp_path / "capi" / "annotations.json"
    notes = json.loads(path.read_text())
    notes["rules"]["MERON_OPTIMIZER_DRILL"] = {
        "name": "Drill", "doc": "how the drill updates", "fields": ["learning_rate"]
    }  # fmt: skip
    path.write_text(json.dumps(notes))
    generate(tmp_path)
    for name, line in RULE.items():
        assert line in (tmp_path / name).read_text(), name


@pytest.mark.parametrize("name", ["meron_gone", "MERON_GONE"])
def test_a_name_that_nothing_mentions(name: str) -> None:
    paths = touched.mentioning(name)
    assert [path for path in paths if not path.startswith("tests/generated/")] == []


def test_what_a_release_has_recorded_does_not_count() -> None:
    found = touched.sort(["capi/abi/0.2/include/meron/plan.h", "capi/api.json", "capi/plan.cpp"])
    assert (found.by_hand, found.generated) == (["capi/plan.cpp"], ["capi/api.json"])
