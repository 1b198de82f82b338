# SPDX-License-Identifier: Apache-2.0
"""Programs of ranks with a function for each promise, which are run once and reported singly."""

from __future__ import annotations

import ast
import functools
import json
import tempfile
from pathlib import Path

from conftest import run_ranks


def promises_of(source: Path) -> list[str]:
    """Names of the functions of a program that take nothing and return None."""
    return [
        node.name
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.args.args and not node.args.kwarg
        if isinstance(node.returns, ast.Constant) and node.name != "main"
    ]


@functools.cache
def outcomes(source: Path, ranks: int) -> tuple[dict[str, str | None], str]:
    """What went wrong in each function of a program on any rank, by its name; and its stderr."""
    found: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        done = run_ranks(ranks, source, folder)
        for file in Path(folder).iterdir():
            if not file.name.isdecimal():
                continue
            for line in file.read_text().splitlines():
                name, wrong = json.loads(line)
                found[name] = found.get(name) or wrong
    return found, done.stderr


def check_promise(source: Path, ranks: int, promise: str) -> None:
    found, rest = outcomes(source, ranks)
    assert promise in found, f"it did not run\n{rest[-3000:]}"
    assert found[promise] is None, found[promise]
