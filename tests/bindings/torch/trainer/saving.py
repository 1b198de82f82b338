# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of MeronStrategy: saved by two ranks, for resuming.py; and what they refuse."""

from __future__ import annotations

import os

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from modules import FOLDER, RANK, Regression, distance, fit, loader, raises, run_cases, trainer

from meron.lightning import MeronStrategy, checkpoints


class Kept(Regression):
    """With state of its own."""

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        assert len(checkpoint["state_dict"]) == 6  # values are gathered when they are used
        checkpoint["mine"] = {"batches": len(self.losses), "sum": torch.tensor(2.0)}

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        assert checkpoint["mine"]["sum"] == 2


def case_checkpoints_of_a_run() -> None:
    newest = ModelCheckpoint(
        FOLDER, "{step}", every_n_train_steps=4, monitor="step", mode="max", save_top_k=2,
        save_last="link",
    )  # fmt: skip
    light = ModelCheckpoint(
        FOLDER / "light", "{step}", every_n_train_steps=4, save_weights_only=True, save_top_k=-1
    )
    module, made = fit("meron_stage_2", Kept(), max_epochs=2, callbacks=[newest, light])
    made.save_checkpoint(FOLDER / "end.ckpt")
    assert newest.best_model_path.endswith("step=12.ckpt")
    found = {name for name in os.listdir(FOLDER) if name.endswith(".ckpt")}
    assert found == {"step=8.ckpt", "step=12.ckpt", "last.ckpt", "end.ckpt"}
    assert os.readlink(FOLDER / "last.ckpt") == "step=12.ckpt"
    assert {"checkpoint", "latest", "zero_to_fp32.py"} <= set(os.listdir(FOLDER / "end.ckpt"))
    values = module.state_dict()
    if RANK == 0:
        torch.save({"losses": module.losses, "values": values}, FOLDER / "expected.pt")
    light_size, size = (
        sum(file.stat().st_size for file in (FOLDER / path).rglob("*") if file.is_file())
        for path in ("light/step=12.ckpt", "step=12.ckpt")
    )
    assert light_size < size / 1.3
    before = made.test(module, loader(), verbose=False)
    assert made.test(module, loader(), verbose=False, ckpt_path="last") == before
    assert made.test(module, loader(), verbose=False, ckpt_path=FOLDER / "step=8.ckpt") != before


def case_a_run_goes_on_mid_epoch() -> None:
    # Lightning does not forward a plain DataLoader, so DDP's resumed run is what to compare with.
    kept = ModelCheckpoint(FOLDER / "ddp", "{step}", every_n_train_steps=8)
    fit("ddp", Kept(), max_epochs=2, callbacks=[kept])
    plain, _ = fit("ddp", Kept(), FOLDER / "ddp" / "step=8.ckpt", max_epochs=2)
    for strategy, late in (("meron_stage_2", False), ("meron_stage_3", True)):
        module, made = fit(strategy, Kept(late), FOLDER / "step=8.ckpt", max_epochs=2)
        assert made.global_step == 12
        assert module.losses == plain.losses and distance(module, plain) == 0


def case_a_run_of_ddp_goes_on_in_shards() -> None:
    path = FOLDER / "ddp" / "step=8.ckpt"
    plain, _ = fit("ddp", Kept(), path, max_epochs=2)
    for strategy, late in (("meron_stage_1", False), ("meron_stage_3", True)):
        module, made = fit(strategy, Kept(late), path, max_epochs=2)
        assert made.global_step == 12
        assert module.losses == plain.losses and distance(module, plain) == 0
    anew, _ = fit(MeronStrategy(load_full_weights=True), Kept(), path, max_epochs=2)
    assert anew.losses[0] == plain.losses[0] and distance(anew, plain) > 0
    directory = FOLDER / "step=8.ckpt"
    again, _ = fit(MeronStrategy(load_full_weights=True), Kept(), directory, max_epochs=2)
    assert distance(again, anew) == 0


class Edited(Kept):
    def on_load_checkpoint(self, checkpoint: dict) -> None:
        weights = checkpoint["state_dict"]
        weights["net.0.bias"] = torch.full_like(weights["net.0.bias"], 3.0)
        del weights["net.4.bias"]


def validate(module: LightningModule) -> None:
    trainer("meron_stage_3").validate(
        module, loader(), verbose=False, ckpt_path=FOLDER / "end.ckpt"
    )


def case_edits_before_a_load() -> None:
    module = Edited()
    own = module.net[4].bias.detach().clone()
    validate(module)
    values, expected = module.state_dict(), torch.load(FOLDER / "expected.pt")["values"]
    assert (values["net.0.bias"] == 3).all()
    assert torch.equal(values["net.4.bias"], own)
    assert torch.equal(values["net.2.weight"], expected["net.2.weight"])


