# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from self_tests.planting import Plant


def broken(plant: Plant, text: str) -> list[str]:
    return plant.offences("links", {"docs/page.md": text, "docs/other.md": "# The end\n"})


def test_resolves_files_folders_and_headings(plant: Plant) -> None:
    text = "# A `b` c, d\n[1](other.md) [2](other.md#the-end) [3](#a-b-c-d) [4](.) [5](../docs)"
    assert broken(plant, f"{text} [6](https://x.org/y)") == []


def test_finds_a_missing_file_and_a_missing_heading(plant: Plant) -> None:
    found = broken(plant, "\n[1](none.md) [2](other.md#start) [3](#nowhere)")
    assert [each.split(": ")[:2] for each in found] == [
        ["docs/page.md:2", "none.md"],
        ["docs/page.md:2", "other.md#start"],
        ["docs/page.md:2", "#nowhere"],
    ]


def test_numbers_repeated_headings(plant: Plant) -> None:
    text = "# Use\n\n# Use\n[1](#use) [2](#use-1) [3](#use-2)"
    assert [each.split(": ")[1] for each in broken(plant, text)] == ["#use-2"]


def test_ignores_brackets_in_code(plant: Plant) -> None:
    assert broken(plant, "`a[0](none.md)`\n```\n[1](none.md)\n```\n") == []
