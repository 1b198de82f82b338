# SPDX-License-Identifier: Apache-2.0
"""The layer uses all of the C interface, and its own copies of C's facts are true."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import meron
from meron import _io, dtypes, group, optimizer, unit
from meron._native import ffi, initial, lib

ROOT = Path(__file__).parents[3]
API = json.loads((ROOT / "capi" / "api.json").read_text())
PACKAGE = ROOT / "bindings" / "python" / "meron"
STRUCTS = {struct["name"]: struct for struct in API["structs"]}
ENUMS = {enum["name"]: [value["value"] for value in enum["values"]] for enum in API["enums"]}
FUNCTIONS = {function["name"] for function in API["functions"]}
# Options have an init function; structs that the library fills do not.
OPTIONS = [name for name in STRUCTS if f"{name}_init" in FUNCTIONS]
# Not called by name: _native.initial makes their names from the struct's.
BY_PATTERN = {f"{name}_init" for name in OPTIONS}
# Python gives the defaults of each rule, and starts from a group that exists.
# A unit keeps its name and params. A wait releases what it has waited for.
NOT_USED = {
    "meron_future_finish",
    "meron_optimizer_group_init",
    "meron_unit_name",
    "meron_unit_param",
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS - NOT_USED))
def test_every_function_is_used(name: str) -> None:
    sources = [path.read_text() for path in PACKAGE.glob("*.py") if path.name != "_cdef.py"]
    if name in BY_PATTERN:
        struct = name.removesuffix("_init")
        assert any(f'initial("{struct}")' in source for source in sources)
    else:
        assert any(re.search(rf"\blib(rary)?\.{name}\b", source) for source in sources)


def test_every_function_is_in_the_library() -> None:
    for function in API["functions"]:
        assert getattr(lib, function["name"]) is not None


@pytest.mark.parametrize(
    ("kind", "struct"),
    [
        (meron.Stats, "meron_stats"),
        (meron.Prediction, "meron_prediction"),
        (meron.ScheduleInfo, "meron_schedule_info"),
        (meron.io.IOInfo, "meron_io_info"),
    ],
)
def test_records_have_the_structs_fields(kind: type, struct: str) -> None:
    names = [field["name"] for field in STRUCTS[struct]["fields"]]
    own = [field.name for field in dataclasses.fields(kind) if not field.metadata]
    assert own == [name for name in names if name not in ("struct_size", "reserved_0")]


@pytest.mark.parametrize("name", OPTIONS)
def test_initial_values_are_those_of_the_macro(name: str) -> None:
    numbers = {value["name"]: value["value"] for enum in API["enums"] for value in enum["values"]}
    options = initial(name)
    for field, value in STRUCTS[name]["init"]["values"].items():
        found = getattr(options, field)
        if value == "sizeof":
            assert found == ffi.sizeof(name)
        elif value is None:
            # A pointer to handles has an `id` too, which is that of what it points to.
            pointer = ffi.typeof(found).kind in ("pointer", "function")
            assert found == ffi.NULL if pointer else found.id == 0, field
        else:
            assert found == numbers.get(value, value), field


@pytest.mark.parametrize(
    ("enum", "table"),
    [
        ("meron_dtype", dtypes.NAMES | {code: name for name, code in dtypes.NUMBERS.items()}),
        ("meron_reduce_op", {value: name for name, value in group.OPERATIONS.items()}),
        ("meron_unit_state", unit.STATES),
        ("meron_codec", unit.CODECS),
        ("meron_io_backend", {value: name for name, value in _io.BACKENDS.items()}),
        ("meron_optimizer_state", {value: name for name, value in optimizer.STATES.items()}),
    ],
)
def test_every_enumerator_has_a_name(enum: str, table: dict[int, str]) -> None:
    assert sorted(table) == sorted(ENUMS[enum])


def test_log_levels() -> None:
    from meron._callbacks import LEVELS

    assert sorted(LEVELS) == sorted(ENUMS["meron_log_level"])


def test_open_offers_every_option() -> None:
    fields = {field["name"] for field in STRUCTS["meron_context_options"]["fields"]}
    plumbing = {"struct_size", "header_version", "reserved_0", "log_user", "should_stop_user"}
    names = set(meron.open.__annotations__) - {"return"}
    renamed = {"timeout_ns": "timeout"}
    assert {renamed.get(name, name) for name in fields - plumbing} == names


def test_public_names_are_documented() -> None:
    for name in meron.__all__:
        item = getattr(meron, name)
        if isinstance(item, str):
            continue
        assert item.__doc__, name
        if not isinstance(item, type) or issubclass(item, Exception):
            continue
        for method, value in vars(item).items():
            if not method.startswith("_") and (callable(value) or isinstance(value, property)):
                documented = value.__doc__ or method in ("closed",)
                assert documented, f"{name}.{method}"
