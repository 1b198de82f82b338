# SPDX-License-Identifier: Apache-2.0
"""The ABI gate: it passes today's headers and library, refuses each kind of break and names it, and
lets pass what is compatible. Breaks are made on a copy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = os.environ.get("MERON_TEST_LIBRARY")

if shutil.which("abidiff") is None:
    pytest.skip("abidiff is missing: tools/setup --dev installs it", allow_module_level=True)


def gate(root: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-B", str(ROOT / "tools" / "run_abi.py"), "--root", str(root)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr


class Copy:
    """A copy of the headers and a fresh baseline of them, to be changed by a test."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def change(self, header: str, pattern: str, replacement: str) -> None:
        path = self.root / "include" / "meron" / header
        text, count = re.subn(pattern, replacement, path.read_text(), flags=re.DOTALL)
        assert count >= 1, f"{header} has no {pattern}"
        path.write_text(text)

    def check(self, *arguments: str) -> tuple[int, str]:
        return gate(self.root, *arguments)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pristine")
    shutil.copytree(ROOT / "include", root / "include")
    (root / "capi").mkdir()
    shutil.copy(ROOT / "capi" / "meron.map", root / "capi")
    status, output = gate(root, "--update")
    assert status == 0, output
    return root


@pytest.fixture
def copy(pristine: Path, tmp_path: Path) -> Copy:
    shutil.copytree(pristine, tmp_path, dirs_exist_ok=True)
    return Copy(tmp_path)


def breaks(copy: Copy, *named: str) -> None:
    status, output = copy.check()
    assert status == 1, output
    for name in named:
        assert name in output
    assert "docs/abi.md" in output


def test_headers_and_library_keep_the_committed_baseline() -> None:
    status, output = gate(ROOT, *(["--library", LIBRARY] if LIBRARY else []))
    assert status == 0, output


def test_an_unchanged_copy_passes(copy: Copy) -> None:
    status, output = copy.check()
    assert status == 0, output


# ---- Breaks --------------------------------------------------------------------------------------


def test_a_field_in_the_middle(copy: Copy) -> None:
    copy.change("context.h", r"(\n  int32_t world_size;[^\n]*)", r"\1\n  uint64_t extra;")
    copy.change("context.h", r"MERON_VERSION, -1, -1,", "MERON_VERSION, -1, -1, 0,")
    breaks(
        copy,
        "meron_context_options.transport was at offset",
        "'uint64_t extra', at offset",  # abidiff, the other witness
    )


def test_a_field_that_is_removed(copy: Copy) -> None:
    copy.change("param.h", r"\n  uint64_t shard_count;[^\n]*", "")
    copy.change("param.h", r"\{0\}, 0, 0, 0, 0, 0 \}", "{0}, 0, 0, 0, 0 }")
    breaks(copy, "shard_count", "sizeof(meron_param_info) was")


def test_a_field_of_another_type(copy: Copy) -> None:
    copy.change("reduce.h", r"\n  double divisor;", r"\n  int64_t divisor;")
    breaks(copy, "meron_reduce_options.divisor was a double")


def test_a_field_added_to_a_struct_without_a_size(copy: Copy) -> None:
    copy.change("param.h", r"(\n  uint64_t reserved_2;[^\n]*)", r"\1\n  uint64_t extra;")
    breaks(copy, "sizeof(meron_view) was 56", "'struct meron_view' changed")


def test_a_function_that_is_removed(copy: Copy) -> None:
    copy.change("group.h", r"/\*\*\n \* Begins a barrier.*?err\);\n", "")
    breaks(copy, "meron_barrier_begin", "1 Removed function")


def test_a_parameter_of_another_type(copy: Copy) -> None:
    copy.change("group.h", r"(meron_broadcast_begin\(.*?)size_t bytes", r"\1uint32_t bytes")
    breaks(copy, "meron_broadcast_begin was meron_status (*)", "parameter 4 of type")


def test_a_parameter_of_another_handle_type(copy: Copy) -> None:
    copy.change("group.h", r"(meron_barrier_begin\([^)]*?)meron_group group", r"\1meron_unit group")
    copy.change(
        "group.h",
        r"\nMERON_BEGIN_DECLS",
        "\ntypedef struct {\n  uint64_t id;\n} meron_lane;\n\\g<0>",
    )
    copy.change("group.h", r"meron_unit group", "meron_lane group")
    breaks(copy, "meron_barrier_begin was meron_status (*)", "meron_group to meron_lane")


def test_a_callback_of_another_type(copy: Copy) -> None:
    copy.change("context.h", r"int32_t \(\*meron_should_stop_fn\)\(void \*user\)",
                "int32_t (*meron_should_stop_fn)(void *user, int32_t rank)")  # fmt: skip
    breaks(copy, "meron_should_stop_fn was int32_t (*)(void *)")


