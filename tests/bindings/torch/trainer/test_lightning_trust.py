# SPDX-License-Identifier: Apache-2.0
"""Lightning's state in a checkpoint: JSON and tensors. Pickled code runs only with trust."""

from __future__ import annotations

import collections
import datetime
import json
import os
import pathlib
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric
from lightning.pytorch import LightningModule
from modules import RANK, Regression, fit, loader, trainer
from saved_runs import Kept, train_and_save

import meron
from meron.checkpoint import CheckpointTensor, open_checkpoint, write_checkpoint
from meron.lightning import checkpoints, consolidate, own_state
from meron.torch.checkpoint import LoadError
from meron.torch.checkpoint.files import saved_tensor

pytestmark = pytest.mark.ranks(1)

TRIALS = int(1000 * float(os.environ.get("MERON_FAULT_SHARE", "0.05")))
SEED = int(os.environ.get("MERON_TEST_SEED", "20261128"))


class Harm:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


class Harmful(Regression):
    """A module with harm in its checkpoints."""

    harm: Path

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["mine"] = {"fine": 1, "bad": Harm(self.harm)}


def save_harm(folder: Path) -> tuple[Path, Path]:
    """A checkpoint, and the folder that it makes if its code runs."""
    harm = folder / "executed"
    Harmful.harm = harm
    _, made = fit("meron", Harmful())
    made.save_checkpoint(folder / "harm.ckpt")
    shutil.rmtree(harm, ignore_errors=True)
    return folder / "harm.ckpt", harm


def tensors_of(path: Path) -> list[CheckpointTensor]:
    with open_checkpoint(path, "checkpoint") as found:
        return [
            CheckpointTensor(
                name, each["dtype"], tuple(each["shape"]), found.read(name, kind), 0, kind
            )
            for (kind, name), each in found.tensors.items()
        ]


def as_older(path: Path, target: Path, extra_state: dict[str, Any]) -> None:
    """A checkpoint as version 1 had it: all of Lightning's state is a pickle."""
    with open_checkpoint(path, "checkpoint") as found:
        state, extra, step = own_state.read(found, None), found.extra, found.step
    data = np.frombuffer(own_state.pickled({**state, **extra_state}), np.uint8)
    kept = [each for each in tensors_of(path) if not each.name.startswith(own_state.KEY)]
    kept.append(CheckpointTensor(own_state.KEY, "U8", data.shape, data))
    extra[own_state.KEY] = {"version": 1, "weights_only": False}
    write_checkpoint(target, "checkpoint", kept, step=step, extra=extra)
    (target / "latest").write_text("checkpoint\n")


def test_a_usual_checkpoint_has_no_pickle(tmp_path: Path) -> None:
    train_and_save(tmp_path)
    with open_checkpoint(tmp_path / "end.ckpt", "checkpoint") as found:
        names = {name for kind, name in found.tensors if name.startswith("meron.lightning")}
        assert found.extra["meron.lightning"]["pickled"] == []
        text = found.read(own_state.JSON, "extra").tobytes()
    assert own_state.PICKLE not in names
    assert json.loads(text)["global_step"] == 24
    files = [file.read_bytes() for file in (tmp_path / "end.ckpt/checkpoint").iterdir()]
    assert not any(b"PK\x03\x04" in file or b"\x80\x02}" in file for file in files)


def test_the_state_keeps_its_types_and_values(tmp_path: Path) -> None:
    shared = torch.arange(3.0)
    state = {
        "numbers": [1, -2.5, float("inf"), 2**70, None, True, ""],
        "pair": (1, ("two", [3])),
        "keys": {1: "a", (2, 3): "b", "$float": "c"},
        "$one": {"$dict": 1},
        "counts": collections.Counter({"a": 2, 5: 1}),
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "path": pathlib.Path("a/b"),
        "tensors": [shared, shared, torch.ones((), dtype=torch.bfloat16), torch.zeros(0, 2)],
        "long": torch.arange(10_000),
        "arrays": [np.float64(0.5), np.int32(3), np.arange(4, dtype=np.uint16)],
    }
    packed = own_state.Packed(state)
    assert packed.pickled == [] and own_state.PICKLE not in packed.tensors
    write(tmp_path, packed)
    with open_checkpoint(tmp_path, "a") as found:
        got = own_state.read(found, None)
    assert got.keys() == state.keys()
    tensors, arrays = got.pop("tensors"), got.pop("arrays")
    assert torch.equal(got.pop("long"), state.pop("long"))
    wanted, theirs = state.pop("tensors"), state.pop("arrays")
    assert got == state and all(type(got[key]) is type(state[key]) for key in state)
    assert list(got["ordered"]) == ["b", "a"]
    assert all(
        torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(tensors, wanted, strict=True)
    )
    assert tensors[0] is tensors[1] and tensors[3].shape == (0, 2)
    assert all(
        type(a) is type(b) and np.array_equal(a, b) for a, b in zip(arrays, theirs, strict=True)
    )


