#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts from published weights, trains them further, and publishes the result.

    python3 finetune.py                             one process
    meron run -n 4 -- python3 finetune.py           four ranks

The published model is made here first, by a short training, so that nothing is downloaded. --model
takes another one: a directory as Hugging Face publishes it, of a model of the same shapes.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import torch
from torch import nn

import meron
import meron.torch as mt

WIDTH, CONTEXT, LAYERS = 64, 32, 3
ORIGINAL = b"the quick brown fox jumps over the lazy dog. " * 40
NEW = b"pack my box with five dozen liquor jugs, said the fox. " * 40


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = torch.cumsum(x, 1) / torch.arange(1, x.shape[1] + 1)[None, :, None]
        return x + self.down(torch.relu(self.up(self.norm(x + before))))


class LanguageModel(nn.Module):
    """Tells the next byte by the bytes before."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embed(text)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def loss_of(model: nn.Module, text: torch.Tensor) -> torch.Tensor:
    logits = model(text[:, :-1])
    return nn.functional.cross_entropy(logits.reshape(-1, 256), text[:, 1:].reshape(-1))


def batches(text: bytes, seed: int) -> torch.Tensor:
    """Eight parts of the text, which another seed takes from other places."""
    data = torch.tensor(list(text))
    generator = torch.Generator().manual_seed(seed)
    at = torch.randint(0, len(text) - CONTEXT - 1, (8,), generator=generator)
    return torch.stack([data[i : i + CONTEXT + 1] for i in at.tolist()])


def train(model: nn.Module, text: bytes, steps: int, rank: int) -> tuple[float, float]:
    """The losses of the first step and the last."""
    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    losses = []
    for step in range(steps):
        loss = loss_of(model, batches(text, 1000 * step + rank))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses[0], losses[-1]


def publish(folder: Path, steps: int, rank: int) -> None:
    """Trains and publishes the model from which this example starts."""
    torch.manual_seed(0)
    model = LanguageModel()
    mt.shard(model, units=Block)
    train(model, ORIGINAL, steps, rank)
    mt.save_pretrained(model, folder, max_file_bytes=256 << 10, overwrite=True)
    mt.destroy(model)


def look(folder: Path) -> None:
    """By anybody's tools: here by safetensors, where it is installed."""
    files = sorted(each.name for each in folder.iterdir() if each.suffix == ".safetensors")
    if importlib.util.find_spec("safetensors") is not None:
        from safetensors.torch import load_file

        tensors = {name: t for file in files for name, t in load_file(folder / file).items()}
        plain = LanguageModel()
        plain.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        loss = float(loss_of(plain, batches(NEW, 1)).detach())
        print(f"safetensors and torch alone read {len(files)} files: loss {loss:.2f}")
        return
    with meron.open_checkpoint(folder) as checkpoint:
        print(
            f"{len(files)} files with {len(checkpoint.tensors)} tensors (safetensors is not here)"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="published weights; else they are made")
    parser.add_argument(
        "--folder", type=Path, default=Path("pretrained"), help="of all weights (%(default)s)"
    )
    parser.add_argument("--steps", type=int, default=60, help="of each training (%(default)s)")
    given = parser.parse_args()
    context = mt.context_for("zero3")
    published = given.model or given.folder / "published"
    if given.model is None:
        publish(published, given.steps, context.rank)
    with torch.device("meta"):  # takes no memory
        model = LanguageModel()
    mt.shard(model, units=Block, init="defer")
    mt.load_pretrained(model, published)  # each rank reads its own shards
    first, last = train(model, NEW, given.steps, context.rank)
    finetuned = given.folder / "finetuned"
    mt.save_pretrained(model, finetuned, dtype=torch.bfloat16, overwrite=True)
    if context.rank == 0:
        print(f"on {context.world_size} ranks, from {published}: loss {first:.2f} -> {last:.2f}")
        look(finetuned)
    return 0


if __name__ == "__main__":
    sys.exit(main())
