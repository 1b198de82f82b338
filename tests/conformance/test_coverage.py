# SPDX-License-Identifier: Apache-2.0
"""Tests that the table covers the whole C interface and obeys its own rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from table import HERE, NEEDS, TRANSPORTS, Case, Statement, read_cases, read_runners, tokens_of

ROOT = Path(__file__).resolve().parents[2]
API = json.loads((ROOT / "capi" / "api.json").read_text())
FUNCTIONS = [function["name"] for function in API["functions"]]
STATUSES = {
    value["name"]
    for enum in API["enums"]
    if enum["name"] == "meron_status"
    for value in enum["values"]
    if value["name"].startswith("MERON_E_")
}
CASES = read_cases()
# Each rank is a replica of its own.
MESHES = ("mics(1)", "hpz(1)", "zeropp(1)")

# Errors that no case can cause, and the tests that cause them.
STATUSES_ELSEWHERE = {
    "MERON_E_PEER_DEAD": "tests/fault/kill_test.cpp",
    "MERON_E_FORKED": "tests/fault/fork_test.cpp",
    "MERON_E_CLOSED": "tests/fault/close_test.cpp",
    "MERON_E_IO": "tests/unit/os/file_test.cpp",
    "MERON_E_CORRUPT": "tests/fault/storage_test.cpp",
    "MERON_E_DEVICE": "tests/unit/device/emulated_test.cpp",
    "MERON_E_NO_SPACE": "tests/fault/storage_test.cpp",
    "MERON_E_INTERNAL": "",  # a defect by definition
}
# Functions that no case can use: name -> the test that does.
FUNCTIONS_ELSEWHERE = {
    "meron_allocator_init": "tests/capi/misuse/misuses_of_structs.cpp",
    "meron_transport_init": "tests/capi/misuse/misuses_of_structs.cpp",
}
# Functions that create objects, beside the operation with the object's name.
MAKERS = {
    "gather_begin": "gather",
    "io_read_begin": "io_request",
    "io_write_begin": "io_request",
    "load": "checkpoint",
    "checkpoint_open": "checkpoint",
    "reduced_dlpack": "dlpack",
}
KINDS = (
    "plan",
    "group",
    "param",
    "unit",
    "update",
    "gather",
    "optimizer",
    "schedule",
    "future",
    "dlpack",
    "io",
    "io_request",
    "io_buffer",
    "checkpoint",
)


def read_operations() -> dict[str, list[str]]:
    operations: dict[str, list[str]] = {}
    for line in (HERE / "operations.txt").read_text().splitlines():
        tokens = tokens_of(line)
        if tokens:
            assert tokens[0] not in operations, tokens[0]
            operations[tokens[0]] = tokens[1:]
    return operations


OPERATIONS = read_operations()


def made_by(case: Case, name: str) -> str:
    """The kind of object that a name stands for."""
    for statement in case.statements:
        if statement.get("future") == name:
            return "future"
        kind = MAKERS.get(statement.operation, statement.operation)
        if statement.name == name and kind in KINDS and statement.get("fails") is None:
            return kind
    raise AssertionError(f"{case.name}: nothing makes {name}")


def keys_of(case: Case, statement: Statement) -> list[str]:
    """The lines of operations.txt that a statement falls under."""
    if statement.get("fails") is not None:
        own = ["fails="]
    else:
        own = []
    if statement.operation == "release":
        return [*own, f"release:{made_by(case, statement.name)}"]
    return [*own, statement.operation]


USED_KEYS = {
    key for case in CASES for statement in case.statements for key in keys_of(case, statement)
}
USED_FUNCTIONS = {function for key in USED_KEYS for function in OPERATIONS.get(key, ())}
CALLED = {s.get("function") for case in CASES for s in case.statements if s.operation == "call"}
USED_FUNCTIONS |= {function for function in CALLED if function}
# Languages without macros take the initial value of its options from the library.
USED_FUNCTIONS |= {
    f"{param['type'].removeprefix('const ').removesuffix(' *')}_init"
    for function in API["functions"]
    for param in function["params"]
    if function["name"] in CALLED and param["type"].endswith("_options *")
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_has_a_case(function: str) -> None:
    if function not in USED_FUNCTIONS:
        assert function in FUNCTIONS_ELSEWHERE, f"no case uses {function}"
        assert function in (ROOT / FUNCTIONS_ELSEWHERE[function]).read_text()


@pytest.mark.parametrize("status", sorted(STATUSES))
def test_every_error_has_a_case(status: str) -> None:
    cases = [
        case.name
        for case in CASES
        for statement in case.statements
        if (statement.get("fails") or "") == status
    ]
    assert cases or status in STATUSES_ELSEWHERE
    other = STATUSES_ELSEWHERE.get(status)
    assert not other or status in (ROOT / other).read_text(), f"{other} lacks {status}"


def test_calls_are_of_functions_that_all_runners_can_call() -> None:
    generated = (HERE / "python" / "calls.py").read_text()
    assert all(f'"{function}"' in generated for function in CALLED)


def test_operations_name_functions_that_exist() -> None:
    assert {function for some in OPERATIONS.values() for function in some} <= set(FUNCTIONS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_use_known_words(case: Case) -> None:
    assert case.statements
    assert set(case.ranks) <= {"1", "2", "3"}
    assert set(case.plans) <= {"zero0", "zero1", "zero2", "zero3", *MESHES}
    assert set(case.transports) <= set(TRANSPORTS)
    assert set(case.needs) <= set(NEEDS)
    for statement in case.statements:
        assert set(keys_of(case, statement)) <= OPERATIONS.keys(), statement
        assert {code for code in (statement.get("fails") or "").split("|") if code} <= STATUSES
        assert set(statement.list("on")) <= {"0", "1", "2"}
        assert all(value != "?" for _, value in statement.arguments), statement
        names = [name for name, _ in statement.arguments if name != "source"]
        assert len(names) == len(set(names)), statement


def test_every_operation_is_used_and_explained() -> None:
    words = {key for key in OPERATIONS if key[-1].isalpha()}
    assert words - {key.rstrip("=") for key in USED_KEYS} <= {"sleep"}
    page = (HERE / "README.md").read_text()
    for word in {key.partition(":")[0] for key in words}:
        assert re.search(rf"^\| .*`{word}\b", page, re.MULTILINE), f"README.md lacks {word}"


def test_runners_have_one_name_each() -> None:
    names = [runner.name for runner in read_runners()]
    known = {*NEEDS, "custom", "local3", "custom3", "together"}
    assert all(runner.lacks <= known for runner in read_runners())
    assert len(names) == len(set(names)) and {"c", "python"} <= set(names)
