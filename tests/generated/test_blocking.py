# SPDX-License-Identifier: Apache-2.0
"""A function whose header says that it never blocks takes no turn and awaits no room.

Bindings trust that text: Julia keeps its collector waiting during a call that "never" blocks.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headers

ROOT = Path(__file__).parents[2]
# What waits: for peers that are a ring of calls behind, or for another thread's call.
WAITS = re.compile(r"\b(?:await_room|turn|turn_between_saves|turn_when_copied)\(")
C_FUNCTION = re.compile(
    r"^meron_status (meron_\w+)\([^)]*\) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
HELPER = re.compile(
    r"^(?:template[^\n]*\n)?[\w:<>]+ (\w+)\([^)]*\) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
METHOD = re.compile(
    r"^[\w:<>&*, ]*?\b(?:Context|UnitSchedule)::(\w+)\([^{;]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)


def sources(folder: str) -> list[str]:
    return [path.read_text() for path in sorted((ROOT / folder).glob("*.cpp"))]


def waiting_methods() -> set[str]:
    """Names of the engine's functions that wait, or that call one which does."""
    bodies: dict[str, str] = {}
    for text in sources("impl/engine"):
        for name, body in METHOD.findall(text):
            bodies[name] = bodies.get(name, "") + body
    waiting = {name for name, body in bodies.items() if WAITS.search(body)}
    while True:
        called = re.compile(rf"(?<![.>:\w])(?:{'|'.join(sorted(waiting))})\(")
        more = {name for name, body in bodies.items() if called.search(body)}
        if more <= waiting:
            return waiting
        waiting |= more


def waiting_functions() -> set[str]:
    """Names of the C functions that wait, by what they call."""
    methods = "|".join(sorted(waiting_methods()))
    waits = re.compile(rf"{WAITS.pattern}|(?:->|\.)(?:{methods})\(")
    found: set[str] = set()
    for text in sources("capi"):
        helpers = {name for name, body in HELPER.findall(text) if waits.search(body)}
        called = re.compile(rf"\b(?:{'|'.join(sorted(helpers) or ['-'])})\(")
        for name, body in C_FUNCTION.findall(text):
            if waits.search(body) or called.search(body):
                found.add(name)
    return found


@pytest.fixture(scope="module")
def may_block() -> dict[str, bool]:
    api = headers.read(ROOT / "include")[0]
    return {function.name: function.may_block for function in api.functions}


def test_the_scan_finds_functions_that_are_known_to_wait() -> None:
    found = waiting_functions()
    assert found >= {
        "meron_barrier_begin",
        "meron_gather_begin",
        "meron_group_create",
        "meron_reduce_begin",
        "meron_optimizer_step_begin",
        "meron_schedule_leave",
        "meron_update_write",
    }
    assert not found & {"meron_context_rank", "meron_future_release", "meron_unit_get_info"}


def test_no_function_that_waits_says_that_it_never_blocks(may_block: dict[str, bool]) -> None:
    assert [name for name in sorted(waiting_functions()) if not may_block[name]] == []


def test_every_release_may_fail_in_a_forked_child() -> None:
    """But that of a plan, which has no context."""
    api = headers.read(ROOT / "include")[0]
    releases = [
        function
        for function in api.functions
        if "finalizer" in function.threads and function.returns == "meron_status"
    ]
    assert len(releases) >= 10
    lacking = {
        function.name for function in releases if "MERON_E_FORKED" not in function.error_codes
    }
    assert lacking <= {"meron_plan_release"}
