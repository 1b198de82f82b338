# SPDX-License-Identifier: Apache-2.0
"""The combinations of model, plan, units and accumulation that test_models.py runs."""

from __future__ import annotations

import itertools

import models

PLANS = ("zero0", "zero1", "zero2", "zero3")
# Each module with params is a unit, as in DeepSpeed; blocks and the rest are; the model is one.
WAYS = ("module", "parts", "whole")
ROUNDS = (1, 2)  # micro-batches of a step


def combinations(ranks: int, plan: str, name: str) -> list[tuple[str, int]]:
    """Returns the ways to make units and the rounds for a model under a plan.

    On 2 ranks, where results have the bits of the twin, these are all combinations. On 1 rank, and
    on 3, whose shards differ in size, it is one: over all models and plans, each model has each
    way, and each plan has each way with each number of rounds.
    """
    ways = [way for way in WAYS if way != "parts" or name not in models.LEAVES]
    if ranks == 2:
        return list(itertools.product(ways, ROUNDS))
    p, m = PLANS.index(plan), list(models.MODELS).index(name)
    return [(ways[(m + p) % len(ways)], ROUNDS[(m // len(WAYS) + p) % 2])]
