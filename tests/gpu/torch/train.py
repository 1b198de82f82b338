# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on a GPU, by meron.torch and by meron.zero, beside plain PyTorch on the CPU.

    python3 tests/gpu/torch/train.py

Two ranks share the GPU. Losses must agree within a tolerance, because a GPU sums in another order;
and between steps the ranks hold nothing of the model there. Exit status 77: PyTorch or a GPU is
missing. tools/gpu-check runs it.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

RANKS = 2
STEPS = 12
WIDTH, HEADS, LAYERS, WORDS, LENGTH = 256, 8, 4, 256, 64
LIMIT = 50  # seconds for all ranks
SKIPPED = 77
MIB = 1 << 20
CLOSE = {"plain f32": 0.0, "torch f32": 2e-3, "torch bf16": 3e-2, "zero bf16": 3e-2}


def why_not() -> str | None:
    try:
        import torch
    except ImportError as error:
        return str(error)
    return None if torch.cuda.is_available() else "PyTorch finds no CUDA device"


# ---- The model ----------------------------------------------------------------------------------


def make_model() -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(WIDTH)
            self.mix = nn.Linear(WIDTH, 3 * WIDTH)
            self.out = nn.Linear(WIDTH, WIDTH)
            self.norm2 = nn.LayerNorm(WIDTH)
            self.up = nn.Linear(WIDTH, 4 * WIDTH)
            self.down = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            shape = (*x.shape[:2], 3, HEADS, WIDTH // HEADS)
            q, k, v = self.mix(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, WIDTH)
            self.places = nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, WORDS, bias=False)
            self.register_buffer("order", torch.arange(LENGTH))

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places(self.order)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    return GPT()


def units_of(model: Any) -> Any:
    return type(model.blocks[0])


def batch(step: int, rank: int) -> Any:
    """Counting, by a step of the row's own."""
    import torch

    generator = torch.Generator().manual_seed(1000 * step + rank)
    first = torch.randint(0, WORDS, (4, 1), generator=generator)
    stride = torch.randint(1, 4, (4, 1), generator=generator)
    return (first + stride * torch.arange(LENGTH + 1)) % WORDS


def loss_of(model: Any, tokens: Any) -> Any:
    import torch

    logits = model(tokens[:, :-1]).flatten(0, 1).float()
    return torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())


# ---- Trainings: the losses of rank 0 ------------------------------------------------------------


def plain() -> list[float]:
    import torch

    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(RANKS):
            loss = loss_of(model, batch(step, rank)) / RANKS
            loss.backward()
            losses += [loss.item() * RANKS] if rank == 0 else []
        optimizer.step()
    return losses


def torch_names(rank: int, dtype: Any) -> list[float]:
    import meron.torch as mt
    from meron.torch.passes import units_below

    model = make_model()
    mp = mt.MixedPrecision(dtype) if dtype is not None else None
    mt.shard(model, units=units_of(model), device="cuda", mp=mp, persist_elements=0)
    optimizer = mt.AdamW(model, lr=1e-3)
    losses = []
    for step in range(STEPS):
        loss = loss_of(model, batch(step, rank).cuda())
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        held = sum(unit.memory.storage.nbytes() for unit in units_below(model))
        require(held == 0, f"{held / MIB:.1f} MiB of params are held on the GPU after a step")
    return losses


def zero_names(rank: int) -> list[float]:
    from meron import zero

    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 3},
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 1e-2}},
    }
    engine, *_ = zero.initialize(model=make_model().cuda(), config=config)
    require(engine.device.type == "cuda", f"the engine is on {engine.device}")
    losses = []
    for step in range(STEPS):
        loss = loss_of(engine, batch(step, rank).to(engine.device))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    return losses


def require(fine: bool, what: str) -> None:
    if not fine:
        raise SystemExit(f"FAILED: {what}")


# ---- Ranks --------------------------------------------------------------------------------------


def run_rank(rank: int) -> None:
    faulthandler.dump_traceback_later(LIMIT - 5)  # where a rank hangs, if it does

    import torch

    expected = plain()
    trainings: dict[str, Any] = {
        "plain f32": lambda: expected,
        "torch f32": lambda: torch_names(rank, None),
        "torch bf16": lambda: torch_names(rank, torch.bfloat16),
        "zero bf16": lambda: zero_names(rank),
    }
    for name, train in trainings.items():
        torch.cuda.reset_peak_memory_stats()
        begin = time.monotonic()
        losses = train()
        seconds = time.monotonic() - begin
        worst = max(abs(a - b) / b for a, b in zip(losses, expected)) if rank == 0 else 0.0
        peak = torch.cuda.max_memory_allocated() / MIB
        if rank == 0:
            print(
                f"{name:<11} loss {losses[0]:.4f} -> {losses[-1]:.4f}, off by {worst:.1e} at most, "
                f"{seconds:.1f} s, {peak:.0f} MiB of the GPU at most",
                flush=True,
            )
        require(worst <= CLOSE[name], f"{name} is off by {worst:.1e} from plain PyTorch on the CPU")
        require(losses[-1] < losses[0], f"{name} did not learn")


def main() -> int:
    if "MERON_RANK" in os.environ:
        run_rank(int(os.environ["MERON_RANK"]))
        return 0
    missing = why_not()
    if missing is not None:
        print(missing)
        return SKIPPED
    with tempfile.TemporaryDirectory() as store:
        shared = {**os.environ, "MERON_STORE": store, "MERON_WORLD_SIZE": str(RANKS)}
        # More threads than cores wait for each other.
        shared["OMP_NUM_THREADS"] = str(max(1, min(4, len(os.sched_getaffinity(0)) // RANKS)))
        command = [sys.executable, __file__]
        ranks = [
            subprocess.Popen(command, env={**shared, "MERON_RANK": str(rank)})
            for rank in range(RANKS)
        ]
        end = time.monotonic() + LIMIT
        try:
            statuses = [rank.wait(max(end - time.monotonic(), 1)) for rank in ranks]
        except subprocess.TimeoutExpired:
            print(f"FAILED: the ranks took more than {LIMIT} s")
            return 1
        finally:
            for rank in ranks:
                rank.kill()
    return 0 if not any(statuses) else 1


if __name__ == "__main__":
    sys.exit(main())
