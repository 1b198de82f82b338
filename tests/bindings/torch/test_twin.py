# SPDX-License-Identifier: Apache-2.0
"""A transformer on several ranks learns what one process of plain torch learns."""

from __future__ import annotations

import pytest
from twin import compare

PLANS = ("zero0", "zero1", "zero2", "zero3")
ACCUMULATE = (1, 2)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("accumulate", ACCUMULATE)
def test_ranks_have_the_losses_of_one_process(ranks: int, plan: str, accumulate: int) -> None:
    runs = compare("models/transformer.py", ranks, PLANS, ACCUMULATE)
    runs[plan, accumulate].check()


MESHES = ("mics(2)", "mics(1)", "mics(4)", "hpz(2)", "hpz(1)")


@pytest.mark.parametrize("plan", MESHES)
@pytest.mark.parametrize("accumulate", ACCUMULATE)
def test_ranks_of_a_mesh_have_the_losses_of_one_process(plan: str, accumulate: int) -> None:
    runs = compare("models/transformer.py", 4, MESHES, ACCUMULATE)
    runs[plan, accumulate].check()
