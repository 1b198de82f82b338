# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from self_tests.planting import Plant

LINK = "[decision 2](0002-new.md)"


def offences(plant: Plant, old: str, new: str = "") -> list[str]:
    files = {
        "docs/decisions/0001-old.md": f"# 1. Old\n\n{old}\n",
        "docs/decisions/0002-new.md": f"# 2. New\n\n{new}\n",
    }
    return plant.offences("decisions", files)


@pytest.mark.parametrize(
    "status",
    [
        "**What.** It stands.",
        f"**Status.** Superseded by {LINK}.",
        f"**Status.** Superseded in part by\n{LINK}: a reason.",
    ],
)
def test_accepts_a_decision_in_force_or_with_a_successor(plant: Plant, status: str) -> None:
    assert offences(plant, status) == []


@pytest.mark.parametrize(
    "status, reason",
    [
        ("This was superseded.", "below the title"),
        ("**Status.** Superseded by something.", "names no decision"),
        ("**Status.** Superseded by [decision 3](0003-x.md).", "there is no decision 3"),
        ("**Status.** Superseded by [decision 2](0003-x.md).", "links to decision 3"),
        ("**Status.** Superseded by [decision 1](0001-old.md).", "is not later"),
    ],
)
def test_finds_a_superseded_decision_without_a_successor(
    plant: Plant, status: str, reason: str
) -> None:
    (found,) = offences(plant, status)
    assert found.startswith("docs/decisions/0001-old.md:3: ")
    assert reason in found


def test_finds_a_successor_that_the_old_decision_does_not_name(plant: Plant) -> None:
    new = "This replaces [decision 1](0001-old.md)."
    assert len(offences(plant, "**What.** It stands.", new)) == 1
    assert offences(plant, f"**Status.** Superseded by {LINK}.", new) == []


def test_finds_a_wrong_number_in_a_title(plant: Plant) -> None:
    assert len(plant.offences("decisions", {"docs/decisions/0003-a.md": "# 4. A\n"})) == 1
