# SPDX-License-Identifier: Apache-2.0
"""A model in two param groups, and each rule in three implementations: meron.torch, torch, and the
engine without torch."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import meron
import meron.torch as mt

RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))
EXACT = RANKS in (1, 2, 4)  # division by the ranks is exact


class Block(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(size)
        self.up = torch.nn.Linear(size, 2 * size)
        self.down = torch.nn.Linear(2 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self, size: int = 11, words: int = 17) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(words, size)
        self.blocks = torch.nn.ModuleList(Block(size) for _ in range(2))
        self.head = torch.nn.Linear(size, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(x)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def build() -> Model:
    torch.manual_seed(0)
    return Model()


def sharded(plan: Any = "zero3", **options: Any) -> Model:
    return mt.shard(build(), units=Block, plan=plan, **options)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a micro-batch for each rank; the first index is the rank."""
    generator = torch.Generator().manual_seed(100 + step)
    x = torch.randint(0, 17, (RANKS, 4, 5), generator=generator)
    return x, (3 * x + 1) % 17


def loss_of(model: torch.nn.Module, step: int, rank: int = RANK) -> torch.Tensor:
    x, y = batch(step)
    return F.cross_entropy(model(x[rank]).flatten(0, 1).float(), y[rank].flatten())


class PlainLion(torch.optim.Optimizer):
    """Algorithm 2 of arXiv 2302.06675."""

    def __init__(
        self, params: Any, lr: float, betas: tuple[float, float], weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for param in group["params"]:
                m = self.state[param].setdefault("exp_avg", torch.zeros_like(param))
                direction = (beta1 * m + (1 - beta1) * param.grad).sign()
                param -= group["lr"] * (direction + group["weight_decay"] * param)
                m.mul_(beta2).add_(param.grad, alpha=1 - beta2)


# By name: the rule of meron.torch, that of torch, its function of Context, the options of the first
# param group, and those in which the second differs.
Options = dict[str, Any]
RULES: dict[str, tuple[Any, Any, str, Options, Options]] = {
    "AdamW": (
        mt.AdamW,
        torch.optim.AdamW,
        "adamw",
        {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1},
        {"lr": 0.003, "weight_decay": 0.0, "betas": (0.9, 0.99), "eps": 1e-7},
    ),
    "Adam": (
        mt.Adam,
        torch.optim.Adam,
        "adam",
        {"lr": 0.01, "weight_decay": 0.1},
        {"lr": 0.003, "weight_decay": 0.01},
    ),
    "Adagrad": (
        mt.Adagrad,
        torch.optim.Adagrad,
        "adagrad",
        {"lr": 0.05, "weight_decay": 0.1},
        {"lr": 0.02, "weight_decay": 0.0},
    ),
    "Lion": (
        mt.Lion,
        PlainLion,
        "lion",
        {"lr": 0.002, "betas": (0.9, 0.99), "weight_decay": 0.1},
        {"lr": 0.001, "weight_decay": 0.0},
    ),
    "SGD": (
        mt.SGD,
        torch.optim.SGD,
        "sgd",
        {"lr": 0.2, "weight_decay": 0.01},
        {"lr": 0.1, "weight_decay": 0.0},
    ),
    "momentum": (
        mt.SGD,
        torch.optim.SGD,
        "sgd",
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01},
        {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.0},
    ),
    "Nesterov": (
        mt.SGD,
        torch.optim.SGD,
        "sgd",
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"lr": 0.05, "weight_decay": 0.0},
    ),
}


def groups_of(model: torch.nn.Module, second: Options) -> list[Options]:
    """Matrices, and the rest."""
    wide = [param for param in model.parameters() if param.dim() > 1]
    rest = [param for param in model.parameters() if param.dim() <= 1]
    return [{"params": wide}, {"params": rest, **second}]


def make(rule: str, model: torch.nn.Module, **options: Any) -> mt.EngineOptimizer:
    own, _, _, first, second = RULES[rule]
    return own(groups_of(model, second), **first, **options)  # type: ignore[no-any-return]


