# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as one file: written by Meron, read by Meron and DDP; what does not fit is refused
before anything of it is loaded."""

from __future__ import annotations

import os
from typing import Any

import torch
from fabric_runs import distance as distance_of
from fabric_runs import fabric_of, run
from lightning.pytorch.callbacks import ModelCheckpoint
from modules import FOLDER, WORLD, Gan, Regression, distance, fit, layers, raises, run_cases

import meron.torch as mt
from meron.lightning import MeronFabricStrategy, MeronStrategy

HERE = FOLDER / "files"


class Own(Regression):
    def configure_optimizers(self) -> Any:
        return mt.AdamW(self.parameters(), lr=1e-2)


def single(**options: Any) -> Any:
    return MeronStrategy(save_distributed_checkpoint=False, **options)


def saved(path: str, module: Any, strategy: Any, **options: Any) -> Any:
    """A run of two epochs, with a file after the first."""
    link = "link" if "stage1" in path else None
    callback = ModelCheckpoint(HERE, path, every_n_epochs=1, save_top_k=-1, save_last=link)
    return fit(strategy, module, max_epochs=2, callbacks=[callback], **options)[0]


def case_a_file_goes_on_anywhere() -> None:
    plain, _ = fit("ddp", max_epochs=2)
    for stage, late in ((1, False), (3, True)):
        module = saved(f"stage{stage}-{{epoch}}", Regression(late), single(stage=stage))
        assert distance(module, plain) == 0
        path = HERE / f"stage{stage}-epoch=0.ckpt"
        assert path.is_file() and os.readlink(HERE / "last.ckpt") == "stage1-epoch=1.ckpt"
        for strategy in ("ddp", "meron_stage_2", single(stage=3)):
            again, _ = fit(strategy, Regression(), path, max_epochs=2)
            assert again.losses == plain.losses[6:] and distance(again, plain) == 0
    loaded = Regression.load_from_checkpoint(path)
    assert loaded.state_dict().keys() == plain.state_dict().keys()


def case_the_engines_optimizer_in_a_file() -> None:
    module = saved("own-{epoch}", Own(), single(stage=2))
    path = HERE / "own-epoch=0.ckpt"
    again, _ = fit("meron_stage_3", Own(), path, max_epochs=2)
    assert again.losses == module.losses[6:] and distance(again, module) == 0


def case_f32_values_of_16_bit_params() -> None:
    for kind in (Regression, Own):
        name = f"half-{kind.__name__}"
        module = saved(name + "-{epoch}", kind(), single(stage=2), precision="bf16-mixed")
        path = HERE / f"{name}-epoch=0.ckpt"
        values = torch.load(path, weights_only=False)["state_dict"].values()
        assert {value.dtype for value in values} == {torch.float32}
        again, _ = fit("meron_stage_3", kind(), path, max_epochs=2, precision="bf16-mixed")
        assert again.losses == module.losses[6:] and distance(again, module) == 0


def case_several_optimizers_in_a_file() -> None:
    module = saved("gan-{epoch}", Gan(), single(stage=3))
    path = HERE / "gan-epoch=0.ckpt"
    again, _ = fit("meron_stage_1", Gan(), path, max_epochs=2)
    assert again.losses == module.losses[12:] and distance(again, module) == 0


def case_hooks_change_a_file() -> None:
    class Edited(Regression):
        def on_save_checkpoint(self, checkpoint: dict) -> None:
            checkpoint["state_dict"]["extra"] = torch.ones(2)
            del checkpoint["state_dict"]["net.4.bias"]

    module = Edited()
    module.net[0].requires_grad_(False)
    _, made = fit(single(stage=3, exclude_frozen_parameters=True), module)
    made.save_checkpoint(HERE / "edited.ckpt", weights_only=True)
    content = torch.load(HERE / "edited.ckpt", weights_only=True)
    assert sorted(content["state_dict"]) == ["extra", "net.2.bias", "net.2.weight", "net.4.weight"]
    assert "optimizer_states" not in content
    os.makedirs(HERE / "taken.ckpt", exist_ok=True)
    raises("Exception", "is a directory", lambda: made.save_checkpoint(HERE / "taken.ckpt"))


def case_a_refused_optimizer_leaves_the_weights() -> None:
    class Grouped(Regression):
        def configure_optimizers(self) -> Any:
            weights, biases = list(self.net[0].parameters()), list(self.net[2:].parameters())
            return torch.optim.AdamW([{"params": weights}, {"params": biases}], lr=1e-2)

    class Momentum(Regression):
        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-2, momentum=0.9)

    path = HERE / "stage1-epoch=0.ckpt"
    for kind, text in ((Grouped, "param groups of"), (Momentum, "momentum"), (Gan, "of 1 opt")):
        module = kind()
        before = [value.clone() for value in module.state_dict().values()]
        raises("LoadError", text, lambda module=module: fit("meron_stage_2", module, path))
        assert all(map(torch.equal, before, module.state_dict().values()))
    anew, _ = fit(MeronStrategy(load_full_weights=True), Momentum(), path, max_epochs=2)
    assert len(anew.losses) == 6


def case_a_module_without_optimizers_goes_on() -> None:
    class Idle(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> None:
            self(batch[0])

        def configure_optimizers(self) -> None:
            return None

    module, made = fit(single(stage=2), Idle())
    made.save_checkpoint(HERE / "idle.ckpt")
    again, _ = fit("meron_stage_3", Idle(), HERE / "idle.ckpt", max_epochs=2)
    assert distance(again, module) == 0


def case_other_ranks_are_refused_if_asked() -> None:
    _, made = fit("meron_stage_2")
    made.save_checkpoint(HERE / "two.ckpt")
    fit(MeronStrategy(reshard_on_load=False), Regression(), HERE / "two.ckpt", max_epochs=2)
    assert WORLD == 2  # resuming.py has other numbers


def case_fabric_files() -> None:
    plain = run("ddp")
    for stage in (1, 3):
        strategy = lambda stage=stage: MeronFabricStrategy(  # noqa: E731
            save_distributed_checkpoint=False, stage=stage
        )
        run(strategy(), steps=3, save=HERE / f"fabric{stage}.pt")
        assert (HERE / f"fabric{stage}.pt").is_file()
        for again in ("ddp", "meron_stage_2", strategy()):
            losses, values = run(again, resume=HERE / f"fabric{stage}.pt")
            assert losses == plain[0][3:] and distance_of(values, plain[1]) == 0
    fabric = fabric_of("meron_stage_3")
    model, optimizer = layers(), None
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.5)
    model, optimizer = fabric.setup(model, optimizer)
    state = {"model": model, "optimizer": optimizer, "step": 0}
    before = [value.clone() for value in model.state_dict().values()]
    raises("LoadError", "momentum", lambda: fabric.load(HERE / "fabric1.pt", state))
    assert all(map(torch.equal, before, model.state_dict().values())) and state["step"] == 0
    state["absent"] = 1
    raises("KeyError", "'absent'", lambda: fabric.load(HERE / "fabric1.pt", state))
    fabric.strategy.teardown()


def case_fabric_loads_weights_alone() -> None:
    strategy = MeronFabricStrategy(save_distributed_checkpoint=False, load_full_weights=True)
    fabric = fabric_of(strategy)
    model = layers()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.5))
    state = {"model": model, "optimizer": optimizer}
    rest = fabric.load(HERE / "fabric1.pt", state, strict=False)
    assert "optimizer" not in rest and optimizer.param_groups[0]["lr"] == 0.5
    values = torch.load(HERE / "fabric1.pt", weights_only=False)["model"]
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    # Rank 0 alone writes, and cannot.
    raises("Exception", "", lambda: fabric.save(HERE / "fabric1.pt" / "below.pt", state))
    fabric.save(HERE / "again.pt", state)
    fabric.strategy.teardown()


def case_states_that_a_file_lacks_begin_anew() -> None:
    for kind, options in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adagrad, {})):
        fabric = fabric_of(MeronFabricStrategy(save_distributed_checkpoint=False, stage=2))
        model = layers()
        model, optimizer = fabric.setup(model, kind(model.parameters(), lr=1e-2, **options))
        state = {"model": model, "optimizer": optimizer}
        fabric.save(HERE / "before.pt", state)

        def step(model: Any = model, optimizer: Any = optimizer, fabric: Any = fabric) -> Any:
            fabric.backward(model(torch.ones(2, 16)).sum())
            optimizer.step()
            optimizer.zero_grad()
            return {name: value.clone() for name, value in model.state_dict().items()}

        first = step()
        step()
        fabric.load(HERE / "before.pt", state)
        assert distance_of(step(), first) == 0, kind
        fabric.strategy.teardown()


if __name__ == "__main__":
    run_cases(dict(globals()))