def test_an_enum_constant_that_is_renamed(copy: Copy) -> None:
    copy.change("base.h", r"MERON_E_STALE = -102", "MERON_E_EXPIRED = -102")
    breaks(copy, "MERON_E_STALE")


def test_an_enum_constant_of_another_value(copy: Copy) -> None:
    copy.change("gather.h", r"MERON_GATHER_COPY = 1", "MERON_GATHER_COPY = 3")
    breaks(copy, "MERON_GATHER_COPY was 1")


def test_a_constant_of_another_value(copy: Copy) -> None:
    copy.change("param.h", r"#define MERON_MAX_DIMS 16", "#define MERON_MAX_DIMS 8")
    breaks(copy, "MERON_MAX_DIMS was 16")


def test_a_symbol_in_another_version_node(copy: Copy) -> None:
    path = copy.root / "capi" / "meron.map"
    path.write_text(path.read_text().replace("MERON_0.2", "MERON_0.9"))
    breaks(copy, "meron_gather_begin@@MERON_0.2")


@pytest.mark.skipif(LIBRARY is None, reason="MERON_TEST_LIBRARY names no library")
def test_a_library_that_lacks_a_symbol(copy: Copy) -> None:
    # The library has all of the real headers' functions, but not the one that is added here.
    copy.change(
        "group.h", r"MERON_END_DECLS", "MERON_API void meron_lost(void);\n\nMERON_END_DECLS"
    )
    assert copy.check("--update")[0] == 0
    status, output = copy.check("--library", str(LIBRARY))
    assert status == 1 and "meron_lost" in output, output


# ---- What is compatible --------------------------------------------------------------------------


def test_growth_passes(copy: Copy) -> None:
    """Fields at the end of an options and of an info struct, a function, an enum constant."""
    copy.change("optimizer.h", r"(\n} meron_optimizer_options;)", r"\n  double extra;\1")
    copy.change("optimizer.h", r"(\d, 0\.0)( *\\\n  \})", r"\1, 0.0\2")
    copy.change(
        "context.h",
        r"(\n  uint64_t device_bytes;[^\n]*)(\n} meron_stats)",
        r"\1\n  uint64_t extra;\2",
    )
    copy.change("context.h", r"SIZEOF_U32\(meron_stats\),", "SIZEOF_U32(meron_stats), 0,")
    copy.change("group.h", r"MERON_END_DECLS", "MERON_API void meron_new(void);\n\nMERON_END_DECLS")
    copy.change("gather.h", r"(MERON_GATHER_INTO = 2,)", r"\1\n  MERON_GATHER_NEW = 3,")
    status, output = copy.check()
    assert status == 0, output


# ---- The baseline --------------------------------------------------------------------------------


def test_before_the_release_a_break_is_recorded_freely_and_after_it_never(copy: Copy) -> None:
    copy.change("base.h", r"MERON_E_STALE = -102", "MERON_E_EXPIRED = -102")
    assert copy.check("--update")[0] == 0
    assert copy.check()[0] == 0
    baseline = next((copy.root / "capi" / "abi").iterdir())
    (baseline / "released").write_text("0.2.0\n")
    before = (baseline / "layout.c").read_text()
    copy.change("base.h", r"MERON_E_EXPIRED = -102", "MERON_E_STALE = -102")
    status, output = copy.check("--update")
    assert status == 1 and "MERON_E_EXPIRED" in output and "was released" in output
    assert (baseline / "layout.c").read_text() == before


def test_a_struct_that_grows_keeps_its_first_size(copy: Copy) -> None:
    baseline = next((copy.root / "capi" / "abi").iterdir())
    before = json.loads((baseline / "ends.json").read_text())
    copy.change("param.h", r"(\n  uint64_t flat_offset;[^\n]*)", r"\1\n  uint64_t extra;")
    copy.change("param.h", r"\{0\}, 0, 0, 0, 0, 0 \}", "{0}, 0, 0, 0, 0, 0, 0 }")
    assert copy.check("--update")[0] == 0
    assert json.loads((baseline / "ends.json").read_text()) == before
    assert before["meron_param_info"] == "flat_offset"


def test_a_growing_struct_may_not_end_with_padding(copy: Copy) -> None:
    copy.change("param.h", r"(\n  uint64_t flat_offset;[^\n]*)", r"\1\n  uint32_t extra;")
    copy.change("param.h", r"\{0\}, 0, 0, 0, 0, 0 \}", "{0}, 0, 0, 0, 0, 0, 0 }")
    status, output = copy.check("--update")
    assert status == 1 and "meron_param_info ends with 4 bytes of padding" in output


def test_a_version_without_a_baseline_says_what_to_do(copy: Copy) -> None:
    copy.change("base.h", r"#define MERON_VERSION_MINOR \d+", "#define MERON_VERSION_MINOR 77")
    status, output = copy.check()
    assert status == 1 and "0.77" in output and "tools/abi --update" in output
