# SPDX-License-Identifier: Apache-2.0
"""Hard models (hard/models.py) equal their twins under every plan, with every way to make units."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import run_ranks

HARD = Path(__file__).parent / "hard"
PLANS = ("zero0", "zero1", "zero2", "zero3")
WAYS = ("module", "parts", "whole")
sys.path.insert(0, str(HARD))
import models  # noqa: E402


@functools.cache
def outcomes(ranks: int) -> tuple[dict[tuple[str, str, str, int], str | None], str]:
    """What each combination came to on the worst rank, and what the ranks wrote otherwise."""
    found: dict[tuple[str, str, str, int], str | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        job = {"plans": PLANS, "folder": folder}
        done = run_ranks(ranks, HARD / "ranks.py", json.dumps(job))
        for file in Path(folder).iterdir():
            for line in file.read_text().splitlines():
                plan, name, way, accumulate, error = json.loads(line)
                key = (plan, name, way, accumulate)
                found[key] = found.get(key) or error
    return found, done.stderr


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_equals_its_twin(ranks: int, name: str, plan: str) -> None:
    found, rest = outcomes(ranks)
    for way in WAYS:
        if way == "parts" and name in models.LEAVES:
            continue
        for accumulate in (1, 2):
            key = (plan, name, way, accumulate)
            assert key in found, f"{key} did not run: an earlier one failed\n{rest[-2000:]}"
            assert found[key] is None, f"{key}\n{found[key]}"
