# SPDX-License-Identifier: Apache-2.0
"""Example 01."""

from __future__ import annotations

import re

import pytest
from conftest import start

RANKS = (1, 2, 3, 4)


@pytest.mark.parametrize("ranks", RANKS)
def test_every_rank_sees_every_part(language: str, ranks: int) -> None:
    done = start("gather", language, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""

    owned = re.findall(r"rank (\d+) owns +(\d+) elements, from (\d+)", done.stdout)
    assert [int(rank) for rank, _, _ in owned] == list(range(ranks))
    begin = 0
    for _, count, offset in owned:  # the parts lie side by side and make up the whole
        assert int(offset) == begin
        begin += int(count)
    assert begin == 8000

    first, second = (text.split("\n\n")[0] for text in done.stdout.split(":\n")[1:])
    offsets = [int(offset) for _, _, offset in owned]
    changed = [offset + 10000 * (rank + 1) for rank, offset in enumerate(offsets)]
    for text, values in ((first, offsets), (second, changed)):
        rows = re.findall(r"rank \d+ +([\d ]+)", text)
        assert len(rows) == ranks
        for row in rows:
            assert [int(value) for value in row.split()] == values


@pytest.mark.parametrize("ranks", RANKS)
def test_languages_agree(ranks: int) -> None:
    done = {language: start("gather", language, ranks=ranks) for language in ("c", "cpp", "python")}
    assert done["cpp"].returncode == 0, done["cpp"].stderr
    assert done["c"].stdout == done["cpp"].stdout == done["python"].stdout
