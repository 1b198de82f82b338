# SPDX-License-Identifier: Apache-2.0
"""Checkpoints under DeepSpeed's names: universal copies, files of torch.save, other dtypes."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import meron
import meron.zero.compat as deepspeed
from meron.zero import model_states
from meron.zero.compat import checkpoint_names, universal

pytestmark = pytest.mark.ranks(2)
RANK = int(os.environ.get("MERON_RANK", "0"))
HALF = torch.bfloat16


def engine_of(stage: int = 3, **checkpoint: Any) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    model[0].bias.requires_grad_(False)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": stage},
        "checkpoint": checkpoint,
    }
    return deepspeed.initialize(model=model, config=config)[0]


def train(engine: Any) -> None:
    engine.backward(engine(torch.ones(1, 4, dtype=HALF)).float().sum())
    engine.step()


def folders(source: Path, target: Path) -> types.SimpleNamespace:
    return types.SimpleNamespace(input_folder=str(source), output_folder=str(target))


def failing(*_arguments: Any, **_named: Any) -> None:
    raise OSError(28, "No space left on device")


def make_universal(folder: Path, tag: str) -> None:
    if RANK == 0:
        universal.main(folders(folder / tag, folder / f"{tag}_universal"))
    deepspeed.comm.barrier()


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_a_universal_copy_is_loaded(tmp_path: Path, stage: int) -> None:
    engine = engine_of(stage, load_universal=True)
    train(engine)
    engine.save_checkpoint(tmp_path, "one", {"universal_checkpoint_info": {}, "step": 1})
    make_universal(tmp_path, "one")
    saved = engine.module_state_dict()
    engine.optimizer._set_fp32_optimizer_param_groups()  # programs call these two at stage 3
    engine.optimizer._clear_fp32_optimizer_param_groups()
    train(engine)
    engine.save_checkpoint(tmp_path, "two")
    path, state = engine.load_checkpoint(tmp_path)  # not "two", to which latest points
    assert path == str(tmp_path / "one_universal") and state["step"] == 1
    assert all(torch.equal(saved[key], value) for key, value in engine.module_state_dict().items())
    assert engine.load_checkpoint(tmp_path, "two")[0] == str(tmp_path / "two")
    engine.destroy()
    engine = engine_of(1)
    assert engine.load_checkpoint(tmp_path)[0] == str(tmp_path / "two")
    train(engine)
    engine.destroy()


def test_a_load_of_universal_copies_without_one(tmp_path: Path) -> None:
    engine = engine_of(load_universal=True)
    assert engine.load_checkpoint(tmp_path) == (None, None)
    engine.save_checkpoint(tmp_path, "one")
    assert engine.load_checkpoint(tmp_path)[0] == str(tmp_path / "one")
    if RANK == 0:
        (tmp_path / "latest_universal").write_text("../elsewhere")
    deepspeed.comm.barrier()
    with pytest.raises(meron.CorruptError, match="latest_universal"):
        engine.load_checkpoint(tmp_path)
    engine.destroy()


def test_what_is_copied_as_universal(tmp_path: Path) -> None:
    engine = engine_of()
    engine.save_checkpoint(tmp_path, "one")
    engine.destroy()
    if RANK != 0:
        return
    copy = tmp_path / "copies" / "one"
    universal.main(folders(tmp_path / "one", copy))
    (copy / "stale").touch()
    universal.main(folders(tmp_path / "one", copy))  # replaces it
    assert sorted(os.listdir(copy)) == sorted(os.listdir(tmp_path / "one"))
    assert sorted(os.listdir(copy.parent)) == ["latest_universal", "one"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").touch()
    for source, target, words in (
        (tmp_path, copy, "has no meron.json"),
        (tmp_path / "none", copy, "meron.convert"),
        (tmp_path / "one", tmp_path / "mine", "is no checkpoint"),
    ):
        with pytest.raises(FileNotFoundError, match=words):
            universal.main(folders(source, target))
    assert os.listdir(tmp_path / "mine") == ["notes"]
    before = sorted(os.listdir(copy))
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space"):
            patch.setattr(universal.shutil, "copytree", failing)
            universal.main(folders(tmp_path / "one", copy))
        assert sorted(os.listdir(copy)) == before
        assert sorted(os.listdir(copy.parent)) == ["latest_universal", "one"]
    line = ["--input_folder", str(tmp_path / "one"), "--num_merge_workers", "1"]
    given = universal.parse_arguments([*line, "--output_folder", str(tmp_path / "two")])
    universal.main(given)
    assert (tmp_path / "latest_universal").read_text() == "two"


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_model_states_on_request(tmp_path: Path, stage: int) -> None:
    engine = engine_of(stage, write_model_states=True)
    train(engine)
    engine.save_checkpoint(tmp_path, "one", {"epoch": 7, "module": "hidden"})
    wanted = engine.module_state_dict()
    if RANK == 0:
        file = checkpoint_names.get_model_ckpt_name_for_rank(tmp_path / "one", "00")
        found = torch.load(file)
        assert found["epoch"] == 7 and found["global_steps"] == 1 and found["dp_world_size"] == 2
        assert found["ds_config"]["zero_optimization"] == {"stage": stage}
        assert list(found["module"]) == list(wanted)
        for name, value in found["module"].items():
            assert value.dtype == HALF and torch.equal(value, wanted[name])
    engine.save_checkpoint(tmp_path, "one", exclude_frozen_parameters=True)
    if RANK == 0:
        assert "0.bias" not in torch.load(file)["module"]
    assert engine.load_checkpoint(tmp_path, "one", load_module_strict=False)[0] is not None
    engine.destroy()


def test_a_checkpoint_has_no_model_states_by_default(tmp_path: Path) -> None:
    engine = engine_of()
    engine.save_checkpoint(tmp_path, "one")
    assert not list(tmp_path.glob("*/*.pt"))
    engine.destroy()


def test_model_states_that_cannot_be_written(tmp_path: Path) -> None:
    engine = engine_of(write_model_states=True)
    engine.save_checkpoint(tmp_path, "one")
    with pytest.raises((meron.Error, TypeError), match=r"lambda|function"):
        engine.save_checkpoint(tmp_path, "two", {"call": lambda: None} if RANK == 0 else None)
    assert not (tmp_path / "two").exists()
    train(engine)  # the engine goes on
    engine.destroy()


def test_model_states_on_a_drive_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(write_model_states=True)

    def fail(*_arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    if RANK == 0:
        monkeypatch.setattr(model_states.torch, "save", fail)
    with pytest.raises(meron.ResourceError, match="No space left"):  # on both ranks
        engine.save_checkpoint(tmp_path, "one")
    monkeypatch.undo()
    assert {path.suffix for path in (tmp_path / "one").iterdir()} == {".json", ".safetensors"}
    engine.save_checkpoint(tmp_path, "one")
    assert (tmp_path / "one" / "mp_rank_00_model_states.pt").is_file()
    engine.destroy()


def test_weights_in_another_dtype(tmp_path: Path) -> None:
    engine = engine_of()
    train(engine)
    engine.save_checkpoint(tmp_path, "one")
    wanted = engine.module_state_dict()
    engine.destroy()
    if RANK != 0:
        return
    tools = deepspeed.utils.zero_to_fp32
    tools.convert_zero_checkpoint_to_state_dict(tmp_path, tmp_path / "half", dtype="torch.bfloat16")
    half = torch.load(tmp_path / "half" / "pytorch_model.bin")
    assert all(torch.equal(half[name], value) for name, value in wanted.items())
    tools.convert_zero_checkpoint_to_fp32_state_dict(tmp_path, tmp_path / "full")
    full = torch.load(tmp_path / "full" / "pytorch_model.bin")
    assert {value.dtype for value in full.values()} == {torch.float32}
    with pytest.raises(ValueError, match="Unsupported output dtype 'int8'"):
        tools.convert_zero_checkpoint_to_state_dict(tmp_path, tmp_path / "bad", dtype="int8")
    lazy = tools.get_fp32_state_dict_from_zero_checkpoint(tmp_path, lazy_mode=True)
    empty = tools.to_torch_tensor(lazy, return_empty_tensor=True, dtype="fp16")
    assert {value.dtype for value in empty.values()} == {torch.float16}
    assert torch.equal(tools.to_torch_tensor(lazy)["1.bias"], full["1.bias"])


def test_the_script_converts_without_meron(tmp_path: Path) -> None:
    engine = engine_of()
    engine.save_checkpoint(tmp_path, "one")
    wanted = engine.module_state_dict()
    engine.destroy()
    if RANK != 0:
        return
    script = tmp_path / "zero_to_torch.py"
    assert os.access(script, os.X_OK)
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, str(script), str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run([*command, "--dtype", "bf16"], env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    half = torch.load(tmp_path / "out" / "pytorch_model.bin")
    assert all(torch.equal(half[name], value) for name, value in wanted.items())
    done = subprocess.run([*command, "--dtype", "int8"], env=alone, capture_output=True, text=True)
    assert done.returncode == 2 and "invalid choice" in done.stderr
