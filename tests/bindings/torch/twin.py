# SPDX-License-Identifier: Apache-2.0
"""Trains a sharded model beside its twin: one process of plain torch with the same micro-batches.

    runs = compare("models/transformer.py", ranks=2, plans=("zero1", "zero3"), accumulate=(1, 2))
    runs["zero3", 2].check()

A model is a Python file, or the text of one, that defines

    build()                 a torch.nn.Module; called once, under a fixed seed
    batch(generator)        a micro-batch of random data
    loss(model, batch)      a scalar

and, to replace a default,

    shard(model, plan)      default: meron.torch.shard(model, plan=plan)
    optimizer(model)        default: torch.optim.AdamW(model.parameters(), lr=1e-2)

One world of ranks trains under all plans and accumulations of a call. Equal calls share it.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from ranks import call

import meron.torch as mt
from meron.torch.sharding import unit_of

HERE = Path(__file__).parent
EXACT_RANKS = (1, 2, 4)  # their reciprocals are exact
STEPS = 8
Weights = dict[str, torch.Tensor]
Order = tuple[tuple[int, ...], ...]  # of micro-batches


@dataclass
class Run:
    """Largest differences over ranks between a sharded run and its twin.

    Relative to the largest value of the same tensor.
    """

    ranks: int
    plan: str
    accumulate: int
    losses: list[float]  # of rank 0's micro-batches
    loss_difference: float
    weight_difference: float
    worst: str  # param

    def check(self, tolerance: float = 1e-6) -> None:
        """Demands equal bits if the mean over ranks is exact, else values within the tolerance."""
        allowed = 0.0 if self.ranks in EXACT_RANKS else tolerance
        assert self.loss_difference <= allowed, self
        assert self.weight_difference <= allowed, self
        assert self.losses[-1] < self.losses[0], "it did not learn"


@dataclass(frozen=True)
class Job:
    """A call of compare(), as sent to the ranks."""

    model: str
    plans: tuple[str, ...]
    accumulate: tuple[int, ...]
    steps: int


@functools.cache
def compare(
    model: str,
    ranks: int,
    plans: tuple[str, ...] = ("zero0", "zero1", "zero2", "zero3"),
    accumulate: tuple[int, ...] = (1,),
    steps: int = STEPS,
    device: str = "cpu",
) -> dict[tuple[str, int], Run]:
    """Trains the model on `ranks` ranks. Returns its runs by plan and accumulation.

    Args:
        model: a path below this folder, or the text of a Python file.
        device: on which the ranks compute.
    """
    job = Job(model, plans, accumulate, steps)
    environment = {"MERON_TORCH_DEVICE": device}
    by_rank = call(ranks, run_rank, job, environment=environment, deadline=240.0)
    return {(runs[0].plan, runs[0].accumulate): merged(runs) for runs in zip(*by_rank)}


def merged(runs: Sequence[Run]) -> Run:
    worst = max(runs, key=lambda run: run.weight_difference)
    worst.losses = runs[0].losses
    worst.loss_difference = max(run.loss_difference for run in runs)
    return worst


# ---- One rank -----------------------------------------------------------------------------------


def load(model: str) -> ModuleType:
    path, text = ("model", model) if "\n" in model else (model, (HERE / model).read_text())
    module = ModuleType("model")
    exec(compile(text, path, "exec"), module.__dict__)
    if not hasattr(module, "shard"):
        module.shard = lambda model, plan: mt.shard(model, plan=plan)  # type: ignore[attr-defined]
    if not hasattr(module, "optimizer"):
        module.optimizer = adamw  # type: ignore[attr-defined]
    return module


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batches(source: Any, step: int, count: int) -> list[Any]:
    """Returns the micro-batches of a step. Rank r has those at r, r + ranks, ..."""
    generator = torch.Generator().manual_seed(1000 + step)
    return [source.batch(generator) for _ in range(count)]


def order_of(plan: str, ranks: int, accumulate: int) -> Order:
    """Returns the order in which a plan sums the micro-batches of a step.

    It sums the micro-batches of each tuple, then the sums, in the order of the ranks. If gradients
    are replicated, a tuple has the micro-batches of one rank, else those of all ranks. Over a mesh
    it has those of a shard axis: of the whole accumulation if replicas shard alike ("mics"), else
    of one turn.
    """
    name, _, size = plan.rstrip(")").partition("(")
    turns = [range(turn * ranks, (turn + 1) * ranks) for turn in range(accumulate)]
    if name in ("zero0", "zero1") and accumulate > 1:
        return tuple(tuple(turn[rank] for turn in turns) for rank in range(ranks))
    shards = int(size) if size else ranks
    rows = [slice(first, first + shards) for first in range(0, ranks, shards)]
    if len(rows) == 1:
        return (tuple(range(ranks * accumulate)),)
    if name == "mics":
        return tuple(tuple(place for turn in turns for place in turn[row]) for row in rows)
    return tuple(tuple(turn[row]) for turn in turns for row in rows)


def train_plain(
    source: Any, model: torch.nn.Module, steps: int, ranks: int, accumulate: int, order: Order
) -> tuple[list[list[float]], Weights]:
    """Trains on all micro-batches in one process. Returns each step's losses, and the weights."""
    optimizer = source.optimizer(model)
    losses = []
    for step in range(steps):
        data = batches(source, step, ranks * accumulate)
        values = [0.0] * len(data)
        sums: dict[str, torch.Tensor] = {}
        for places in order:
            optimizer.zero_grad()
            for place in places:
                loss = source.loss(model, data[place]) / accumulate
                loss.backward()
                values[place] = loss.item()
            add_gradients(sums, model)
        for name, param in model.named_parameters():
            param.grad = sums[name].mul_(1 / ranks) if name in sums else None
        optimizer.step()
        losses.append(values)
    return losses, {name: param.detach().clone() for name, param in model.named_parameters()}


