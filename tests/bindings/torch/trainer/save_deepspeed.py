# SPDX-License-Identifier: Apache-2.0
"""One rank of a training with DeepSpeed on the CPU, saved as Lightning's DeepSpeedStrategy does.

save_deepspeed.py FOLDER STAGE    (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are set)

FOLDER/client.pt has what Lightning keeps beside weights; losses of the steps after go to a file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from batches import batches
from torch import nn

STEPS = 4


class Net(nn.Module):
    """The names of modules.Regression."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.net = nn.Sequential(
            nn.Linear(16, 33), nn.Tanh(), nn.Linear(33, 16), nn.Tanh(), nn.Linear(16, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x).squeeze(1)


def main() -> None:
    folder, stage, rank = Path(sys.argv[1]), int(sys.argv[2]), int(os.environ["RANK"])
    deepspeed.init_distributed("gloo", verbose=False)
    model = Net()
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    losses = []
    for number, (x, y) in enumerate(batches(rank)):
        if number == STEPS:
            client = torch.load(folder / "client.pt", weights_only=False)
            engine.save_checkpoint(str(folder / f"deepspeed{stage}.ckpt"), "checkpoint", client)
        loss = nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    (folder / f"deepspeed{stage}-{rank}.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
