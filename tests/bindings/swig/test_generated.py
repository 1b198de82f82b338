# SPDX-License-Identifier: Apache-2.0
"""What SWIG made of meron.i, compared with api.json and with what cffi reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import meron_swig
import pytest
from cffi import FFI

from meron._cdef import CDEF

ROOT = Path(__file__).resolve().parents[3]
API: dict[str, Any] = json.loads((ROOT / "capi" / "api.json").read_text())
# Errors are exceptions, and text is copied: the runtime makes these calls itself.
CONSUMED = {"meron_string_free", "meron_error_free"} | {
    f"meron_error_{field}"
    for field in ("code", "message", "operation", "subject", "advice", "rank", "peer")
}


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    assert meron_swig.load_library(os.environ["MERON_LIBRARY"]), meron_swig.library_problem()


@pytest.fixture(scope="module")
def ffi() -> FFI:
    ffi = FFI()
    ffi.cdef(CDEF)
    return ffi


def test_every_function_is_there() -> None:
    names = {function["name"] for function in API["functions"]}
    offered = {name for name in names if hasattr(meron_swig, name)}
    assert names - offered == CONSUMED


def test_every_function_documents_its_blocking() -> None:
    for function in API["functions"]:
        if function["name"] not in CONSUMED:
            text = getattr(meron_swig, function["name"]).__doc__
            assert "Blocks:" in text and "Threads:" in text, function["name"]


def test_constants_are_those_of_cffi(ffi: FFI) -> None:
    library = ffi.dlopen(os.environ["MERON_LIBRARY"])
    names = [constant["name"] for constant in API["constants"]]
    names += [value["name"] for enum in API["enums"] for value in enum["values"]]
    assert len(names) > 50
    for name in names:
        assert getattr(meron_swig, name) == getattr(library, name), name


def test_structs_are_as_large_as_those_of_cffi(ffi: FFI) -> None:
    for struct in API["structs"]:
        assert getattr(meron_swig, f"SIZEOF_{struct['name']}") == ffi.sizeof(struct["name"])


def test_initial_values_are_those_of_the_macros() -> None:
    """The library's init functions say what api.json has of the INIT macros."""
    values = {value["name"]: value["value"] for enum in API["enums"] for value in enum["values"]}
    values |= {constant["name"]: constant["value"] for constant in API["constants"]}
    compared = 0
    for struct in API["structs"]:
        name = struct["name"]
        if not hasattr(meron_swig, f"{name}_init"):
            continue  # the library fills it
        made = getattr(meron_swig, f"{name}_init")()
        for field, value in struct["init"]["values"].items():
            if value == "sizeof":
                value = getattr(meron_swig, f"SIZEOF_{name}")
            if hasattr(type(made), field):
                wanted = values.get(value, value)
                if isinstance(wanted, int) and wanted >= 2**63:
                    wanted -= 2**64  # SWIG's functions have signed numbers only
                assert getattr(made, field) == wanted, (name, field)
                compared += 1
    assert compared > 30
