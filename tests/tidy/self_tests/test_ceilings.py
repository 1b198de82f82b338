# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import ceilings
from ceilings import PATH, Measured
from self_tests.planting import Plant


def measured(key: str, value: int) -> Measured:
    return Measured(key, value, 10, "a.h", 3, f"{key} has {value}", "divide it")


def offences(plant: Plant, table: dict[str, int], *found: Measured) -> list[str]:
    plant.write(PATH, ceilings.dump({"kind": table, "other": {"a": 1}}))
    return [str(offence) for offence in ceilings.offences(plant.tree(), "kind", found)]


def test_within_the_limit_or_at_the_ceiling_is_fine(plant: Plant) -> None:
    assert offences(plant, {"b": 12}, measured("a", 10), measured("b", 12)) == []


def test_finds_what_exceeds_its_limit_or_its_ceiling(plant: Plant) -> None:
    assert offences(plant, {"b": 12}, measured("a", 11), measured("b", 13)) == [
        "a.h:3: a has 11, more than 10: divide it",
        "a.h:3: b has 13, more than 12: divide it",
    ]


def test_an_improvement_asks_for_a_lower_ceiling(plant: Plant) -> None:
    found = offences(plant, {"a": 14, "b": 12}, measured("a", 13), measured("b", 9))
    assert found == [
        f"{PATH}:3: a: lower it to 13 (tidy.py --write does)",
        f"{PATH}:4: b: it is within the limit: remove its ceiling (tidy.py --write does)",
    ]


def test_finds_the_ceiling_of_a_thing_that_is_gone(plant: Plant) -> None:
    (found,) = offences(plant, {"gone": 12})
    assert found.startswith(f"{PATH}:3: gone: nothing of that name exists")


def test_lowering_never_raises_or_adds() -> None:
    table = {"lower": 14, "higher": 12, "fine": 12, "gone": 12}
    values = {"lower": 13, "higher": 20, "fine": 10, "new": 30}
    found = ceilings.lowered(table, [measured(key, value) for key, value in values.items()])
    assert found == {"lower": 13, "higher": 12}


def test_dumps_one_line_per_ceiling() -> None:
    tables = {"b": {}, "a": {"y": [1, 2], "x": 3}}
    text = ceilings.dump(tables)
    assert json.loads(text) == tables
    assert text.splitlines()[1:4] == ['  "a": {', '    "x": 3,', '    "y": [1, 2]']
