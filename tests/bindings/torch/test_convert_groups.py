# SPDX-License-Identifier: Apache-2.0
"""meron.convert: groups of params keep their numbers, and a copy that lacks states is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as torch_dcp  # noqa: E402
from convert import layouts  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions,
    get_state_dict,
)

import meron  # noqa: E402
from meron.convert import export_checkpoint, import_checkpoint, read  # noqa: E402
from meron.convert.content import Content, ConvertError  # noqa: E402

COUNT = 12  # groups: more than 10, because "10" sorts before "2"


def step(optimizer: Any) -> None:
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()


def twelve(decay: float = 0.0) -> tuple[Any, Any]:
    """A model of twelve params, each in a group of its own with the learning rate 1, 2, ..."""
    model = torch.nn.Module()
    groups = []
    for i in range(COUNT):
        param = torch.nn.Parameter(torch.full((3,), float(i)))
        model.register_parameter(f"w{i}", param)
        groups.append({"params": [param], "lr": 1.0 + i, "weight_decay": decay * i})
    optimizer = torch.optim.AdamW(groups)
    step(optimizer)
    return model, optimizer


def write_dcp(folder: Path, model: Any, optimizer: Any, flat: bool = False) -> None:
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    values, states = get_state_dict(model, optimizer, options=options)
    torch_dcp.save({"model": values, "optim": states}, checkpoint_id=folder, no_dist=True)


def imported(source: Path, folder: Path, **options: Any) -> tuple[Content, list[dict[str, Any]]]:
    """Imports `source`. Returns its content, and the optimizers of the new checkpoint."""
    content = import_checkpoint(source, folder, "first", **options)
    with meron.open_checkpoint(folder, "first") as checkpoint:
        optimizers: list[dict[str, Any]] = checkpoint.manifest["optimizers"]
        return content, optimizers


def rates(optimizers: list[dict[str, Any]]) -> list[float]:
    return [group["learning_rate"] for each in optimizers for group in each["groups"]]


def test_more_than_ten_groups_keep_their_order(tmp_path: Path) -> None:
    write_dcp(tmp_path / "dcp", *twelve())
    content, optimizers = imported(tmp_path / "dcp", tmp_path / "ours")
    assert rates(optimizers) == [1.0 + i for i in range(COUNT)]
    assert [group.params for group in content.groups] == [[f"w{i}"] for i in range(COUNT)]


@pytest.mark.parametrize("to", ["dcp", "universal"])
def test_groups_survive_an_export(tmp_path: Path, to: str) -> None:
    write_dcp(tmp_path / "dcp", *twelve(decay=0.01))
    _, before = imported(tmp_path / "dcp", tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", "first", tmp_path / "theirs", format=to)
    _, after = imported(tmp_path / "theirs", tmp_path / "again")
    assert after == before
    assert before[0]["steps"] == 1 and rates(after) == [1.0 + i for i in range(COUNT)]


def test_groups_of_two_optimizers_are_exported(tmp_path: Path) -> None:
    write_dcp(tmp_path / "dcp", *twelve())
    content = read(tmp_path / "dcp")
    groups = [
        {"learning_rate": rate, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.0}
        for rate in (0.5, 0.25)
    ]
    meron.checkpoint.write_checkpoint(
        tmp_path / "ours",
        "first",
        [part for found in content.tensors for part in meron.convert.write.as_parts(found)],
        optimizers=[{"rule": "adamw", "steps": 4, "groups": [group]} for group in groups],
    )
    export_checkpoint(tmp_path / "ours", "first", tmp_path / "theirs", format="dcp")
    found = read(tmp_path / "theirs")
    assert [group.numbers["lr"] for group in found.groups] == [0.5, 0.25]
    assert found.optimizer_steps == 4


@pytest.mark.parametrize("kind", ["dcp", "torch"])
def test_a_learning_rate_that_is_a_tensor(tmp_path: Path, kind: str) -> None:
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=torch.tensor(0.25))
    step(optimizer)
    if kind == "dcp":
        write_dcp(tmp_path / "theirs", model, optimizer)
    else:
        both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(both, tmp_path / "theirs")
    content, optimizers = imported(tmp_path / "theirs", tmp_path / "ours")
    assert rates(optimizers) == [0.25] and optimizers[0]["steps"] == 1
    assert content.left_out == []


@pytest.mark.parametrize("same", [True, False])
def test_groups_that_were_flattened_to_params(tmp_path: Path, same: bool) -> None:
    """As torchtitan saves them."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    rest = {"lr": 0.5} if same else {"lr": 0.25}
    groups = [
        {"params": [*model[0].parameters()], "lr": 0.5},
        {"params": [*model[1].parameters()], **rest},
    ]
    optimizer = torch.optim.AdamW(groups)
    step(optimizer)
    write_dcp(tmp_path / "dcp", model, optimizer, flat=True)
    content, optimizers = imported(tmp_path / "dcp", tmp_path / "ours")
    if same:
        assert rates(optimizers) == [0.5] and content.left_out == []
        assert content.groups[0].params == sorted(model.state_dict())
    else:
        assert sorted(rates(optimizers)) == [0.25, 0.25, 0.5, 0.5]
        assert "by param, not by group" in content.left_out[0]
    assert optimizers[0]["steps"] == 1


