# SPDX-License-Identifier: Apache-2.0
"""MeronStrategy saves checkpoints, resumes from them, and rejects those that do not fit."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from modules import RANK, Regression, TwoRates, distance, fit, loader, trainer
from saved_runs import Kept, train_and_save

import meron
from meron.checkpoint import Checkpoint
from meron.lightning import MeronStrategy, own_state
from meron.torch.checkpoint import LoadError

pytestmark = pytest.mark.ranks(2)


def test_model_checkpoint_keeps_the_newest_and_loads_them(tmp_path: Path) -> None:
    newest = ModelCheckpoint(
        tmp_path, "{step}", every_n_train_steps=4, monitor="step", mode="max", save_top_k=2,
        save_last="link",
    )  # fmt: skip
    module, made = fit("meron_stage_2", Kept(), max_epochs=2, callbacks=[newest])
    assert newest.best_model_path.endswith("step=12.ckpt")
    assert set(os.listdir(tmp_path)) == {"step=8.ckpt", "step=12.ckpt", "last.ckpt"}
    assert os.readlink(tmp_path / "last.ckpt") == "step=12.ckpt"
    before = made.test(module, loader(), verbose=False)
    assert made.test(module, loader(), verbose=False, ckpt_path="last") == before
    assert made.test(module, loader(), verbose=False, ckpt_path=tmp_path / "step=8.ckpt") != before


def test_saves_weights_without_optimizer_states(tmp_path: Path) -> None:
    full = ModelCheckpoint(tmp_path / "full", "{step}", every_n_train_steps=12)
    light = ModelCheckpoint(
        tmp_path / "light", "{step}", every_n_train_steps=4, save_weights_only=True, save_top_k=-1
    )
    _, made = fit("meron_stage_2", Kept(), max_epochs=2, callbacks=[full, light])
    light_size, size = (
        sum(file.stat().st_size for file in (tmp_path / path).rglob("*") if file.is_file())
        for path in ("light/step=12.ckpt", "full/step=12.ckpt")
    )
    assert light_size < size / 1.3
    made.save_checkpoint(tmp_path / "end.ckpt")
    scripts = {"zero_to_fp32.py", "zero_to_torch.py"}
    assert {"checkpoint", "latest", *scripts} == set(os.listdir(tmp_path / "end.ckpt"))
    with pytest.raises(KeyError, match="save_weights_only"):
        fit("meron", Kept(), tmp_path / "light" / "step=8.ckpt", max_epochs=2)


def ddp_after_8_steps(folder: Path) -> Path:
    """Trains with DDP. Returns the path of its checkpoint after 8 of 12 steps."""
    kept = ModelCheckpoint(folder / "ddp", "{step}", every_n_train_steps=8)
    fit("ddp", Kept(), max_epochs=2, callbacks=[kept])
    return folder / "ddp" / "step=8.ckpt"


def test_resumes_in_the_middle_of_an_epoch_as_ddp(tmp_path: Path) -> None:
    # Lightning does not forward a plain DataLoader: compare with the resumed run of DDP.
    plain, _ = fit("ddp", Kept(), ddp_after_8_steps(tmp_path), max_epochs=2)
    train_and_save(tmp_path)
    for strategy, late in (("meron_stage_2", False), ("meron_stage_3", True)):
        module, made = fit(strategy, Kept(late), tmp_path / "step=8.ckpt", max_epochs=2)
        assert made.global_step == 12
        assert module.losses == plain.losses and distance(module, plain) == 0


def test_resumes_two_optimizers_of_the_same_params_as_ddp(tmp_path: Path) -> None:
    plain, _ = fit("ddp", TwoRates(), max_epochs=2)
    saved = ModelCheckpoint(tmp_path, "{epoch}", every_n_epochs=1)
    fit("meron_stage_3", TwoRates(late=True), callbacks=[saved])
    for name in ("meron_stage_1", "meron_stage_3"):
        module, _ = fit(name, TwoRates(), tmp_path / "epoch=0.ckpt", max_epochs=2)
        assert module.losses == plain.losses[6:] and distance(module, plain) == 0


class Accumulating(Regression):
    """Steps every fourth of the six batches of an epoch, so epochs end within an accumulation."""

    def __init__(self, late: bool = False) -> None:
        super().__init__(late)
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        optimizer = self.optimizers()
        self.manual_backward(super().training_step(batch, index))
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Untrained(Regression):
    def configure_optimizers(self) -> None:
        return None


@pytest.mark.parametrize("name", ["meron_stage_1", "meron_stage_2", "meron_stage_3"])
def test_saves_gradients_that_no_step_has_used_as_ddp(tmp_path: Path, name: str) -> None:
    for kind in (Accumulating, Untrained):
        plain, _ = fit("ddp", kind(), max_epochs=3)
        saved = ModelCheckpoint(tmp_path, kind.__name__, every_n_epochs=1)
        module, _ = fit(name, kind(), max_epochs=3, callbacks=[saved])
        assert distance(module, plain) < 1e-6, kind  # sums are taken in another order
        resumed, _ = fit(name, kind(), tmp_path / f"{kind.__name__}.ckpt", max_epochs=4)
        assert len(resumed.losses) == 6


def test_resumes_a_run_of_ddp_in_shards(tmp_path: Path) -> None:
    path = ddp_after_8_steps(tmp_path)
    plain, _ = fit("ddp", Kept(), path, max_epochs=2)
    for strategy, late in (("meron_stage_1", False), ("meron_stage_3", True)):
        module, made = fit(strategy, Kept(late), path, max_epochs=2)
        assert made.global_step == 12
        assert module.losses == plain.losses and distance(module, plain) == 0


def test_loads_full_weights_without_optimizer_states(tmp_path: Path) -> None:
    path = ddp_after_8_steps(tmp_path)
    plain, _ = fit("ddp", Kept(), path, max_epochs=2)
    anew, _ = fit(MeronStrategy(load_full_weights=True), Kept(), path, max_epochs=2)
    assert anew.losses[0] == plain.losses[0] and distance(anew, plain) > 0
    train_and_save(tmp_path)
    path = tmp_path / "step=8.ckpt"
    again, _ = fit(MeronStrategy(load_full_weights=True), Kept(), path, max_epochs=2)
    assert distance(again, anew) == 0


class Edited(Kept):
    def on_load_checkpoint(self, checkpoint: dict) -> None:
        weights = checkpoint["state_dict"]
        weights["net.0.bias"] = torch.full_like(weights["net.0.bias"], 3.0)
        del weights["net.4.bias"]


def validate(module: LightningModule, folder: Path) -> None:
    path = folder / "end.ckpt"
    trainer("meron_stage_3").validate(module, loader(), verbose=False, ckpt_path=path)


def test_a_hook_edits_values_before_they_load(tmp_path: Path) -> None:
    expected = train_and_save(tmp_path)[0].state_dict()
    module = Edited()
    own = module.net[4].bias.detach().clone()
    validate(module, tmp_path)
    values = module.state_dict()
    assert (values["net.0.bias"] == 3).all()
    assert torch.equal(values["net.4.bias"], own)
    assert torch.equal(values["net.2.weight"], expected["net.2.weight"])


def test_rejects_missing_and_unexpected_params_beside_edits(tmp_path: Path) -> None:
    class Wider(Edited):
        def __init__(self) -> None:
            super().__init__()
            self.more = torch.nn.Linear(2, 2)

    class Surplus(Kept):
        def on_load_checkpoint(self, checkpoint: dict) -> None:
            checkpoint["state_dict"]["none.bias"] = torch.ones(2)

    class Resized(Kept):
        def on_load_checkpoint(self, checkpoint: dict) -> None:
            checkpoint["state_dict"]["net.0.bias"] = torch.ones(2)

    train_and_save(tmp_path)
    for kind, text in (
        (Wider, "missing: more.bias, more.weight"),
        (Surplus, "unexpected: none.bias"),
        (Resized, "net.0.bias ([2] in the state_dict, [33] here)"),
    ):
        module = kind()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        with pytest.raises(LoadError, match=re.escape(text)):
            validate(module, tmp_path)
        after = module.state_dict()
        assert all(torch.equal(value, after[name]) for name, value in before.items())
    module = Wider()
    module.strict_loading = False
    validate(module, tmp_path)
    assert (module.state_dict()["net.0.bias"] == 3).all()


def test_a_hook_renames_params_before_they_load(tmp_path: Path) -> None:
    class Renamed(Kept):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.net = self.net[0], torch.nn.Sequential(*self.net[1:])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(self.first(x)).squeeze(1)

        def on_load_checkpoint(self, checkpoint: dict) -> None:
            weights = checkpoint["state_dict"]
            for old, new in (("net.0", "first"), ("net.2", "net.1"), ("net.4", "net.3")):
                for end in (".weight", ".bias"):
                    weights[new + end] = weights.pop(old + end)

    expected = train_and_save(tmp_path)[0].state_dict()
    module = Renamed()
    validate(module, tmp_path)
    values = module.state_dict()
    assert torch.equal(values["first.weight"], expected["net.0.weight"])
    assert torch.equal(values["net.3.bias"], expected["net.4.bias"])
    # Optimizer states are matched by the names in the file.
    with pytest.raises(meron.ArgumentError, match="other params than in the checkpoint"):
        fit("meron_stage_2", Renamed(), tmp_path / "end.ckpt", max_epochs=3)


def test_saves_without_frozen_params(tmp_path: Path) -> None:
    class Frozen(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.net[0].requires_grad_(False)

    strategy = MeronStrategy(stage=3, exclude_frozen_parameters=True)
    module, made = fit(strategy, Frozen())
    made.save_checkpoint(tmp_path / "frozen.ckpt")
    other, _ = fit("meron_stage_1", Frozen(), tmp_path / "frozen.ckpt", max_epochs=2)
    assert distance(module, other) > 0
    assert torch.equal(module.state_dict()["net.0.bias"], other.state_dict()["net.0.bias"])


def test_resumes_from_a_checkpoint_on_exception(tmp_path: Path) -> None:
    class Failing(Regression):
        def on_after_backward(self) -> None:
            if len(self.losses) == 4:
                raise ValueError("after backward")

    callback = OnExceptionCheckpoint(tmp_path, "failed")
    with pytest.raises(ValueError, match="after backward"):
        fit("meron", Failing(), callbacks=[callback])
    _, made = fit("meron", Regression(), tmp_path / "failed.ckpt", max_epochs=1)
    assert made.global_step >= 4, made.global_step


def test_a_file_that_one_rank_cannot_read_fails_on_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(checkpoint: Checkpoint, _: bool | None) -> None:
        raise OSError(f"{checkpoint.path} is not on this host")

    train_and_save(tmp_path)
    if RANK == 1:
        monkeypatch.setattr(own_state, "read", absent)
    with pytest.raises(Exception, match="is not on this host"):
        validate(Kept(), tmp_path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nothing", "does not exist"),
        ("end.ckpt/checkpoint", "did you mean"),
        ("end.ckpt/latest", "did you mean"),
        ("", "not a valid"),
    ],
    ids=["missing", "folder within", "file within", "folder above"],
)
def test_rejects_paths_that_are_no_checkpoint(tmp_path: Path, path: str, text: str) -> None:
    train_and_save(tmp_path)
    with pytest.raises(FileNotFoundError, match=text):
        trainer("meron").validate(Kept(), loader(), ckpt_path=tmp_path / path)


def test_rejects_a_checkpoint_that_lacks_params(tmp_path: Path) -> None:
    class Wider(Kept):
        def __init__(self) -> None:
            super().__init__()
            self.more = torch.nn.Linear(2, 2)

    train_and_save(tmp_path)
    for stage in ("meron_stage_1", "meron_stage_3"):
        with pytest.raises(meron.ArgumentError, match="more"):
            fit(stage, Wider(), tmp_path / "end.ckpt")


def test_rejects_where_and_when_it_cannot_save(tmp_path: Path) -> None:
    _, made = fit("meron")
    with pytest.raises(TypeError, match="storage_options"):
        made.save_checkpoint(tmp_path / "x.ckpt", storage_options={})
    with pytest.raises(ValueError, match="URL"):
        made.save_checkpoint("s3://bucket/x.ckpt")
    (tmp_path / "file.pt").touch()
    with pytest.raises(FileExistsError, match="is a file"):
        made.save_checkpoint(tmp_path / "file.pt")


def test_a_save_within_an_accumulation_has_what_the_last_step_left(tmp_path: Path) -> None:
    class Within(Regression):
        def on_after_backward(self) -> None:
            if len(self.losses) == 3:
                self.trainer.save_checkpoint(tmp_path / "within.ckpt")

    fit("meron", Within(), accumulate_grad_batches=2)
    stepped, _ = fit("meron", Regression(), accumulate_grad_batches=2, max_steps=1)
    saved = Regression()
    trainer("meron").validate(saved, loader(), verbose=False, ckpt_path=tmp_path / "within.ckpt")
    assert distance(saved, stepped) == 0
