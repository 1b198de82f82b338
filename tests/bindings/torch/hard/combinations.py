# SPDX-License-Identifier: Apache-2.0
"""What test_models.py runs: models, plans, ways to make units, rounds of a gradient.

On two ranks, where results are the twin's to the last bit, every combination. On one rank, and on
three, whose parts differ in size: every model under every plan and in every way, and every plan
with every way and number of rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import models

PLANS = ("zero0", "zero1", "zero2", "zero3")
WAYS = ("module", "parts", "whole")
ROUNDS = (1, 2)


def combinations(ranks: int) -> Iterator[tuple[str, str, str, int]]:
    """(plan, model, way, rounds) in the order in which ranks run them."""
    for p, plan in enumerate(PLANS):
        for m, name in enumerate(models.MODELS):
            ways = [way for way in WAYS if way != "parts" or name not in models.LEAVES]
            if ranks == 2:
                yield from ((plan, name, *each) for each in itertools.product(ways, ROUNDS))
            else:
                yield plan, name, ways[(m + p) % len(ways)], ROUNDS[(m // len(WAYS) + p) % 2]
