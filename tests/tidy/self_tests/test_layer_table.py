# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from rules import layer_table
from self_tests.planting import Plant


def page(table: str) -> dict[str, str]:
    return {layer_table.PAGE: f"before\n{layer_table.BEGIN}\n{table}{layer_table.END}\nafter\n"}


def test_accepts_the_written_table(plant: Plant) -> None:
    assert plant.offences("layer-table", page(layer_table.table())) == []


def test_finds_an_edited_table(plant: Plant) -> None:
    table = layer_table.table().replace("`base`", "`bases`")
    (found,) = plant.offences("layer-table", page(table))
    assert found.startswith("CONTRIBUTING.md:2: ")


def test_finds_a_missing_table(plant: Plant) -> None:
    assert len(plant.offences("layer-table", {layer_table.PAGE: "# Contributing\n"})) == 1


def test_writing_replaces_only_the_table(plant: Plant) -> None:
    (text,) = page("old\n").values()
    assert layer_table.written(text) == page(layer_table.table())[layer_table.PAGE]
