# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import pytest

import prose
from ceilings import PATH
from rules import prose_rates
from self_tests.planting import Plant
from text_blocks import blocks
from tree import File

PLAIN = "The rank sends its shard to all peers.\n\n"
HIT = "What a rank sends is read by all peers.\n\n"


@pytest.mark.parametrize(
    "sentence, pattern",
    [
        ("What a peer has sent is read first.", "clause as subject"),
        ("Whether the file is open.", "bare question"),
        ("Groups of which the last has fewer ranks.", "nested relative"),
        ("What it sends is what it holds there.", "nested relative"),
        ("The lock is to be held meanwhile.", "no actor"),
        ("No file is kept without a checksum.", "double negation"),
        ("The host hands out bytes to ranks.", "private verb"),
        ("It brings the states back again.", "private verb"),
        ("(It was lost when a rank ended.)", "retold past"),
    ],
)
def test_finds_each_habit(sentence: str, pattern: str) -> None:
    assert pattern in prose.patterns_in(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "The rank reads the messages of its peers first.",
        "True if the file is open.",
        "What does a rank read first?",
        "How to run the tests.",
        "When it ends, the rank reports it.",
        "If all ranks share a host, no byte is copied.",
    ],
)
def test_accepts_plain_english(sentence: str) -> None:
    assert prose.patterns_in(sentence) == ()


def test_splits_paragraphs_into_sentences() -> None:
    text = "Returns the shard. (It stays valid.) Number of bytes in it. SPDX-License-Identifier: a"
    found = list(prose.sentences(text))
    assert found == ["Number of bytes in it."]
    assert list(prose.sentences("One two three four. Five six seven eight.")) == [
        "One two three four.",
        "Five six seven eight.",
    ]


@pytest.mark.parametrize(
    "suffix, text, expected",
    [
        (".md", "# Title\n\nOne\ntwo.\n- item\n\n| a | b |\n\n```\ncode\n```\n",
         [(1, "Title"), (3, "One two."), (5, "item")]),
        (".h", "/** One\n *  two.\n *\n *  Three. */\nint x;  // four\n// five\nf(\"// no\");\n",
         [(1, "One two."), (4, "Three."), (5, "four five")]),
        (".py", '# One\n# two.\nx = 1\n"""Three.\n\nFour.\n"""\n',
         [(1, "One two."), (4, "Three."), (6, "Four.")]),
        (".cmake", "# One\n#   two.\n", [(1, "One two.")]),
        ("", "#!/bin/sh\n# One two.\n", [(2, "One two.")]),
        ("", "# no script\n", []),
        (".txt", "# no comment\n", []),
    ],
)  # fmt: skip
def test_reads_paragraphs(suffix: str, text: str, expected: list[tuple[int, str]]) -> None:
    found = [(block.line, block.text) for block in blocks(suffix, text) if block.text]
    assert found == expected


def check(plant: Plant, text: str, ceiling: tuple[int, int] | None) -> list[str]:
    table = {"prose": {"impl/io": ceiling} if ceiling else {}}
    files = {"impl/io/README.md": text, PATH: json.dumps(table)}
    return [each.partition(": ")[2] for each in plant.offences("prose", files)]


def test_a_folder_without_a_ceiling_keeps_the_limit(plant: Plant) -> None:
    assert check(plant, PLAIN * 99 + HIT, None) == []
    (found,) = check(plant, PLAIN * 98 + HIT, None)
    assert found.startswith("1 hits in 99 sentences, 1.0 of 100; 0 are allowed")


def test_a_ceiling_allows_its_hits_and_new_text_at_the_limit(plant: Plant) -> None:
    assert check(plant, PLAIN * 2 + HIT * 2, (2, 4)) == []
    assert check(plant, HIT * 2, (2, 4)) == []  # clean sentences are removed
    assert len(check(plant, PLAIN * 2 + HIT * 3, (2, 4))) == 1
    assert check(plant, PLAIN * 101 + HIT * 3, (2, 4)) == []
    assert len(check(plant, PLAIN * 101 + HIT * 4, (2, 4))) == 1


def test_a_ceiling_goes_down(plant: Plant) -> None:
    assert check(plant, PLAIN * 3 + HIT, (2, 4)) == [
        "impl/io: lower it to [1, 4] (tidy.py --write does)"
    ]
    assert check(plant, PLAIN * 4, (2, 4)) == ["impl/io: remove its ceiling (tidy.py --write does)"]
    plant.write("impl/io/README.md", "")
    assert "remove its ceiling" in plant.offences("prose")[0]


def test_lowering_never_raises_or_adds() -> None:
    now = {name: prose.Measure(3, 10) for name in ("lower", "same", "higher", "new")}
    now["clean"] = prose.Measure(1, 100)
    table = {"lower": [4, 9], "same": [3, 9], "higher": [2, 9], "clean": [4, 9], "gone": [1, 9]}
    assert prose_rates.lowered(table, now) == {"lower": [3, 10], "same": [3, 9], "higher": [2, 9]}


def test_folders_are_top_level_or_one_below() -> None:
    folders = {
        "README.md": ".",
        "tools/meron/a.cpp": "tools",
        "impl/io/deep/a.h": "impl/io",
        "docs/plan.md": "docs",
        "docs/start/c.md": "docs/start",
    }
    found = {name: prose_rates.folder_of(File(Path("."), name)) for name in folders}
    assert found == folders
