# SPDX-License-Identifier: Apache-2.0
"""A transformer on the emulated device learns what one process of plain torch learns."""

from __future__ import annotations

import pytest
from twin import compare

PLANS = ("zero0", "zero1", "zero2", "zero3")
MESHES = ("mics(2)", "hpz(2)")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_devices_have_the_losses_of_one_process(plan: str, accumulate: int) -> None:
    runs = compare("models/transformer.py", 2, PLANS, (1, 2), device="emulated")
    runs[plan, accumulate].check()


@pytest.mark.parametrize("plan", MESHES)
def test_devices_of_a_mesh_have_the_losses_of_one_process(plan: str) -> None:
    compare("models/transformer.py", 4, MESHES, device="emulated")[plan, 1].check()