def add_gradients(sums: dict[str, torch.Tensor], model: torch.nn.Module) -> None:
    for name, param in model.named_parameters():
        if param.grad is not None:
            grad = param.grad.clone()
            sums[name] = sums[name] + grad if name in sums else grad


def train_sharded(
    source: Any, model: torch.nn.Module, plan: str, steps: int, accumulate: int
) -> tuple[list[list[float]], Weights]:
    model = source.shard(model, plan)
    optimizer = source.optimizer(model)
    if not isinstance(optimizer, mt.EngineOptimizer):
        optimizer = mt.shard_optimizer(model, optimizer)
    place = next(place for place in map(unit_of, model.parameters()) if place is not None)
    context = place[0].sharding.context
    losses = []
    for step in range(steps):
        data = batches(source, step, context.world_size * accumulate)
        values = []
        for micro_batch in data[context.rank :: context.world_size]:
            loss = source.loss(model, micro_batch) / accumulate
            loss.backward()
            values.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(values)
    weights = {
        name: mt.full_param(param) if unit_of(param) is not None else param.detach().clone()
        for name, param in model.named_parameters()
    }
    context.close()  # the next run is a world of its own
    return losses, weights


def difference(values: Iterable[float], others: Iterable[float]) -> float:
    """Returns the largest relative difference; infinite if only one of two values is NaN."""
    worst = 0.0
    for value, other in zip(values, others, strict=True):
        if value != other:
            distance = abs(value - other) / max(abs(other), 1e-30)
            worst = max(worst, distance if distance == distance else float("inf"))
    return worst


def tensor_difference(value: torch.Tensor, other: torch.Tensor) -> float:
    if torch.equal(value, other):
        return 0.0
    distance = float((value - other).abs().max() / other.abs().max().clamp_min(1e-30))
    return distance if distance == distance else float("inf")


def run_rank(job: Job) -> list[Run]:
    rank, ranks = int(os.environ["MERON_RANK"]), int(os.environ["MERON_WORLD_SIZE"])
    source = load(job.model)
    torch.manual_seed(0)
    model = source.build()
    steps = job.steps
    plain: dict[tuple[int, Order], Any] = {}
    runs = []
    for accumulate in job.accumulate:
        for plan in job.plans:
            order = order_of(plan, ranks, accumulate)
            key = (accumulate, order)
            if key not in plain:
                twin = copy.deepcopy(model)
                plain[key] = train_plain(source, twin, steps, ranks, accumulate, order)
            expected, expected_weights = plain[key]
            losses, weights = train_sharded(source, copy.deepcopy(model), plan, steps, accumulate)
            distances = {
                name: tensor_difference(weights[name], value)
                for name, value in expected_weights.items()
            }
            worst = max(distances, key=distances.__getitem__)
            flat = [value for values in losses for value in values]
            flat_expected = [value for values in expected for value in values[rank::ranks]]
            runs.append(
                Run(
                    ranks,
                    plan,
                    accumulate,
                    flat,
                    difference(flat, flat_expected),
                    distances[worst],
                    worst,
                )
            )
    return runs
