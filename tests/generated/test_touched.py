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
    "tests/conformance/c/calls.cpp": "meron_plan_entries",
    "tests/conformance/python/calls.py": "it.entries()",
    "tests/conformance/rust/src/calls.rs": "it.entries()",
    "tests/conformance/julia/calls.jl": "Meron.entries(it)",
    "tests/conformance/java/Calls.java": ".entries()",
}


def test_a_plain_function_that_there_is() -> None:
    found = touched.sort(touched.mentioning("meron_plan_table"))
    assert len(found.by_hand) <= MOST, "\n".join(found.by_hand)
    assert {"capi/plan.cpp", "include/meron/plan.h"} <= set(found.by_hand)
    assert set(GENERATED) <= set(found.generated)


def test_a_plain_function_that_is_added(tmp_path: Path) -> None:
    assert len(BY_HAND) <= MOST
    for path in BY_HAND:
        assert (ROOT / path).exists(), path
    shutil.copytree(ROOT / "include", tmp_path / "include")
    (tmp_path / "capi").mkdir()
    header = tmp_path / "include" / "meron" / "plan.h"
    text = header.read_text()
    end = text.index("\n\n", text.index("meron_plan_table(char **out"))
    header.write_text(f"{text[:end]}\n{DECLARATION}{text[end:]}")
    notes = json.loads((ROOT / "capi" / "annotations.json").read_text())
    notes["functions"]["meron_plan_entries"] = {"method": {}}
    (tmp_path / "capi" / "annotations.json").write_text(json.dumps(notes))

    command = [sys.executable, "-B", ROOT / "tools/generate/generate.py", "--root", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path, line in GENERATED.items():
        assert line in (tmp_path / path).read_text(), path


@pytest.mark.parametrize("name", ["meron_gone", "MERON_GONE"])
def test_a_name_that_nothing_mentions(name: str) -> None:
    paths = touched.mentioning(name)
    assert [path for path in paths if not path.startswith("tests/generated/")] == []


def test_what_a_release_has_recorded_does_not_count() -> None:
    found = touched.sort(["capi/abi/0.1/include/meron/plan.h", "capi/api.json", "capi/plan.cpp"])
    assert (found.by_hand, found.generated) == (["capi/plan.cpp"], ["capi/api.json"])
