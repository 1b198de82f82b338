# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as one file, which Meron and DDP read. A file that does not fit changes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from fabric_runs import distance as distance_of
from fabric_runs import fabric_of, run
from lightning.pytorch.callbacks import ModelCheckpoint
from modules import RANK, Gan, Regression, distance, fit, layers

import meron.torch as mt
from meron.lightning import MeronFabricStrategy, MeronStrategy, unsharded
from meron.lightning.optimizers import bare
from meron.torch.checkpoint import LoadError

pytestmark = pytest.mark.ranks(2)


class Own(Regression):
    def configure_optimizers(self) -> Any:
        return mt.AdamW(self.parameters(), lr=1e-2)


def single(**options: Any) -> Any:
    return MeronStrategy(save_distributed_checkpoint=False, **options)


def trained(folder: Path, path: str, module: Any, strategy: Any, **options: Any) -> Any:
    """Trains two epochs, and saves a file after each. Returns the module."""
    link = "link" if "stage1" in path else None
    callback = ModelCheckpoint(folder, path, every_n_epochs=1, save_top_k=-1, save_last=link)
    return fit(strategy, module, max_epochs=2, callbacks=[callback], **options)[0]


def test_a_file_resumes_under_each_strategy(tmp_path: Path) -> None:
    plain, _ = fit("ddp", max_epochs=2)
    for stage, late in ((1, False), (3, True)):
        module = trained(tmp_path, f"stage{stage}-{{epoch}}", Regression(late), single(stage=stage))
        assert distance(module, plain) == 0
        path = tmp_path / f"stage{stage}-epoch=0.ckpt"
        assert path.is_file() and os.readlink(tmp_path / "last.ckpt") == "stage1-epoch=1.ckpt"
        for strategy in ("ddp", "meron_stage_2", single(stage=3)):
            again, _ = fit(strategy, Regression(), path, max_epochs=2)
            assert again.losses == plain.losses[6:] and distance(again, plain) == 0
    loaded = Regression.load_from_checkpoint(path)
    assert loaded.state_dict().keys() == plain.state_dict().keys()


def test_a_file_resumes_the_engines_optimizer(tmp_path: Path) -> None:
    module = trained(tmp_path, "own-{epoch}", Own(), single(stage=2))
    path = tmp_path / "own-epoch=0.ckpt"
    again, _ = fit("meron_stage_3", Own(), path, max_epochs=2)
    assert again.losses == module.losses[6:] and distance(again, module) == 0


def test_a_file_has_f32_values_of_16_bit_params(tmp_path: Path) -> None:
    for kind in (Regression, Own):
        name = f"half-{kind.__name__}"
        module = trained(
            tmp_path, name + "-{epoch}", kind(), single(stage=2), precision="bf16-mixed"
        )
        path = tmp_path / f"{name}-epoch=0.ckpt"
        values = torch.load(path, weights_only=False)["state_dict"].values()
        assert {value.dtype for value in values} == {torch.float32}
        again, _ = fit("meron_stage_3", kind(), path, max_epochs=2, precision="bf16-mixed")
        assert again.losses == module.losses[6:] and distance(again, module) == 0


def test_a_file_resumes_several_optimizers(tmp_path: Path) -> None:
    module = trained(tmp_path, "gan-{epoch}", Gan(), single(stage=3))
    path = tmp_path / "gan-epoch=0.ckpt"
    again, _ = fit("meron_stage_1", Gan(), path, max_epochs=2)
    assert again.losses == module.losses[12:] and distance(again, module) == 0


def test_hooks_change_what_a_file_contains(tmp_path: Path) -> None:
    class Edited(Regression):
        def on_save_checkpoint(self, checkpoint: dict) -> None:
            checkpoint["state_dict"]["extra"] = torch.ones(2)
            del checkpoint["state_dict"]["net.4.bias"]

    module = Edited()
    module.net[0].requires_grad_(False)
    _, made = fit(single(stage=3, exclude_frozen_parameters=True), module)
    made.save_checkpoint(tmp_path / "edited.ckpt", weights_only=True)
    content = torch.load(tmp_path / "edited.ckpt", weights_only=True)
    assert sorted(content["state_dict"]) == ["extra", "net.2.bias", "net.2.weight", "net.4.weight"]
    assert "optimizer_states" not in content
    os.makedirs(tmp_path / "taken.ckpt", exist_ok=True)
    with pytest.raises(Exception, match="is a directory"):
        made.save_checkpoint(tmp_path / "taken.ckpt")


def test_rejects_another_optimizer_before_it_loads_weights(tmp_path: Path) -> None:
    class Grouped(Regression):
        def configure_optimizers(self) -> Any:
            weights, biases = list(self.net[0].parameters()), list(self.net[2:].parameters())
            return torch.optim.AdamW([{"params": weights}, {"params": biases}], lr=1e-2)

    class Momentum(Regression):
        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-2, momentum=0.9)

    trained(tmp_path, "{epoch}", Regression(), single(stage=1))
    path = tmp_path / "epoch=0.ckpt"
    for kind, text in ((Grouped, "param groups of"), (Momentum, "momentum"), (Gan, "of 1 opt")):
        module = kind()
        before = [value.clone() for value in module.state_dict().values()]
        with pytest.raises(LoadError, match=text):
            fit("meron_stage_2", module, path)
        assert all(map(torch.equal, before, module.state_dict().values()))
    anew, _ = fit(MeronStrategy(load_full_weights=True), Momentum(), path, max_epochs=2)
    assert len(anew.losses) == 6