def write(folder: Path, packed: own_state.Packed) -> None:
    given = [saved_tensor(name, tensor) for name, tensor in packed.tensors.items()]
    write_checkpoint(folder, "a", given, extra={own_state.KEY: packed.entry()})


def test_names_what_needs_a_pickle_and_what_none_can_hold(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    packed = own_state.Packed({"when": {"now": datetime.date(2026, 11, 28)}, "deep": deep})
    assert packed.pickled[0] == "state['when']['now'] (a date)" and len(packed.pickled) == 2
    write(tmp_path, packed)
    with open_checkpoint(tmp_path, "a") as found:
        with pytest.raises(LoadError, match=r"'now'\] \(a date\).*weights_only=False"):
            own_state.read(found, None)
        got = own_state.read(found, False)
        with torch.serialization.safe_globals([datetime.date]):
            assert own_state.read(found, True) == got
    assert got == {"when": {"now": datetime.date(2026, 11, 28)}, "deep": deep}
    with pytest.raises(meron.ArgumentError, match=r"state\['f'\] \(a function\)"):
        own_state.Packed({"f": lambda: 1})


def test_no_door_runs_code_without_trust(tmp_path: Path) -> None:
    path, harm = save_harm(tmp_path)
    older = tmp_path / "older.ckpt"
    train_and_save(tmp_path)
    as_older(tmp_path / "end.ckpt", older, {"bad": Harm(harm)})
    single = tmp_path / "single.ckpt"
    for given in (path, older):
        for options in ({}, {"weights_only": True}, {"weights_only": None}):
            doors = (
                lambda o=options, p=given: meron.lightning.load_from_checkpoint(Regression, p, **o),
                lambda o=options, p=given: Regression.load_from_checkpoint(p, **o),
                lambda o=options, p=given: consolidate.convert_zero_checkpoint_to_fp32_state_dict(
                    p, single, **o
                ),
                lambda o=options, p=given: checkpoints.Saved(p, o.get("weights_only")),
                lambda o=options, p=given: trainer("meron", max_epochs=2).fit(
                    Regression(), loader(), ckpt_path=p, **o
                ),
            )
            for number, door in enumerate(doors):
                with pytest.raises(LoadError, match="code would have to run"):
                    door()
                assert not harm.exists() and not single.exists(), (given, options, number)
        meron.lightning.load_from_checkpoint(Regression, given, weights_only=False)
        assert harm.exists()
        harm.rmdir()


def test_the_trainer_takes_trust_from_the_variable_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, harm = save_harm(tmp_path)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    trainer("meron", max_epochs=2).fit(Regression(), loader(), ckpt_path=path)
    assert harm.exists()


def test_an_older_checkpoint_of_plain_state_resumes(tmp_path: Path) -> None:
    train_and_save(tmp_path)
    as_older(tmp_path / "end.ckpt", tmp_path / "older.ckpt", {})
    for name in ("end.ckpt", "older.ckpt"):
        _, made = fit("meron_stage_2", Kept(), tmp_path / name, max_epochs=3)
        assert made.global_step == 36


def state_of(path: Path) -> dict[str, str]:
    saved = checkpoints.Saved(path, None)
    return {key: repr(value) for key, value in saved.state.items() if key != "state_dict"}


def test_no_door_passes_damage_silently(tmp_path: Path) -> None:
    module, _ = train_and_save(tmp_path)
    path, single = tmp_path / "end.ckpt", tmp_path / "single.ckpt"
    convert = consolidate.convert_zero_checkpoint_to_fp32_state_dict

    def weights(own: LightningModule) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in own.state_dict().items()}

    good, values = state_of(path), weights(module)
    files = sorted(file for file in (path / "checkpoint").iterdir())
    dice = random.Random(SEED)
    named = 0
    for trial in range(TRIALS):
        victim = dice.choice(files)
        kept = victim.read_bytes()
        data = bytearray(kept)
        if dice.random() < 0.85:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        else:
            del data[dice.randrange(len(data)) :]
        victim.write_bytes(data)
        try:
            assert state_of(path) == good, (SEED, trial)
        except meron.Error as error:
            named += 1
            assert str(path) in str(error)
        try:
            content = convert(path, single)
            own = {key: repr(content[key]) for key in good if key != "optimizer_states"}
            assert own == {key: good[key] for key in own}, (SEED, trial)
            got = meron.lightning.load_from_checkpoint(Kept, path).state_dict()
            assert all(torch.equal(got[name], values[name]) for name in values), (SEED, trial)
        except meron.Error as error:
            named += 1
            assert str(path) in str(error)
        victim.write_bytes(kept)
    assert named > TRIALS / 2


