# SPDX-License-Identifier: Apache-2.0
"""One rank of short trainings with the package `deepspeed` that Python finds.

train.py FOLDER [CASE ...]    (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set)

Trains each case of configs.py with the key `gradient_clipping` and without it. Writes RANK.json
into FOLDER: the version of the package, and what each training found.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.nn.functional as F
from configs import CASES, STEPS, Case

RANK = int(os.environ["RANK"])
WORDS, WIDTH, LENGTH, HEADS = 29, 16, 12, 2


class Block(torch.nn.Module):
    """Attention and a perceptron, as in LLaMA: no biases in attention.

    A bias of keys has no gradient but rounding, which Adam would make a full step of.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.nn.LayerNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.between = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.qkv(self.before(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts.unbind(), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Model(torch.nn.Module):
    """A causal language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        torch.nn.init.normal_(self.embed.weight, std=0.1)  # norms of gradients are about 1
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens[:, :-1])
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def batch(number: int, rows: int) -> torch.Tensor:
    """This rank's micro-batch: sequences that count up by 1 to 3, with some words replaced."""
    generator = torch.Generator().manual_seed(1000 * number + RANK)
    first = torch.randint(0, WORDS, (rows, 1), generator=generator)
    stride = torch.randint(1, 4, (rows, 1), generator=generator)
    tokens = (first + stride * torch.arange(LENGTH)) % WORDS
    noise = torch.randint(0, WORDS, tokens.shape, generator=generator)
    return torch.where(torch.rand(tokens.shape, generator=generator) < 0.1, noise, tokens)


def groups(model: torch.nn.Module, decay: float | None) -> Any:
    params = list(model.parameters())
    if decay is None:
        return params
    return [
        {"params": [param for param in params if param.ndim > 1], "weight_decay": decay},
        {"params": [param for param in params if param.ndim == 1], "weight_decay": 0.0},
    ]


def copies(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The full parameters, in f64."""
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return {name: param.detach().double() for name, param in model.named_parameters()}


def movement(before: torch.Tensor, after: torch.Tensor) -> tuple[float, float]:
    """The length of a parameter's change, and its product with a fixed random direction.

    Two changes that differ by a vector have products that differ by about its length.
    """
    change = (after - before).flatten()
    direction = torch.randn(len(change), generator=torch.Generator().manual_seed(1)).double()
    return change.norm().item(), (change @ direction).item()


def run(case: Case, clipped: bool) -> dict[str, Any]:
    """Trains; returns losses, rates and norms by step, and the change of each parameter."""
    torch.manual_seed(0)
    model = Model()
    before = {name: param.detach().double() for name, param in model.named_parameters()}
    params = groups(model, case.decay)
    optimizer = case.optimizer(params) if case.optimizer else None
    scheduler = case.scheduler(optimizer) if case.scheduler else None
    engine = deepspeed.initialize(
        model=model,
        model_parameters=None if optimizer else params,
        optimizer=optimizer,
        lr_scheduler=scheduler,
        config=case.config(clipped),
    )[0]
    losses, rates, norms = [], [], []
    rows = engine.train_micro_batch_size_per_gpu()
    micro_batches = engine.gradient_accumulation_steps()
    for step in range(STEPS):
        rates.append(engine.get_lr()[0])
        total = 0.0
        for part in range(micro_batches):
            loss = engine(batch(step * micro_batches + part, rows))
            engine.backward(loss)
            engine.step()
            total += loss.item()
        losses.append(total / micro_batches)
        norm = engine.get_global_grad_norm()
        norms.append(None if norm is None else float(norm))
    after = copies(engine.module)
    moved = {name: movement(before[name], value) for name, value in after.items()}
    engine.destroy()
    return {"losses": losses, "rates": rates, "norms": norms, "moved": moved}


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(CASES)
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    found: dict[str, Any] = {"version": deepspeed.__version__, "runs": {}}
    for name in names:
        for clipped in (True, False):
            key = f"{name}, {'with' if clipped else 'without'} the key"
            found["runs"][key] = run(CASES[name], clipped)
    (folder / f"{RANK}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
