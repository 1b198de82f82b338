# SPDX-License-Identifier: Apache-2.0
"""Runs of Lightning's DeepSpeedStrategy resume in Meron, from folders that DeepSpeed writes."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import batches
from fabric_runs import fabric_of
from lightning.pytorch.callbacks import ModelCheckpoint
from modules import RANK, WORLD, Gan, Regression, fit, layers, mse

import meron
import meron.lightning
import meron.torch as mt
from meron.torch.checkpoint import LoadError
from meron.torch.checkpoint.agreement import from_rank
from meron.zero import comm

pytestmark = [
    pytest.mark.ranks(2, deadline=300),
    pytest.mark.skipif(
        importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed"
    ),
]
STEPS = 4


class Plain(Regression):
    """Without a scheduler, as the model of save_deepspeed.py."""

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Own(Regression):
    def configure_optimizers(self) -> Any:
        return mt.AdamW(self.parameters(), lr=1e-2)


def save_client(folder: Path) -> Path:
    """Trains with DDP. Returns the path of its checkpoint after four steps. FOLDER/client.pt has
    what Lightning saves beside weights."""
    saved = ModelCheckpoint(folder, "{step}", every_n_train_steps=STEPS, save_top_k=-1)
    fit("ddp", Plain(), callbacks=[saved])
    path = folder / f"step={STEPS}.ckpt"
    content = torch.load(path, weights_only=False)
    for key in ("state_dict", "optimizer_states"):
        del content[key]
    if RANK == 0:
        torch.save(content, folder / "client.pt")
    from_rank(comm.any_world(), "saved")
    return path


def train_deepspeed(folder: Path, stage: int) -> list[float]:
    """Trains six steps in a process beside each rank, as DeepSpeed makes its own process groups.
    Saves after four. Returns the losses of this rank."""
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
        [sys.executable, str(script), str(folder), str(stage)],
        env={**kept, **own}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return list(json.loads((folder / f"deepspeed{stage}-{RANK}.json").read_text()))


@pytest.mark.parametrize("stage", [2, 3])
def test_resumes_runs_of_deepspeed_strategy(tmp_path: Path, stage: int) -> None:
    plain, _ = fit("ddp", Plain())
    # Lightning does not forward a plain DataLoader: compare with the resumed run of DDP.
    resumed, _ = fit("ddp", Plain(), save_client(tmp_path))
    theirs = train_deepspeed(tmp_path, stage)
    assert max(abs(a - b) for a, b in zip(theirs, plain.losses)) < 5e-4
    path = tmp_path / f"deepspeed{stage}.ckpt"
    for kind, strategy in ((Plain, "meron_stage_1"), (Own, "meron_stage_3")):
        module, made = fit(strategy, kind(), path)
        assert made.global_step == 6 and len(module.losses) == 2
        assert max(abs(a - b) for a, b in zip(module.losses, resumed.losses)) < 1e-3


def test_converts_a_folder_of_deepspeed_to_one_file(tmp_path: Path) -> None:
    save_client(tmp_path)
    for stage in (2, 3):
        train_deepspeed(tmp_path, stage)
    alone = meron.lightning.load_from_checkpoint(Plain, tmp_path / "deepspeed3.ckpt")
    assert all(param.numel() for param in alone.parameters())
    method = Plain.load_from_checkpoint(tmp_path / "deepspeed3.ckpt")
    assert all(torch.equal(*pair) for pair in zip(alone.parameters(), method.parameters()))
    path = tmp_path / f"converted{RANK}.ckpt"
    convert = meron.lightning.convert_zero_checkpoint_to_fp32_state_dict
    convert(tmp_path / "deepspeed2.ckpt", path)
    again = Plain.load_from_checkpoint(path, weights_only=False).state_dict()
    assert all((value - again[name]).abs().max() < 1e-6 for name, value in alone.named_parameters())


def test_fabric_loads_a_folder_of_deepspeed(tmp_path: Path) -> None:
    save_client(tmp_path)
    theirs = train_deepspeed(tmp_path, 3)
    fabric = fabric_of("meron_stage_2")
    model = torch.nn.Module()
    model.net = layers()
    model.forward = lambda x: model.net(x).squeeze(1)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    state = {"model": model, "optimizer": optimizer, "epoch": 9}
    rest = fabric.load(tmp_path / "deepspeed3.ckpt", state)
    assert state["epoch"] == 0 and rest["global_step"] == STEPS
    x, y = batches(RANK)[STEPS]
    assert abs(mse(model(x), y).item() - theirs[STEPS]) < 1e-6
    fabric.strategy.teardown()


def test_rejects_folders_of_deepspeed_that_do_not_fit(tmp_path: Path) -> None:
    class Wider(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.more = torch.nn.Linear(2, 2)

    save_client(tmp_path)
    train_deepspeed(tmp_path, 3)
    path = tmp_path / "deepspeed3.ckpt"
    with pytest.raises(LoadError, match="states of one optimizer"):
        fit("meron", Gan(), path)
    with pytest.raises(LoadError, match=r"more\.weight"):
        fit("meron", Wider(), path)
    from_rank(comm.any_world(), "loaded")
    if RANK == 0:
        os.remove(path / "checkpoint" / "zero_pp_rank_1_mp_rank_00_optim_states.pt")
    from_rank(comm.any_world(), "removed")
    with pytest.raises(LoadError, match="copy all its files"):
        fit("meron", Plain(), path)
