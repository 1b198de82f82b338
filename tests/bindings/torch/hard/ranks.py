# SPDX-License-Identifier: Apache-2.0
"""One rank: models of models.py beside their twins, in all combinations.combinations().

Writes one line of JSON per combination into folder/rank: what went wrong, or null. Units are made
in three ways: "module" (each module that owns params, as DeepSpeed has it), "parts" (blocks and the
rest), "whole".
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import models
import torch
from combinations import PLANS, combinations
from torch import nn

import meron
import meron.torch as mt
from meron.torch.sharding import sharding_of
from meron.torch.wrap import make_scope

STEPS = 3
BITS = (1, 2)  # numbers of ranks whose mean is exact
# Gradients of one param come in two rounds, which each are summed over ranks.
IN_ROUNDS = ("reentrant_again",)
# Activations are rounded to bf16, 8 bits: where a sum's last bit tips one, it differs by so much.
ROUNDED = ("low_rank",)


def shard(model: nn.Module, way: str, name: str, context: meron.Context) -> None:
    if way == "whole":
        mt.shard(model, context=context)
    elif way == "parts":
        mt.shard(model, units=(models.Mlp, nn.LSTM, nn.GRU, nn.Linear), context=context)
    else:
        sharding = sharding_of(context)
        base = sharding.unique(name)
        leaf = models.LEAVES.get(name)
        parts = sorted(model.named_modules(), key=lambda item: -len(item[0].split(".")))
        for path, part in parts:
            if path and not (leaf and path.startswith(f"{leaf}.")):
                make_scope(sharding, part, f"{base}.{path}", recurse=path == leaf)
        make_scope(sharding, model, base, recurse=False)


def loss_of(model: nn.Module, batch: torch.Tensor, rank: int) -> torch.Tensor:
    models.rank = rank
    return model(batch.clone()).square().mean()


def compare(name: str, way: str, accumulate: int, context: meron.Context) -> None:
    torch.manual_seed(0)
    plain = models.MODELS[name]()
    torch.manual_seed(0)
    model = models.MODELS[name]()
    shard(model, way, name, context)
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    twin = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    ranks, rank = context.world_size, context.rank
    exact = ranks in BITS and accumulate == 1 and name not in IN_ROUNDS
    tolerance = 0.0 if exact else 2**-8 if name in ROUNDED else 1e-5
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        twin.zero_grad()
        for _ in range(accumulate):
            batches = torch.randn(ranks, 6, models.WIDTH, generator=generator)
            loss = loss_of(model, batches[rank], rank)
            loss.backward()
            for peer in range(ranks):
                expected = loss_of(plain, batches[peer], peer)
                (expected / ranks).backward()
                if peer == rank:
                    check("the loss", loss, expected, tolerance)
        optimizer.step()
        optimizer.zero_grad()
        twin.step()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            model.eval()(batches[rank])
    state = model.state_dict()
    for (key, param), expected in zip(model.named_parameters(), plain.parameters()):
        whole = mt.full_param(param)
        check(key, whole, expected, tolerance)
        assert torch.equal(state[key], whole), key
    model.load_state_dict(plain.state_dict())
    for param, expected in zip(model.parameters(), plain.parameters()):
        assert torch.equal(mt.full_param(param), expected)
    assert all(unit.uses == 0 for unit in sharding_of(context).units), "a unit is still in use"


def check(what: str, value: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """`tolerance` is absolute; values and weights here are about 1."""
    value, expected = value.detach(), expected.detach()
    if tolerance == 0:
        assert torch.equal(value, expected), f"{what}: {(value - expected).abs().max()}"
    else:
        torch.testing.assert_close(value, expected, rtol=0, atol=tolerance, msg=what)


def main(job: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    context = mt.context_for(meron.Plan.preset(PLANS[0]))
    with open(f"{job['folder']}/{context.rank}", "w", encoding="utf-8") as file:
        for plan, name, way, accumulate in combinations(context.world_size):
            context = mt.context_for(meron.Plan.preset(plan))
            error = None
            try:
                compare(name, way, accumulate, context)
            except Exception:
                error = traceback.format_exc()
            file.write(json.dumps([plan, name, way, accumulate, error]) + "\n")
            if error is not None:
                return  # the ranks have parted


main(json.loads(sys.argv[1]))