def case_edits_do_not_hide_what_else_is_missing() -> None:
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

    for kind, text in (
        (Wider, "missing: more.bias, more.weight"),
        (Surplus, "unexpected: none.bias"),
        (Resized, "net.0.bias ([2] in the state_dict, [33] here)"),
    ):
        module = kind()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        raises("LoadError", text, lambda module=module: validate(module))
        after = module.state_dict()
        assert all(torch.equal(value, after[name]) for name, value in before.items())
    module = Wider()
    module.strict_loading = False
    validate(module)
    assert (module.state_dict()["net.0.bias"] == 3).all()


def case_renamed_params() -> None:
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

    module = Renamed()
    validate(module)
    values, expected = module.state_dict(), torch.load(FOLDER / "expected.pt")["values"]
    assert torch.equal(values["first.weight"], expected["net.0.weight"])
    assert torch.equal(values["net.3.bias"], expected["net.4.bias"])
    # States of optimizers go by the names in the file.
    resume = lambda: fit("meron_stage_2", Renamed(), FOLDER / "end.ckpt", max_epochs=3)  # noqa: E731
    raises("ArgumentError", "other params than in the checkpoint", resume)


def case_frozen_params_are_left_out() -> None:
    class Frozen(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.net[0].requires_grad_(False)

    strategy = MeronStrategy(stage=3, exclude_frozen_parameters=True)
    module, made = fit(strategy, Frozen())
    made.save_checkpoint(FOLDER / "frozen.ckpt")
    other, _ = fit("meron_stage_1", Frozen(), FOLDER / "frozen.ckpt", max_epochs=2)
    assert distance(module, other) > 0
    assert torch.equal(module.state_dict()["net.0.bias"], other.state_dict()["net.0.bias"])


def case_a_checkpoint_on_exception() -> None:
    class Failing(Regression):
        def on_after_backward(self) -> None:
            if len(self.losses) == 4:
                raise ValueError("after backward")

    callback = OnExceptionCheckpoint(FOLDER, "failed")
    raises("ValueError", "after backward", lambda: fit("meron", Failing(), callbacks=[callback]))
    _, made = fit("meron", Regression(), FOLDER / "failed.ckpt", max_epochs=1)
    assert made.global_step >= 4, made.global_step


def case_a_file_that_one_rank_cannot_read() -> None:
    def absent(folder: object) -> None:
        raise OSError(f"{folder} is not on this host")

    plain = checkpoints.read_bytes
    if RANK == 1:
        checkpoints.read_bytes = absent
    try:
        check = lambda: trainer("meron").validate(  # noqa: E731
            Kept(), loader(), ckpt_path=FOLDER / "end.ckpt"
        )
        raises("Exception", "is not on this host", check)  # on all ranks
    finally:
        checkpoints.read_bytes = plain


def case_misuse() -> None:
    for path, text in (
        ("nothing", "does not exist"),
        ("end.ckpt/checkpoint", "did you mean"),
        ("end.ckpt/latest", "did you mean"),
        ("light", "not a valid"),
    ):
        check = lambda path=path: trainer("meron").validate(  # noqa: E731
            Kept(), loader(), ckpt_path=FOLDER / path
        )
        raises("FileNotFoundError", text, check)
    weights = FOLDER / "light" / "step=8.ckpt"
    raises("KeyError", "save_weights_only", lambda: fit("meron", Kept(), weights, max_epochs=2))

    class Wider(Kept):
        def __init__(self) -> None:
            super().__init__()
            self.more = torch.nn.Linear(2, 2)

    for stage in ("meron_stage_1", "meron_stage_3"):
        raises(
            "ArgumentError", "more", lambda stage=stage: fit(stage, Wider(), FOLDER / "end.ckpt")
        )
    _, made = fit("meron")
    save = lambda **options: made.save_checkpoint(FOLDER / "x.ckpt", **options)  # noqa: E731
    raises("TypeError", "storage_options", lambda: save(storage_options={}))
    raises("ValueError", "URL", lambda: made.save_checkpoint("s3://bucket/x.ckpt"))
    raises("FileExistsError", "is a file", lambda: made.save_checkpoint(FOLDER / "expected.pt"))

    class Within(Regression):
        def on_after_backward(self) -> None:
            if len(self.losses) == 1:
                self.trainer.save_checkpoint(FOLDER / "within.ckpt")

    raises("StateError", "gradient", lambda: fit("meron", Within(), accumulate_grad_batches=2))
    assert issubclass(Kept, LightningModule)


if __name__ == "__main__":
    run_cases(dict(globals()))