def test_resumes_a_module_without_optimizers(tmp_path: Path) -> None:
    class Idle(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> None:
            self(batch[0])

        def configure_optimizers(self) -> None:
            return None

    module, made = fit(single(stage=2), Idle())
    made.save_checkpoint(tmp_path / "idle.ckpt")
    again, _ = fit("meron_stage_3", Idle(), tmp_path / "idle.ckpt", max_epochs=2)
    assert distance(again, module) == 0


def test_loads_without_resharding_at_the_same_world_size(tmp_path: Path) -> None:
    _, made = fit("meron_stage_2")
    made.save_checkpoint(tmp_path / "two.ckpt")
    fit(MeronStrategy(reshard_on_load=False), Regression(), tmp_path / "two.ckpt", max_epochs=2)


def of_fabric(stage: int, **options: Any) -> Any:
    return MeronFabricStrategy(save_distributed_checkpoint=False, stage=stage, **options)


def test_fabric_resumes_from_a_file_under_each_strategy(tmp_path: Path) -> None:
    plain = run("ddp")
    for stage in (1, 3):
        path = tmp_path / f"{stage}.pt"
        run(of_fabric(stage), steps=3, save=path)
        assert path.is_file()
        for again in ("ddp", "meron_stage_2", of_fabric(stage)):
            losses, values = run(again, resume=path)
            assert losses == plain[0][3:] and distance_of(values, plain[1]) == 0


def test_fabric_rejects_another_optimizer_before_it_loads_weights(tmp_path: Path) -> None:
    run(of_fabric(1), steps=3, save=tmp_path / "adam.pt")
    fabric = fabric_of("meron_stage_3")
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.5)
    model, optimizer = fabric.setup(model, optimizer)
    state = {"model": model, "optimizer": optimizer, "step": 0}
    before = [value.clone() for value in model.state_dict().values()]
    with pytest.raises(LoadError, match="momentum"):
        fabric.load(tmp_path / "adam.pt", state)
    assert all(map(torch.equal, before, model.state_dict().values())) and state["step"] == 0
    state["absent"] = 1
    with pytest.raises(KeyError, match="'absent'"):
        fabric.load(tmp_path / "adam.pt", state)
    fabric.strategy.teardown()


def test_fabric_loads_weights_without_optimizer_states(tmp_path: Path) -> None:
    path = tmp_path / "adam.pt"
    run(of_fabric(1), steps=3, save=path)
    strategy = MeronFabricStrategy(save_distributed_checkpoint=False, load_full_weights=True)
    fabric = fabric_of(strategy)
    model = layers()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.5))
    state = {"model": model, "optimizer": optimizer}
    rest = fabric.load(path, state, strict=False)
    assert "optimizer" not in rest and optimizer.param_groups[0]["lr"] == 0.5
    values = torch.load(path, weights_only=False)["model"]
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    # Rank 0 writes, and fails on all ranks.
    with pytest.raises(Exception, match="File exists"):
        fabric.save(path / "below.pt", state)
    fabric.save(tmp_path / "again.pt", state)
    fabric.strategy.teardown()


def test_optimizer_states_that_a_file_lacks_are_reset(tmp_path: Path) -> None:
    for kind, options in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adagrad, {})):
        fabric = fabric_of(of_fabric(2))
        model = layers()
        model, optimizer = fabric.setup(model, kind(model.parameters(), lr=1e-2, **options))
        state = {"model": model, "optimizer": optimizer}
        fabric.save(tmp_path / "before.pt", state)

        def step(model: Any = model, optimizer: Any = optimizer, fabric: Any = fabric) -> Any:
            fabric.backward(model(torch.ones(2, 16)).sum())
            optimizer.step()
            optimizer.zero_grad()
            return {name: value.clone() for name, value in model.state_dict().items()}

        first = step()
        step()
        fabric.load(tmp_path / "before.pt", state)
        assert distance_of(step(), first) == 0, kind
        fabric.strategy.teardown()


def test_fabric_loads_a_file_into_an_optimizer_that_is_not_set_up(tmp_path: Path) -> None:
    """Its states follow it when it is set up."""
    plain = layers()
    stepped = torch.optim.Adam(plain.parameters(), lr=0.5)
    plain(torch.ones(3, 16)).sum().backward()
    stepped.step()
    path, other = tmp_path / f"optimizer-{RANK}.pt", tmp_path / f"other-{RANK}.pt"
    torch.save(stepped.state_dict(), path)
    torch.save(plain.state_dict(), other)
    first = stepped.state_dict()["state"][0]["exp_avg"]
    for stage in (1, 3):
        fabric = fabric_of(f"meron_stage_{stage}")
        for built_in_shards in (False, True):
            with fabric.init_module() if built_in_shards else torch.enable_grad():
                model = layers()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            with pytest.raises(LoadError, match="no state of Adam"):
                fabric.load_raw(other, optimizer)
            fabric.load_raw(path, optimizer)
            assert optimizer.param_groups[0]["lr"] == 0.5
            assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], first)
            model, optimizer = fabric.setup(model, optimizer)
            states = unsharded.full_states(bare(optimizer))["state"]
            assert torch.equal(states[0]["exp_avg"], first) and states[0]["step"] == 1
        fabric.strategy.teardown()
