# SPDX-License-Identifier: Apache-2.0
"""A model that is gone leaves no memory (hard/destroying.py has a function for each promise)."""

from __future__ import annotations

import ast
import functools
import json
import tempfile
from pathlib import Path

import pytest
from conftest import run_ranks

SOURCE = Path(__file__).parent / "hard" / "destroying.py"
PROMISES = [
    node.name
    for node in ast.parse(SOURCE.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.args.args
    if isinstance(node.returns, ast.Constant)
]
# The device's rows are stepped by the engine's optimizers only.
ON_DEVICES = (
    "destroyed_models_leave_nothing",
    "lost_models_leave_nothing",
    "roots_that_ranks_collect_at_different_times",
    "a_refusal_changes_nothing",
)


@functools.cache
def outcomes(ranks: int, device: str) -> tuple[dict[str, str | None], str]:
    found: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        done = run_ranks(ranks, SOURCE, folder, device)
        for file in Path(folder).iterdir():
            for line in file.read_text().splitlines():
                name, wrong = json.loads(line)
                found[name] = found.get(name) or wrong
    return found, done.stderr


@pytest.mark.parametrize("promise", PROMISES)
def test_promise(promise: str) -> None:
    check(promise, "cpu")


@pytest.mark.parametrize("promise", [promise for promise in PROMISES if promise in ON_DEVICES])
def test_promise_on_joined_devices(promise: str) -> None:
    check(promise, "emulated")


def check(promise: str, device: str) -> None:
    found, rest = outcomes(2, device)
    assert promise in found, f"it did not run\n{rest[-3000:]}"
    assert found[promise] is None, found[promise]
