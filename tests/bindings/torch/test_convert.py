# SPDX-License-Identifier: Apache-2.0
"""meron.convert: checkpoints of other programs are read to the bit, and nothing in them is run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import ranks  # noqa: E402
import torch.distributed.checkpoint as torch_dcp  # noqa: E402
from convert import layouts  # noqa: E402

import meron  # noqa: E402
from meron.convert import export_checkpoint, import_checkpoint, read  # noqa: E402
from meron.convert.__main__ import main  # noqa: E402
from meron.convert.content import Content, ConvertError  # noqa: E402
from meron.convert.deepspeed import add_loss_scale  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def by_kind(content: Content) -> dict[tuple[str, str], Any]:
    return {(found.kind, found.name): found.tensor() for found in content.tensors}


def check(content: Content, model: layouts.Model) -> None:
    found = by_kind(content)
    for name, master in model.master.items():
        kind = "values" if model.dtype == torch.float32 else "master"
        assert torch.equal(found.pop((kind, name)), master), name
        if kind == "master":
            assert torch.equal(found.pop(("values", name)), master.to(model.dtype)), name
        for state in layouts.STATES:
            assert torch.equal(found.pop((state, name)), model.states[state][name]), (state, name)
    assert torch.equal(found.pop(("values", "frozen")), model.frozen["frozen"])
    assert torch.equal(found.pop(("values", "buffer")), model.buffer)
    assert not found  # tied weights appear once
    assert (content.step, content.optimizer_steps, content.rule) == (9, 9, "adamw")
    assert [group.params for group in content.groups] == [list(g) for g in layouts.GROUPS]
    assert [group.numbers["weight_decay"] for group in content.groups] == [0.1, 0.0]
    assert content.state == {"skipped_steps": 1, "global_samples": 36, "loss_scale": 512.0}
    assert content.extra["epoch"] == 4 and content.extra["name"] == "a run"
    assert content.extra["lr_scheduler"] == {"last_epoch": 4}
    assert content.left_out == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("layout", ["stage 2", "stage 3", "sub-groups"])
def test_layouts_of_deepspeed(tmp_path: Path, layout: str, world: int, dtype: str) -> None:
    if layout == "sub-groups" and world > 2:
        pytest.skip("parts of 5 ranks are shorter than the sub-group of this test")
    model = layouts.Model(world, DTYPES[dtype])
    folder = tmp_path / "run" / "global_step9"
    if layout == "stage 2":
        layouts.write_stage_2(folder, model, world)
    else:
        layouts.write_stage_3(folder, model, world, layout == "sub-groups")
    (tmp_path / "run" / "latest").write_text("global_step9\n")
    check(read(tmp_path / "run"), model)
    check(read(tmp_path / "run", tag="global_step9"), model)
    check(read(folder), model)


def test_an_infinite_loss_scale_is_left_out_and_named() -> None:
    content = Content("DeepSpeed")
    add_loss_scale(content, {"loss_scaler": SimpleNamespace(cur_scale=float("inf"))})
    assert "loss_scale" not in content.state
    assert content.left_out == ["the loss scale, inf: a run begins with its config's"]
    add_loss_scale(content, {"loss_scaler": SimpleNamespace(cur_scale=512)})
    assert content.state["loss_scale"] == 512.0


def test_import_gives_a_checkpoint_with_the_same_bits(tmp_path: Path) -> None:
    model = layouts.Model(3, torch.bfloat16)
    layouts.write_stage_3(tmp_path / "run" / "global_step9", model, 2)
    import_checkpoint(tmp_path / "run" / "global_step9", tmp_path / "ours")
    with meron.open_checkpoint(tmp_path / "ours") as checkpoint:
        assert checkpoint.step == 9
        assert checkpoint.extra["epoch"] == 4
        assert checkpoint.extra["imported"]["loss_scale"] == 512.0
        optimizer = checkpoint.manifest["optimizers"][0]
        assert (optimizer["rule"], optimizer["steps"]) == ("adamw", 9)
        assert [group["weight_decay"] for group in optimizer["groups"]] == [0.1, 0.0]
        for name, master in model.master.items():
            assert (checkpoint.read(name, "master") == master.numpy()).all()
            bits = master.to(torch.bfloat16).view(torch.int16).numpy().astype("<u2")
            assert (checkpoint.read(name) == bits).all()
            for state in layouts.STATES:
                assert (checkpoint.read(name, state) == model.states[state][name].numpy()).all()
    with pytest.raises(meron.DuplicateError):
        import_checkpoint(tmp_path / "run" / "global_step9", tmp_path / "ours")
    import_checkpoint(tmp_path / "run" / "global_step9", tmp_path / "ours", overwrite=True)


@pytest.mark.parametrize("to", ["dcp", "universal", "torch"])
def test_what_is_exported_reads_back(tmp_path: Path, to: str) -> None:
    model = layouts.Model(4, torch.float32)
    layouts.write_stage_2(tmp_path / "run", model, 3)
    import_checkpoint(tmp_path / "run", tmp_path / "ours", "first")
    export_checkpoint(tmp_path / "ours", "first", tmp_path / "theirs", format=to)
    found = by_kind(read(tmp_path / "theirs", format=to))
    assert torch.equal(found[("values", "buffer")], model.buffer)
    for name, master in model.master.items():
        assert torch.equal(found[("values", name)], master)
        if to != "torch":
            for state in layouts.STATES:
                assert torch.equal(found[(state, name)], model.states[state][name])
    with pytest.raises(ConvertError, match="is there already"):
        export_checkpoint(tmp_path / "ours", "first", tmp_path / "theirs", format=to)
    assert not [each for each in tmp_path.iterdir() if "partial" in each.name]


def test_each_exported_param_has_the_steps_of_its_optimizer(tmp_path: Path) -> None:
    numbers = {"learning_rate": 0.1, "epsilon": 1e-8, "weight_decay": 0.0}
    group = {**numbers, "beta1": 0.9, "beta2": 0.999}
    saved = [
        {"class": "AdamW", "engine": name != "c", "groups": [{"params": [name]}]}
        for name in ("a", "c", "b")
    ]
    ones = np.ones(2, np.float32)
    tensors = [
        meron.CheckpointTensor(name, "F32", (2,), ones, kind=kind)
        for name in ("a", "b", "c")
        for kind in ("values", "exp_avg", "exp_avg_sq")
    ]
    three = np.full((), 3, np.float32)
    tensors.append(meron.CheckpointTensor("c", "F32", (), three, kind="state.step"))
    meron.write_checkpoint(
        tmp_path,
        "ours",
        tensors,
        extra={"meron.torch": {"version": 1, "optimizers": saved}},
        optimizers=[{"rule": "adamw", "steps": n, "groups": [group]} for n in (5, 2)],
    )
    expected = {"a": 5, "b": 2, "c": 3}
    export_checkpoint(tmp_path, "ours", tmp_path / "universal", format="universal")
    export_checkpoint(tmp_path, "ours", tmp_path / "dcp", format="dcp")
    found = {f"optim.state.{name}.step": torch.zeros(()) for name in expected}
    torch_dcp.load(found, checkpoint_id=tmp_path / "dcp", no_dist=True)
    for name, steps in expected.items():
        assert torch.load(tmp_path / "universal" / "zero" / name / "step.pt") == steps
        assert int(found[f"optim.state.{name}.step"]) == steps


def test_a_distributed_checkpoint_of_torch(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    values, states = get_state_dict(model, optimizer)
    state = {"model": values, "optim": states, "step": 7, "note": "hello"}
    torch_dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    content = read(tmp_path / "dcp")
    found = by_kind(content)
    for name, value in model.state_dict().items():
        assert torch.equal(found[("values", name)], value)
    for param, name in zip(model.parameters(), model.state_dict(), strict=True):
        assert torch.equal(found[("exp_avg", name)], optimizer.state[param]["exp_avg"])
    assert (content.step, content.optimizer_steps, content.rule) == (7, 2, "adamw")
    assert content.groups[0].numbers["lr"] == 0.5
    assert content.groups[0].params == list(model.state_dict())
    assert content.extra == {"note": "hello"}


def test_files_of_torch_save(tmp_path: Path) -> None:
    torch.manual_seed(6)
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=0.5)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    torch.save(model.state_dict(), tmp_path / "plain.pt")
    assert torch.equal(by_kind(read(tmp_path / "plain.pt"))[("values", "weight")], model.weight)
    whole = {
        "state_dict": model.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "global_step": 3,
        "epoch": 1,
        "loss": float("nan"),
    }
    torch.save(whole, tmp_path / "lightning.ckpt")
    content = read(tmp_path / "lightning.ckpt")
    found = by_kind(content)
    assert torch.equal(found[("values", "bias")], model.bias)
    assert torch.equal(found[("exp_avg_sq", "bias")], optimizer.state[model.bias]["exp_avg_sq"])
    assert (content.step, content.optimizer_steps) == (3, 1)
    assert content.extra == {"epoch": 1}
    assert content.left_out == ["loss: holds nan, which JSON has not"]
    old = tmp_path / "old.pt"
    torch.save(model.state_dict(), old, _use_new_zipfile_serialization=False)
    assert torch.equal(by_kind(read(old))[("values", "weight")], model.weight)


class Harm:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self.path}",))


def test_nothing_in_a_file_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harm = tmp_path / "harm"
    torch.save({"w": torch.ones(2), "x": Harm(harm)}, tmp_path / "bad.pt")
    with pytest.raises(ConvertError, match=r"whose code would have to run: posix.system.*--trust"):
        read(tmp_path / "bad.pt")
    assert not harm.exists()
    model = layouts.Model(1, torch.float32)
    layouts.write_stage_3(tmp_path / "run", model, 2)
    state = tmp_path / "run" / "zero_pp_rank_1_mp_rank_00_model_states.pt"
    torch.save({"module": {"w": Harm(harm)}}, state)
    with pytest.raises(ConvertError, match="rank_1_mp_rank_00_model_states"):
        read(tmp_path / "run")
    assert not harm.exists()
    assert main(["import", str(tmp_path / "bad.pt"), str(tmp_path / "ours")]) == 1
    assert "posix.system" in capsys.readouterr().err
    assert not harm.exists() and not (tmp_path / "ours").exists()
    (tmp_path / "dcp").mkdir()
    import pickle

    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(Harm(harm)))
    with pytest.raises(ConvertError, match=r"posix\.system"):
        read(tmp_path / "dcp")
    assert not harm.exists()


def test_an_index_of_dcp_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    import pickle

    torch_dcp.save({"w": torch.arange(16.0)}, checkpoint_id=tmp_path / "ck", no_dist=True)
    (own,) = (tmp_path / "ck").glob("*.distcp")
    shutil.copy(own, tmp_path / "secret")
    whole = (tmp_path / "ck/.metadata").read_bytes()
    for name in ("../secret", str(tmp_path / "secret"), "..", "", "ck/../secret", 3):
        index = pickle.loads(whole)
        for info in index.storage_data.values():
            info.relative_path = name
        (tmp_path / "ck/.metadata").write_bytes(pickle.dumps(index))
        with pytest.raises(ConvertError, match="names a file outside of its folder"):
            read(tmp_path / "ck")
    (tmp_path / "ck/.metadata").write_bytes(whole)
    assert torch.equal(by_kind(read(tmp_path / "ck"))["values", "w"], torch.arange(16.0))
    own.unlink()
    own.symlink_to(tmp_path / "secret")
    with pytest.raises(ConvertError, match="is a link"):
        read(tmp_path / "ck")


def test_what_is_lacking_is_named(tmp_path: Path) -> None:
    model = layouts.Model(2, torch.float32)
    run = tmp_path / "run"
    layouts.write_stage_3(run / "global_step9", model, 3)
    with pytest.raises(ConvertError, match="no file 'latest'"):
        read(run, format="deepspeed")
    with pytest.raises(ConvertError, match="it has: global_step9"):
        read(run, format="deepspeed", tag="global_step8")
    with pytest.raises(ConvertError, match="it has: global_step9"):
        read(run, format="deepspeed", tag="../run/global_step9")
    gone = run / "global_step9" / "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt"
    gone.rename(tmp_path / "aside")
    with pytest.raises(ConvertError, match="optimizer states of 2 ranks, the model was saved by 3"):
        read(run / "global_step9")
    (tmp_path / "aside").rename(gone)
    content = gone.read_bytes()
    gone.write_bytes(content[: len(content) // 2])
    with pytest.raises(ConvertError, match="rank_2_mp_rank_00_optim_states"):
        read(run / "global_step9")
    with pytest.raises(ConvertError, match="no such file or folder"):
        read(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConvertError, match="no checkpoint that is known"):
        read(tmp_path / "empty")
    with pytest.raises(ConvertError, match="auto, deepspeed"):
        read(run, format="zarr")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ConvertError, match="holds a list"):
        read(tmp_path / "list.pt")


@pytest.mark.parametrize(("stage", "dtype"), [(3, "bf16"), (2, "f32")])
def test_real_checkpoints_of_deepspeed(tmp_path: Path, stage: int, dtype: str) -> None:
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    train_deepspeed(tmp_path / "run", stage, dtype)
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    theirs = get_fp32_state_dict_from_zero_checkpoint(str(tmp_path / "run"))
    found = by_kind(read(tmp_path / "run"))
    for name, tensor in theirs.items():
        if name in ("head.weight", "frozen", "buffer"):
            continue
        ours = found.get(("master", name), found.get(("values", name)))
        assert torch.equal(ours, tensor), name
        assert found[("exp_avg", name)].shape == tensor.shape


@pytest.mark.parametrize(("stage", "dtype", "close"), [(3, "f32", 0.0), (2, "bf16", 1e-3)])
def test_training_goes_on_with_the_losses_of_deepspeed(
    tmp_path: Path, stage: int, dtype: str, close: float
) -> None:
    """In f32 to the bit; in bf16 the two round sums of gradients in another order."""
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    theirs = train_deepspeed(tmp_path / "run", stage, dtype)
    import_checkpoint(tmp_path / "run", tmp_path / "ours")
    script = Path(__file__).parent / "convert" / "continue_in_meron.py"
    done = ranks.program(2, script, stage, dtype, tmp_path / "ours", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank, losses in enumerate(theirs):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["losses"] == pytest.approx(losses, abs=close, rel=0)
        assert (found["epoch"], found["steps"]) == (4, 6)


def train_deepspeed(folder: Path, stage: int, dtype: str) -> list[list[float]]:
    """Losses of both ranks after the checkpoint."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).parent / "convert" / "train_deepspeed.py"
    processes = []
    for rank in range(2):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        command = [sys.executable, str(script), str(stage), dtype, str(folder)]
        pipe = subprocess.PIPE
        processes.append(
            subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
        )
    for process in processes:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, out + err
    return [json.loads((folder / f"losses{rank}.json").read_text()) for rank in range(2)]
