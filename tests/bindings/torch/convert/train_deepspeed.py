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

from model import Model, batch, config_of, groups_of, loss_of


def main() -> None:
    stage, dtype, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    rank = int(os.environ["RANK"])
    deepspeed.init_distributed("gloo", verbose=False)
    torch.manual_seed(0)
    model = Model()
    engine, *_ = deepspeed.initialize(
        model=model, config=config_of(stage, dtype), model_parameters=groups_of(model)
    )

    def step(number: int) -> float:
        loss = loss_of(engine, batch(number, rank))
        engine.backward(loss)
        engine.step()
        return float(loss.detach())

    for number in range(3):
        step(number)
    engine.save_checkpoint(str(folder), client_state={"epoch": 4})
    losses = [step(number) for number in range(3, 6)]
    (folder / f"losses{rank}.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