def test_the_script_follows_no_link(tmp_path: Path) -> None:
    train_and_save(tmp_path)
    victim, script = tmp_path / "victim", tmp_path / "end.ckpt/zero_to_fp32.py"
    victim.write_text("precious")
    script.unlink()
    script.symlink_to(victim)
    _, made = fit("meron")
    made.save_checkpoint(tmp_path / "end.ckpt")
    assert victim.read_text() == "precious" and not script.is_symlink()


@pytest.mark.ranks(2)
def test_a_removal_renames_first_and_all_ranks_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Removing(Regression):
        def on_train_end(self) -> None:
            strategy = self.trainer.strategy
            folder = tmp_path / "a.ckpt"
            for attempt in range(2):
                self.trainer.save_checkpoint(folder)
                with monkeypatch.context() as patch:
                    if attempt == 0:  # the process ends within the removal
                        patch.setattr(shutil, "rmtree", lambda *_: None)
                    strategy.remove_checkpoint(folder)
                assert not folder.exists()
                strategy.barrier()
                assert len(list(tmp_path.glob(".removing-a.ckpt-*"))) == 1 - attempt
                strategy.barrier()
            self.trainer.save_checkpoint(folder)
            if RANK == 0:
                (tmp_path / "link.ckpt").symlink_to(folder)
            strategy.barrier()
            strategy.remove_checkpoint(tmp_path / "link.ckpt")
            assert folder.is_dir() and not (tmp_path / "link.ckpt").is_symlink()

    fit("meron", Removing())


def test_fabric_runs_code_with_trust_only(tmp_path: Path) -> None:
    harm = tmp_path / "executed"
    fabric = Fabric(strategy="meron_stage_2", accelerator="cpu", devices=1)
    fabric.launch()
    module = torch.nn.Linear(2, 2)
    model, optimizer = fabric.setup(module, torch.optim.AdamW(module.parameters()))
    state = {"model": model, "optimizer": optimizer}
    fabric.save(tmp_path / "harm.ckpt", {**state, "epoch": 3, "bad": Harm(harm)})
    for options in ({}, {"weights_only": True}):
        with pytest.raises(LoadError, match=r"'bad'\] \(a Harm\)"):
            fabric.load(tmp_path / "harm.ckpt", dict(state), **options)
        assert not harm.exists()
    rest = fabric.load(tmp_path / "harm.ckpt", dict(state), weights_only=False)
    assert harm.exists() and rest["epoch"] == 3
    fabric.strategy.teardown()


def test_a_save_warns_of_a_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    warning = lambda text, *values: lines.append(text % values)  # noqa: E731
    monkeypatch.setattr(checkpoints.logger, "warning", warning)
    train_and_save(tmp_path)
    assert lines == []
    save_harm(tmp_path)
    save_harm(tmp_path)
    assert len(lines) == 1 and "state['mine']['bad'] (a Harm)" in lines[0]
