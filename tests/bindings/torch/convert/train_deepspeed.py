# SPDX-License-Identifier: Apache-2.0
"""One rank of a training with DeepSpeed on the CPU: 3 steps, a checkpoint, 3 more steps.

train_deepspeed.py STAGE DTYPE FOLDER    (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are set)
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist

VOCABULARY = 11


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = torch.nn.Embedding(VOCABULARY, 6)
        self.a = torch.nn.Linear(6, 7)
        self.b = torch.nn.Linear(7, 6, bias=False)
        self.n = torch.nn.LayerNorm(6)
        self.head = torch.nn.Linear(6, VOCABULARY, bias=False)
        self.head.weight = self.e.weight
        self.register_buffer("buffer", torch.arange(3.0))
        self.frozen = torch.nn.Parameter(torch.ones(5), requires_grad=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.n(self.b(torch.relu(self.a(self.e(tokens)))))
        return self.head(hidden)  # type: ignore[no-any-return]


def batch(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, VOCABULARY, (2, 5), generator=generator)


def loss_of(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    out = model(tokens).float().reshape(-1, VOCABULARY)
    return torch.nn.functional.cross_entropy(out, tokens.reshape(-1))


def main() -> None:
    stage, dtype, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    rank = int(os.environ["RANK"])
    deepspeed.init_distributed("gloo", verbose=False)
    torch.manual_seed(0)
    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "bf16": {"enabled": dtype == "bf16"},
        "gradient_clipping": 0.0,
        "steps_per_print": 10**9,
    }
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0},
    ]
    engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=groups)

    def step(number: int) -> float:
        loss = loss_of(engine, batch(number, rank))
        engine.backward(loss)
        engine.step()
        return float(loss)

    for number in range(3):
        step(number)
    engine.save_checkpoint(str(folder), client_state={"epoch": 4})
    losses = [step(number) for number in range(3, 6)]
    (folder / f"losses{rank}.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
