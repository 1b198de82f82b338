# SPDX-License-Identifier: Apache-2.0
"""Runs that two ranks saved resume on another number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from fabric_runs import run
from modules import Regression, fit, layers, loader, trainer
from saved_runs import train_and_save

from meron.lightning import (
    MeronStrategy,
    convert_zero_checkpoint_to_fp32_state_dict,
    load_from_checkpoint,
)
from meron.torch.checkpoint import LoadError

Values = dict[str, torch.Tensor]
other_world_sizes = pytest.mark.parametrize("world_size", [1, 3])


def save(folder: Path) -> tuple[list[float], Values]:
    """Returns the losses and values of a run that was saved."""
    module, _ = train_and_save(folder)
    return module.losses, {name: value.clone() for name, value in module.state_dict().items()}


def resume_the_end(path: Path, losses: list[float], values: Values) -> None:
    for strategy, late in (("meron_stage_1", False), ("meron_stage_3", True)):
        module: Any = Regression(late)
        seen: list[Values] = []
        module.on_train_start = lambda seen=seen, module=module: seen.append(module.state_dict())
        _, made = fit(strategy, module, path, max_epochs=3)
        assert all(torch.equal(seen[0][name], values[name]) for name in values)
        assert made.global_step == 12 + len(module.losses) > 12
        assert module.losses[-1] < losses[0]


@other_world_sizes
def test_resumes_at_another_world_size(tmp_path: Path, world_size: int) -> None:
    losses, values = ranks.call(2, save, tmp_path)[0]
    ranks.call(world_size, resume_the_end, tmp_path / "end.ckpt", losses, values)


def resume_mid_epoch(path: Path) -> None:
    module, made = fit("meron_stage_2", Regression(), path, max_epochs=2)
    assert made.global_step == 8 + len(module.losses)
    assert made.optimizers[0].param_groups[0]["lr"] == 1e-2 * 0.5 ** (made.global_step // 2)


@other_world_sizes
def test_resumes_mid_epoch_at_another_world_size(tmp_path: Path, world_size: int) -> None:
    ranks.call(2, save, tmp_path)
    ranks.call(world_size, resume_mid_epoch, tmp_path / "step=8.ckpt")


def resume_without_resharding(path: Path) -> None:
    strategy = MeronStrategy(reshard_on_load=False)
    with pytest.raises(LoadError, match="was saved by 2 ranks"):
        fit(strategy, Regression(), path, max_epochs=3)


@other_world_sizes
def test_rejects_another_world_size_without_resharding(tmp_path: Path, world_size: int) -> None:
    ranks.call(2, save, tmp_path)
    ranks.call(world_size, resume_without_resharding, tmp_path / "end.ckpt")


def save_with_fabric(path: Path) -> None:
    run("meron_stage_3", steps=3, save=path)


def resume_with_fabric(path: Path) -> None:
    losses, values = run("meron_stage_1", resume=path)
    assert losses and values.keys() == layers().state_dict().keys()


@other_world_sizes
def test_fabric_resumes_at_another_world_size(tmp_path: Path, world_size: int) -> None:
    ranks.call(2, save_with_fabric, tmp_path / "fabric")
    ranks.call(world_size, resume_with_fabric, tmp_path / "fabric")


def convert(folder: Path, values: Values) -> None:
    path = folder / "single.ckpt"
    content = convert_zero_checkpoint_to_fp32_state_dict(folder / "end.ckpt", path)
    assert {"epoch", "loops", "callbacks", "mine", "state_dict"} <= content.keys()
    alone = Regression.load_from_checkpoint(path, weights_only=False)
    short = load_from_checkpoint(Regression, folder / "end.ckpt")
    method = Regression.load_from_checkpoint(folder / "end.ckpt", map_location="cpu", late=False)
    for module in (alone, short, method):
        assert all(torch.equal(module.state_dict()[name], values[name]) for name in values)
    for wrong in (folder, folder / "none.ckpt"):
        with pytest.raises((IsADirectoryError, FileNotFoundError), match=wrong.name):
            Regression.load_from_checkpoint(wrong)
    module, made = fit("meron_stage_3", Regression(), path, max_epochs=3)
    assert made.global_step == 12 + len(module.losses)
    module = Regression()
    trainer("meron_stage_2").validate(module, loader(), verbose=False, ckpt_path=path)
    assert all(torch.equal(module.state_dict()[name], values[name]) for name in values)


def test_converts_a_checkpoint_of_two_ranks_to_one_file(tmp_path: Path) -> None:
    _, values = ranks.call(2, save, tmp_path)[0]
    ranks.call(1, convert, tmp_path, values)
