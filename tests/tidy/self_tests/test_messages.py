# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from rules import messages
from self_tests.planting import Plant
from tree import Tree


@pytest.fixture(scope="module")
def names(project: Tree) -> set[str]:
    return messages.interface_names(project)


def found(line: str, names: set[str], native: bool = True) -> list[str]:
    return [word for _, word in messages.names_in_messages(line, names, native)]


@pytest.mark.parametrize(
    "word",
    [
        *("meron_optimizer_reload", "meron_view", "MERON_GATHER_INTO", "MERON_E_STATE"),
        *("boundary 1", "timeout_ns", "model_head_bytes()"),
    ],
)
def test_finds_names_of_c_in_messages(names: set[str], word: str) -> None:
    assert found(f'return Error(x, fmt::format("do not {word}: {{}}", n));', names) == [word]


def test_finds_names_of_c_in_messages_of_bindings(names: set[str]) -> None:
    line = 'raise f"call meron_future_wait first"'
    assert found(line, names, native=False) == ["meron_future_wait"]
    assert found('raise f"call zero_grad() first"', names, native=False) == []


@pytest.mark.parametrize(
    "line",
    [
        'new("meron_view *")',
        'new("struct meron_view *", value)',
        'lookup("meron_future_wait")',
        'dlsym(library, "meron_backend_query of it")',
        '// "call meron_future_wait"',
        '"set MERON_STORE to a directory"',
    ],
)
def test_code_is_no_message(names: set[str], line: str) -> None:
    assert found(line, names) == []


def test_reads_the_sources_of_engine_and_bindings(plant: Plant) -> None:
    header = "meron_status meron_unit_gather(void);\n"
    error = '  raise("call meron_unit_gather first")\n'
    files = {"include/meron/unit.h": header, "impl/a/a.cpp": error, "tests/a.cpp": error}
    files["bindings/python/meron/a.py"] = error
    assert [each.partition(": ")[0] for each in plant.offences("messages", files)] == [
        "impl/a/a.cpp:1",
        "bindings/python/meron/a.py:1",
    ]
