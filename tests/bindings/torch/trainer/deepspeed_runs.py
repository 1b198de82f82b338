# SPDX-License-Identifier: Apache-2.0
"""Runs of Lightning's DeepSpeedStrategy go on in Meron, from the folders that save_deepspeed.py
writes with real DeepSpeed; its own process groups come first, so each rank starts one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from batches import batches
from fabric_runs import fabric_of
from lightning.pytorch.callbacks import ModelCheckpoint
from modules import FOLDER, RANK, WORLD, Gan, Regression, fit, layers, mse, raises, run_cases

import meron.lightning
import meron.torch as mt
from meron.torch.checkpoint.agreement import from_rank
from meron.zero import comm

STEPS = 4
STAGES = (2, 3)


class Plain(Regression):
    """Without a scheduler, as that of save_deepspeed.py."""

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Own(Regression):
    def configure_optimizers(self) -> Any:
        return mt.AdamW(self.parameters(), lr=1e-2)


def train_deepspeed(stage: int) -> list[float]:
    """Losses of this rank, of six steps; the folder is of the fourth."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = from_rank(comm.any_world(), str(free.getsockname()[1]))
    own = {
        "RANK": str(RANK),
        "LOCAL_RANK": str(RANK),
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": str(WORLD),
        "LOCAL_SIZE": str(WORLD),
        "MASTER_PORT": port,
    }
    script = Path(__file__).parent / "save_deepspeed.py"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MERON_")}
    done = subprocess.run(
        [sys.executable, str(script), str(FOLDER), str(stage)],
        env={**kept, **own}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return list(json.loads((FOLDER / f"deepspeed{stage}-{RANK}.json").read_text()))


def case_a_run_goes_on() -> None:
    saved = ModelCheckpoint(FOLDER / "client", "{step}", every_n_train_steps=STEPS, save_top_k=-1)
    plain, _ = fit("ddp", Plain(), callbacks=[saved])
    content = torch.load(FOLDER / "client" / f"step={STEPS}.ckpt", weights_only=False)
    # Lightning does not forward a plain DataLoader, so DDP's resumed run is what to compare with.
    resumed, _ = fit("ddp", Plain(), FOLDER / "client" / f"step={STEPS}.ckpt")
    for key in ("state_dict", "optimizer_states"):
        del content[key]
    if RANK == 0:
        torch.save(content, FOLDER / "client.pt")
    from_rank(comm.any_world(), "saved")
    for stage in STAGES:
        theirs = train_deepspeed(stage)
        assert max(abs(a - b) for a, b in zip(theirs, plain.losses)) < 5e-4
        path = FOLDER / f"deepspeed{stage}.ckpt"
        for kind, strategy in ((Plain, "meron_stage_1"), (Own, "meron_stage_3")):
            module, made = fit(strategy, kind(), path)
            assert made.global_step == 6 and len(module.losses) == 2
            apart = max(abs(a - b) for a, b in zip(module.losses, resumed.losses))
            assert apart < 1e-3, (strategy, module.losses, resumed.losses)


def case_one_file_of_it() -> None:
    alone = meron.lightning.load_from_checkpoint(Plain, FOLDER / "deepspeed3.ckpt")
    assert all(param.numel() for param in alone.parameters())
    path = FOLDER / f"converted{RANK}.ckpt"
    convert = meron.lightning.convert_zero_checkpoint_to_fp32_state_dict
    convert(FOLDER / "deepspeed2.ckpt", path)
    again = Plain.load_from_checkpoint(path, weights_only=False).state_dict()
    assert all((value - again[name]).abs().max() < 1e-6 for name, value in alone.named_parameters())


def case_fabric() -> None:
    theirs = json.loads((FOLDER / f"deepspeed3-{RANK}.json").read_text())
    fabric = fabric_of("meron_stage_2")
    model = torch.nn.Module()
    model.net = layers()
    model.forward = lambda x: model.net(x).squeeze(1)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    state = {"model": model, "optimizer": optimizer, "epoch": 9}
    rest = fabric.load(FOLDER / "deepspeed3.ckpt", state)
    assert state["epoch"] == 0 and rest["global_step"] == STEPS
    x, y = batches(RANK)[STEPS]
    assert abs(mse(model(x), y).item() - theirs[STEPS]) < 1e-6
    fabric.strategy.teardown()


def case_misuse() -> None:
    path = FOLDER / "deepspeed3.ckpt"
    raises("LoadError", "states of one optimizer", lambda: fit("meron", Gan(), path))

    class Wider(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.more = torch.nn.Linear(2, 2)

    raises("LoadError", "more.weight", lambda: fit("meron", Wider(), path))
    if RANK == 0:
        os.remove(path / "checkpoint" / "zero_pp_rank_1_mp_rank_00_optim_states.pt")
    from_rank(comm.any_world(), "removed")
    raises("LoadError", "copy all its files", lambda: fit("meron", Plain(), path))


if __name__ == "__main__":
    run_cases(dict(globals()))