def make_plain(rule: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    _, plain, _, first, second = RULES[rule]
    return plain(groups_of(model, second), **first)  # type: ignore[no-any-return]


def schedule_of(optimizer: torch.optim.Optimizer) -> Any:
    """Decays the rate of each group by a factor of its own."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, [lambda step: 0.95**step, lambda step: 1 / (1 + step)]
    )


def train(model: torch.nn.Module, optimizer: Any, schedule: Any, steps: range) -> list[float]:
    losses = []
    for step in steps:
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
    return losses


def backward_of_all(plain: torch.nn.Module, step: int) -> float:
    """Computes the mean gradient over all ranks, in their order. Returns this rank's loss."""
    own = 0.0
    plain.zero_grad()
    for rank in range(RANKS):
        loss = loss_of(plain, step, rank)
        loss.backward()
        own = loss.item() if rank == RANK else own
    for param in plain.parameters():
        if param.requires_grad:
            assert param.grad is not None
            param.grad.mul_(1 / RANKS)
    return own


def train_plain(plain: torch.nn.Module, optimizer: Any, schedule: Any, steps: range) -> list[float]:
    losses = []
    for step in steps:
        losses.append(backward_of_all(plain, step))
        optimizer.step()
        schedule.step()
    return losses


def numbers_of(options: Options) -> Options:
    """Converts torch's options of a group to those of meron.Optimizer."""
    known = {key: options[key] for key in ("lr", "betas", "eps", "weight_decay") if key in options}
    if "momentum" in options:
        known["betas"] = (options["momentum"], 0.0)
    return known


class WithoutTorch:
    """Trains in one process with the engine's optimizer on NumPy arrays, in the same groups."""

    def __init__(self, rule: str, model: torch.nn.Module, max_norm: float = 0.0) -> None:
        _, _, name, first, second = RULES[rule]
        self.model = model
        self.context = meron.open(0, 1, "self")
        self.params = {
            param: self.context.param(key, tuple(param.shape))
            for key, param in model.named_parameters()
        }
        self.unit = self.context.unit("model", self.params.values())
        with self.context.update([self.unit]) as update:
            for param, own in self.params.items():
                update.write(own, param.detach().numpy())
        make: Callable[..., meron.Optimizer] = getattr(self.context, name)
        self.optimizer = make([self.unit], max_norm=max_norm, **first)
        self.groups = groups_of(model, second)
        rest = [self.params[param] for param in self.groups[1]["params"]]
        self.optimizer.add_group(rest, **numbers_of(second))
        # Torch's schedulers require an optimizer of torch.
        self.schedule = schedule_of(make_plain(rule, model))

    def step(self) -> None:
        for number, group in enumerate(self.schedule.optimizer.param_groups):
            self.optimizer.set_group(number, lr=group["lr"])
        self.unit.reduce(
            {
                own: param.grad.numpy()
                for param, own in self.params.items()
                if param.grad is not None
            }
        )
        self.optimizer.step()
        with self.unit.gather() as full, torch.no_grad():
            for param, own in self.params.items():
                param.copy_(torch.from_numpy(np.array(full[own])))
        self.schedule.optimizer._opt_called = True
        self.schedule.step()

    def train(self, steps: range) -> list[float]:
        losses = []
        for step in steps:
            losses.append(backward_of_all(self.model, step))
            self.step()
        return losses


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [mt.full_param(param) for param in model.parameters()]


def assert_equal(model: torch.nn.Module, plain: torch.nn.Module, rtol: float, atol: float) -> None:
    for (name, param), expected in zip(model.named_parameters(), plain.parameters(), strict=True):
        value = mt.full_param(param).float()
        if rtol == atol == 0:
            assert torch.equal(value, expected.detach()), name
        else:
            torch.testing.assert_close(value, expected.detach(), rtol=rtol, atol=atol, msg=name)


def twins() -> tuple[Model, Model]:
    model = build()
    return model, copy.deepcopy(model)