def test_a_group_without_a_learning_rate_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.named_parameters())
    step(optimizer)
    state = optimizer.state_dict()
    del state["param_groups"][0]["lr"]
    torch.save({"model": model.state_dict(), "optimizer": state}, tmp_path / "theirs.pt")
    with pytest.raises(ConvertError, match=r"theirs\.pt: param group 0 .* no learning rate"):
        imported(tmp_path / "theirs.pt", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    imported(tmp_path / "theirs.pt", tmp_path / "ours", values_only=True)


def test_numbers_that_are_lost_are_named(tmp_path: Path) -> None:
    """The optimizer was the caller's: DeepSpeed does not save the name of its class."""
    model = layouts.Model(1, torch.float32)
    layouts.write_stage_2(tmp_path / "run", model, 2, rule="")
    content, optimizers = imported(tmp_path / "run", tmp_path / "ours")
    assert optimizers == [] and "does not name its update rule" in content.left_out[0]


def test_the_momentum_of_sgd(tmp_path: Path) -> None:
    model = layouts.Model(1, torch.float32)
    layouts.write_stage_2(tmp_path / "run", model, 2, rule="SGD")
    content, optimizers = imported(tmp_path / "run", tmp_path / "ours")
    assert [group["beta1"] for group in optimizers[0]["groups"]] == [0.0, 0.0]
    assert content.rule == "sgd"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stage", [2, 3])
def test_a_copy_without_optimizer_files_is_refused(
    tmp_path: Path, stage: int, dtype: torch.dtype
) -> None:
    write: Callable[..., None] = layouts.write_stage_3 if stage == 3 else layouts.write_stage_2
    write(tmp_path / "run", layouts.Model(2, dtype), 2)
    for each in (tmp_path / "run").glob("*_optim_states.pt"):
        each.unlink()
    with pytest.raises(ConvertError, match=r"no \*_optim_states\.pt.*: copy all its files"):
        import_checkpoint(tmp_path / "run", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    if stage < 3:  # as the error advises
        alone = tmp_path / "run" / "mp_rank_00_model_states.pt"
        content, _ = imported(alone, tmp_path / "ours")
        assert {found.kind for found in content.tensors} == {"values"}


def test_a_copy_without_model_files_of_some_ranks_is_refused(tmp_path: Path) -> None:
    layouts.write_stage_3(tmp_path / "run", layouts.Model(2, torch.float32), 3)
    (tmp_path / "run" / "zero_pp_rank_2_mp_rank_00_model_states.pt").unlink()
    with pytest.raises(ConvertError, match="model states of 2 ranks, the model was saved by 3"):
        read(tmp_path / "run")


@pytest.mark.parametrize("gone", ["w3/fp32.pt", "w3/exp_avg.pt", "w3", "optimizer_state.pt"])
def test_a_copy_of_a_universal_checkpoint_with_gaps_is_refused(tmp_path: Path, gone: str) -> None:
    write_dcp(tmp_path / "dcp", *twelve())
    imported(tmp_path / "dcp", tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", "first", tmp_path / "theirs", format="universal")
    (tmp_path / "theirs" / "zero" / gone).rename(tmp_path / "aside")
    with pytest.raises(ConvertError, match=rf"{gone.split('/')[0]}.*copy all its files"):
        read(tmp_path / "theirs")


def test_a_count_of_steps_that_is_no_tensor(tmp_path: Path) -> None:
    """The optimizer's steps are not the trainer's."""
    state = {"model": {"w": torch.ones(2)}, "optim": {"state": {"w": {"step": 5}}}, "step": 70}
    torch_dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    content = read(tmp_path / "dcp")
    assert (content.step, content.optimizer_steps) == (70, 5)
    assert json.dumps(content.extra) == "{}"
