# SPDX-License-Identifier: Apache-2.0
"""Hard models (hard/models.py) equal their twins: what is combined says hard/combinations.py."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from itertools import product
from pathlib import Path

import pytest
from conftest import run_ranks

HARD = Path(__file__).parent / "hard"
sys.path.insert(0, str(HARD))
import models  # noqa: E402
from combinations import PLANS, ROUNDS, WAYS, combinations  # noqa: E402


@functools.cache
def outcomes(ranks: int) -> tuple[dict[tuple[str, str, str, int], str | None], str]:
    """What each combination came to on the worst rank, and what the ranks wrote otherwise."""
    found: dict[tuple[str, str, str, int], str | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        job = {"folder": folder}
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
    for key in combinations(ranks):
        if key[:2] != (plan, name):
            continue
        assert key in found, f"{key} did not run: an earlier one failed\n{rest[-2000:]}"
        assert found[key] is None, f"{key}\n{found[key]}"


def test_what_runs_is_what_is_said() -> None:
    names = [name for name in models.MODELS if name not in models.LEAVES]
    for ranks in (1, 3):
        some = set(combinations(ranks))
        assert {(plan, name) for plan, name, *_ in some} == set(product(PLANS, models.MODELS))
        assert {(name, way) for _, name, way, _ in some} >= set(product(names, WAYS))
        assert {(plan, *rest) for plan, _, *rest in some} == set(product(PLANS, WAYS, ROUNDS))
    left_out = sum(2 * len(PLANS) for _ in models.LEAVES)
    every = len(PLANS) * len(models.MODELS) * len(WAYS) * len(ROUNDS) - left_out
    assert len(set(combinations(2))) == every
