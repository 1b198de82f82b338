# SPDX-License-Identifier: Apache-2.0
"""A sharded model beside its plain twin: the same micro-batches, in one process of plain torch.

    runs = compare("models/transformer.py", ranks=2, plans=("zero1", "zero3"), accumulate=(1, 2))
    runs["zero3", 2].check()

A model is a Python file, or the text of one, that defines

    build()                 a torch.nn.Module; called once, under a fixed seed
    batch(generator)        a micro-batch of random data
    loss(model, batch)      a scalar

and, where the default is not what is wanted,

    shard(model, plan)      default: meron.torch.shard(model, plan=plan)
    optimizer(model)        default: torch.optim.AdamW(model.parameters(), lr=1e-2)

One start of processes serves all plans and accumulations of a call, because importing torch takes
longer than they do; equal calls share it. Started as a program, this file is one rank.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import meron.torch as mt
from meron.torch.sharding import unit_of

HERE = Path(__file__).parent
EXACT_RANKS = (1, 2, 4)  # their reciprocals are exact
STEPS = 8
Weights = dict[str, torch.Tensor]
Order = tuple[tuple[int, ...], ...]  # of micro-batches


@dataclass
class Run:
    """How far the sharded run was from its twin; the largest over ranks. Relative to the largest
    value of the same tensor."""

    ranks: int
    plan: str
    accumulate: int
    losses: list[float]  # of rank 0's micro-batches
    loss_difference: float
    weight_difference: float
    worst: str  # param

    def check(self, tolerance: float = 1e-6) -> None:
        """Equal bits where the mean over ranks is exact, else equal within the tolerance."""
        allowed = 0.0 if self.ranks in EXACT_RANKS else tolerance
        assert self.loss_difference <= allowed, self
        assert self.weight_difference <= allowed, self
        assert self.losses[-1] < self.losses[0], "it did not learn"


@functools.cache
def compare(
    model: str,
    ranks: int,
    plans: tuple[str, ...] = ("zero0", "zero1", "zero2", "zero3"),
    accumulate: tuple[int, ...] = (1,),
    steps: int = STEPS,
    device: str = "cpu",
) -> dict[tuple[str, int], Run]:
    """Runs the model on `ranks` ranks, by plan and accumulation.

    Args:
        model: a path below this folder, or the text of a Python file.
        device: that the ranks compute on.
    """
    import forked

    with tempfile.TemporaryDirectory() as folder:
        if "\n" in model:
            path = Path(folder, "model.py")
            path.write_text(model)
        else:
            path = HERE / model
        job = {
            "model": str(path),
            "plans": plans,
            "accumulate": accumulate,
            "steps": steps,
            "folder": folder,
        }
        done = forked.run(ranks, __file__, json.dumps(job), MERON_TORCH_DEVICE=device)
        if done.returncode != 0:
            # Not chained to a caller's frame: what the ranks wrote says it all.
            raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        files = [Path(folder, f"{rank}.json").read_text() for rank in range(ranks)]
    by_rank = [[Run(**entry) for entry in json.loads(text)] for text in files]
    return {(runs[0].plan, runs[0].accumulate): merged(runs) for runs in zip(*by_rank)}


def merged(runs: Sequence[Run]) -> Run:
    worst = max(runs, key=lambda run: run.weight_difference)
    worst.losses = runs[0].losses
    worst.loss_difference = max(run.loss_difference for run in runs)
    return worst


# ---- One rank -----------------------------------------------------------------------------------


def load(path: str) -> ModuleType:
    module = ModuleType("model")
    exec(compile(Path(path).read_text(), path, "exec"), module.__dict__)
    if not hasattr(module, "shard"):
        module.shard = lambda model, plan: mt.shard(model, plan=plan)  # type: ignore[attr-defined]
    if not hasattr(module, "optimizer"):
        module.optimizer = adamw  # type: ignore[attr-defined]
    return module


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batches(source: Any, step: int, count: int) -> list[Any]:
    """The micro-batches of all ranks in a step; those of rank r are at r, r + ranks, ..."""
    generator = torch.Generator().manual_seed(1000 + step)
    return [source.batch(generator) for _ in range(count)]


def order_of(plan: str, ranks: int, accumulate: int) -> Order:
    """How a plan sums the micro-batches of a step: within each part one after the other, and then
    the sums of the parts.

    Where gradients are whole on every rank, each rank sums its own first; else those of all ranks
    are summed one after the other. Over a mesh, those of each shard axis: of the whole accumulation
    where replicas hold rows alike ("mics"), else of each turn. All in the order of the ranks.
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
    """All micro-batches in one process: the losses of each step, and the weights at the end."""
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
    """The largest, relative; infinite where one side alone is not a number."""
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


def run_rank(job: dict[str, Any]) -> list[Run]:
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["MERON_RANK"]), int(os.environ["MERON_WORLD_SIZE"])
    source = load(job["model"])
    torch.manual_seed(0)
    model = source.build()
    steps = job["steps"]
    plain: dict[tuple[int, Order], Any] = {}
    runs = []
    for accumulate in job["accumulate"]:
        for plan in job["plans"]:
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


def main() -> None:
    job = json.loads(sys.argv[1])
    runs = run_rank(job)
    path = Path(job["folder"], f"{os.environ['MERON_RANK']}.json")
    path.write_text(json.dumps([asdict(run) for run in runs]))


if __name__ == "__main__":
    main()
