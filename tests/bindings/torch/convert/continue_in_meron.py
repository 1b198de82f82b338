# SPDX-License-Identifier: Apache-2.0
"""One rank that continues the training of train_deepspeed.py with Meron.

continue_in_meron.py STAGE DTYPE FOLDER OUT    (FOLDER: of the imported checkpoint)
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

import meron.zero as zero
from model import Model, batch, config_of, groups_of, loss_of


def main() -> None:
    stage, dtype, folder, out = int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
    rank = int(os.environ["MERON_RANK"])
    torch.manual_seed(1)  # other values than those that were saved
    model = Model()
    engine, *_ = zero.initialize(
        model=model, config=config_of(stage, dtype), model_parameters=groups_of(model)
    )
    path, client_state = engine.load_checkpoint(folder)
    losses = []
    for number in range(3, 6):
        loss = loss_of(engine, batch(number, rank))
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    found = {
        "path": str(path),
        "epoch": client_state.get("epoch"),
        "steps": engine.global_steps,
        "losses": losses,
    }
    (out / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
