# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and pretrained weights of models: names, mismatches, errors, deferred models."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest
import torch
from checkpoint_model import (
    FULL,
    JOB,
    RANK,
    RANKS,
    WIDTH,
    Block,
    Model,
    build,
    digest,
    same,
    train,
    trained,
    values_of,
)
from torch import nn

import meron
import meron.torch as mt
from meron.torch.checkpoint import (
    LoadError,
    get_optimizer_state_dict,
    packing,
    set_optimizer_state_dict,
)

pytestmark = pytest.mark.ranks(1, 2)


def test_files_have_the_names_of_state_dict(tmp_path: Path) -> None:
    model, optimizer, _ = build(JOB)
    mt.save(tmp_path, "a", model, optimizer)
    saved = meron.open_checkpoint(tmp_path, "a")
    found = {name for kind, name in saved.tensors if kind == "values"}
    assert found == set(model.state_dict()) - {"head.weight"}  # tied to embed.weight


def test_load_lists_mismatches_and_changes_nothing(tmp_path: Path) -> None:
    model, optimizer, _ = build(JOB)
    mt.save(tmp_path, "a", model, optimizer)

    class Other(Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks[0].up = nn.Linear(WIDTH, 2 * WIDTH + 1, bias=False)
            self.blocks[1].norm = nn.LayerNorm(WIDTH - 1)
            self.more = nn.Linear(2, 2)

    torch.manual_seed(3)
    other = mt.shard(Other(), units=Block)
    before = values_of(other)
    for text in (
        "missing: more.bias, more.weight",
        "unexpected: blocks.0.up.bias",
        "of another shape or dtype: blocks.1.norm.bias (F32 [12] in the checkpoint, [11] here)",
    ):
        with pytest.raises(LoadError, match=re.escape(text)):
            mt.load(tmp_path, None, other)
    same(other, before)
    with pytest.raises(LoadError, match="of another shape"):
        mt.load(tmp_path, "a", other, strict=False)
    same(other, before)


def test_lenient_load_keeps_params_that_are_missing(tmp_path: Path) -> None:
    model, _, _ = build(JOB)
    mt.save(tmp_path, "a", model.blocks, None)
    torch.manual_seed(5)
    other = mt.shard(nn.Sequential(Block(), Block(), Block()), units=Block)
    before = values_of(other)
    loaded = mt.load(tmp_path, None, other, strict=False)
    assert "2.up.weight" in loaded.missing and not loaded.unexpected
    same(other[2], {k[2:]: v for k, v in before.items() if k.startswith("2.")})
    same(other[0], values_of(model.blocks[0]))


def test_error_on_one_rank_is_raised_on_all(tmp_path: Path) -> None:
    model, optimizer, _ = build(JOB)
    extra = {"bad": object()} if RANK == RANKS - 1 else {}
    with pytest.raises(meron.ArgumentError, match="extra holds what JSON cannot"):
        mt.save(tmp_path, "a", model, extra=extra)
    with pytest.raises(meron.NotFoundError):
        mt.load(tmp_path, None, model)
    mt.save(tmp_path, "a", model, optimizer)
    with pytest.raises(meron.DuplicateError, match="a"):
        mt.save(tmp_path, "a", model, optimizer)
    mt.save(tmp_path, "a", model, optimizer, overwrite=True)


@pytest.mark.parametrize("rule", ["engine AdamW", "torch AdamW"])
@pytest.mark.parametrize("plan", ["zero0", "zero1", "zero2", "zero3"])
def test_a_save_within_an_accumulation_has_what_the_last_step_left(
    plan: str, rule: str, tmp_path: Path
) -> None:
    job = {**JOB, "plan": plan, "rule": rule}
    model, optimizer, scheduler = build(job)
    train(job, model, optimizer, scheduler, 0, 2)
    at_step = digest(model, optimizer)
    values = values_of(model)
    micro_batch(model, 1)
    mt.save(tmp_path, "after one", model, optimizer)
    micro_batch(model, 2)
    mt.save(tmp_path, "after two", model, optimizer, step=1)
    mt.save_pretrained(model, tmp_path / "hf")
    optimizer.step()
    after = digest(model, optimizer)
    for name in ("after one", "after two"):
        other, its, _ = build({**job, "seed": 9})
        mt.load(tmp_path, name, other, its)
        assert digest(other, its) == at_step
        micro_batch(other, 1)
        micro_batch(other, 2)
        its.step()
        assert digest(other, its) == after
    third, _, _ = build({**job, "seed": 9})
    mt.load_pretrained(third, tmp_path / "hf")
    same(third.blocks, {k[7:]: v for k, v in values.items() if k.startswith("blocks.")})


def test_a_save_within_no_sync_keeps_the_gradients(tmp_path: Path) -> None:
    model, optimizer, _ = build(JOB)
    with mt.no_sync(model):
        micro_batch(model, 1)
        mt.save(tmp_path, "a", model, optimizer)
    micro_batch(model, 2)
    optimizer.step()
    after = digest(model, optimizer)
    other, its, _ = build({**JOB, "seed": 9})
    mt.load(tmp_path, "a", other, its)
    with mt.no_sync(other):
        micro_batch(other, 1)
    micro_batch(other, 2)
    its.step()
    assert digest(other, its) == after


@pytest.mark.ranks(2)
def test_folders_and_names_that_differ_between_ranks_are_named(tmp_path: Path) -> None:
    model, optimizer, _ = build(JOB)
    with pytest.raises(meron.ArgumentError, match=r"folder is '.*1' on rank 1 and '.*0' on rank 0"):
        mt.save(tmp_path / str(RANK), "a", model, optimizer)
    with pytest.raises(meron.ArgumentError, match="name is 'b1' on rank 1 and 'b0' on rank 0"):
        mt.save(tmp_path, f"b{RANK}", model, optimizer)
    with pytest.raises(meron.ArgumentError, match=r"folder is '.*1' on rank 1"):
        mt.save_pretrained(model, tmp_path / str(RANK))
    assert not list(tmp_path.iterdir())
    mt.save(tmp_path, "a", model, optimizer)


def micro_batch(model: nn.Module, seed: int) -> None:
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(10 * seed + RANK))
    model(x).square().mean().backward()


def test_saves_and_loads_beside_a_model_with_a_gradient_and_one_in_use(tmp_path: Path) -> None:
    model, optimizer = trained()
    values = digest(model, optimizer)
    other = mt.shard(nn.Linear(WIDTH, WIDTH))
    other(torch.ones(2, WIDTH)).sum().backward()
    used = mt.shard(nn.Linear(WIDTH, WIDTH))
    mt.unshard(used)
    mt.save(tmp_path, "a", model, optimizer)
    mt.save_pretrained(model, tmp_path / "hf")
    train(JOB, model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 9), 1, 2)
    mt.load(tmp_path, "a", model, optimizer)
    mt.load_pretrained(model, tmp_path / "hf")
    assert digest(model, optimizer) == values
    mt.reshard(used)
    assert float(mt.full_grad(other.bias).sum()) == 2 * WIDTH
    mt.shard_optimizer(other, torch.optim.SGD(other.parameters(), lr=1.0)).zero_grad()


def test_saves_a_model_whose_output_no_loss_used(tmp_path: Path) -> None:
    model, optimizer, _ = build(JOB)
    other = mt.shard(nn.Linear(WIDTH, WIDTH))
    model(other(torch.zeros(2, WIDTH)).detach()).sum().backward()
    optimizer.step()
    mt.save(tmp_path, "a", model, optimizer)
    mt.load(tmp_path, "a", model, optimizer)
    other(torch.ones(2, WIDTH)).sum().backward()
    assert float(mt.full_grad(other.bias).sum()) == 2 * WIDTH
    mt.shard_optimizer(other, torch.optim.SGD(other.parameters(), lr=1.0)).zero_grad()


def test_saves_and_loads_only_the_models_passed(tmp_path: Path) -> None:
    one, two = mt.shard(nn.Linear(4, 4)), mt.shard(nn.Linear(4, 4))
    mt.save(tmp_path, "a", one)
    mt.save(tmp_path, "b", {"one": one, "two": two}, step=1)
    assert len(meron.open_checkpoint(tmp_path, "a").tensors) == 2 + RANKS
    before = values_of(two)
    kept = values_of(one)
    with torch.no_grad():
        mt.set_full_param(one.weight, torch.zeros(4, 4))
    mt.load(tmp_path, "a", one)
    same(one, kept)
    same(two, before)
    mt.load(tmp_path, None, {"one": one, "two": two})
    same(two, before)


def test_leaves_out_frozen_params_on_request(tmp_path: Path) -> None:
    model, optimizer, _ = build(JOB)
    mt.save(tmp_path, "a", model, optimizer, skip_frozen=True)
    tensors = meron.open_checkpoint(tmp_path, "a").tensors
    assert ("values", "scale") not in tensors and ("values", "plain") not in tensors
    assert mt.load(tmp_path, None, model, optimizer).missing == []


def test_step_waits_for_the_copies_of_a_background_save(tmp_path: Path) -> None:
    model, optimizer, scheduler = build(JOB)
    train(JOB, model, optimizer, scheduler, 0, 2)
    handle = mt.save(tmp_path, "a", model, optimizer, background=True)
    expected = values_of(model)
    train(JOB, model, optimizer, scheduler, 2, 4)
    handle.wait()
    assert handle.done()
    other, its, _ = build({**JOB, "seed": 9})
    mt.load(tmp_path, None, other, its)
    same(other, expected)


def test_loads_pretrained_weights_into_a_deferred_model(tmp_path: Path) -> None:
    model, _, _ = build(JOB)
    mt.save_pretrained(model, tmp_path / "hf")
    with torch.device("meta"):
        other = Model()
    other.plain = nn.Parameter(torch.zeros(5), requires_grad=False)
    left = [other.plain]
    with pytest.raises(meron.StateError, match="table"):
        mt.load_pretrained(
            mt.shard(other, units=Block, init="defer", ignored_params=left), tmp_path / "hf"
        )
    other.table = torch.ones(WIDTH)
    with pytest.raises(meron.StateError, match="has no values yet"):
        other(torch.zeros(2, WIDTH))
    with pytest.raises(meron.StateError, match="has no values yet"):
        mt.save(tmp_path, "a", other)
    mt.load_pretrained(other, tmp_path / "hf")
    same(other, values_of(model))
    other(torch.zeros(2, WIDTH))


class Config:
    """As transformers' configs are saved."""

    dtype = "bfloat16"

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        (Path(folder) / "config.json").write_text(json.dumps({"dtype": self.dtype}))


@pytest.mark.parametrize(
    ("asked", "written"),
    [(torch.float32, "float32"), (torch.float16, "float16"), (None, "float32")],
    ids=str,
)
def test_saves_a_config_with_the_dtype_of_the_files(
    asked: torch.dtype | None, written: str, tmp_path: Path
) -> None:
    model, _, _ = build(JOB)
    model.config = config = Config()
    mt.save_pretrained(model, tmp_path / "hf", dtype=asked)
    assert json.loads((tmp_path / "hf" / "config.json").read_text()) == {"dtype": written}
    assert config.dtype == "bfloat16"  # the model's own stays


def test_loads_pretrained_weights_under_other_names(tmp_path: Path) -> None:
    model, _, _ = build(JOB)
    mt.save_pretrained(model.blocks, tmp_path)
    expected = values_of(model.blocks)

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(Block(), Block())

    around = mt.shard(Around(), units=Block)
    mt.load_pretrained(around, tmp_path)
    same(around.body, expected)
    mt.save_pretrained(around, tmp_path / "b")
    torch.manual_seed(8)
    plain = mt.shard(nn.Sequential(Block(), Block()), units=Block)
    mt.load_pretrained(plain, tmp_path / "b", convert={"0.up.weight": lambda t: -t})
    assert torch.equal(plain.state_dict()["0.up.weight"], -expected["0.up.weight"])
    mapping = {"0.up.weight": "body.1.up.weight"}
    with pytest.raises(LoadError, match=re.escape("unexpected: body.0.up.weight")):
        mt.load_pretrained(plain, tmp_path / "b", mapping=mapping)
    mt.load_pretrained(plain, tmp_path / "b", mapping=lambda n: mapping.get(n), strict=False)
    assert torch.equal(plain.state_dict()["0.up.weight"], expected["1.up.weight"])


def test_optimizer_states_move_by_param_names() -> None:
    for rule, other in (("torch AdamW", "engine AdamW"), ("engine AdamW", "torch AdamW")):
        model, optimizer, scheduler = build({**JOB, "rule": rule})
        train(JOB, model, optimizer, scheduler, 0, 2)
        state = get_optimizer_state_dict(model, optimizer, options=FULL)
        assert set(state["state"]) == {
            name for name, param in model.named_parameters() if param.requires_grad
        }
        again, its, _ = build({**JOB, "rule": other, "plan": "zero1", "units": False, "seed": 4})
        set_optimizer_state_dict(again, its, state)
        found = get_optimizer_state_dict(again, its, options=FULL)
        for name, values in state["state"].items():
            for key, value in values.items():
                assert torch.equal(found["state"][name][key], value), (name, key)
        assert [g["lr"] for g in found["param_groups"]] == [g["lr"] for g in state["param_groups"]]
        wrong = {**state, "param_groups": state["param_groups"][:1]}
        if RANK == 0:
            state["state"]["embed.weight"]["exp_avg"] = torch.zeros(3)
        for bad, text in ((wrong, "param groups"), (state, "embed.weight")):
            with pytest.raises(meron.ArgumentError, match=re.escape(text)):
                set_optimizer_state_dict(again, its, bad)


def test_packing_restores_scheduler_states() -> None:
    for value in ({1: 2}, (1, [2.5, None]), {"a": math.inf}, {"$x": "y"}, torch.arange(3)):
        again = packing.loads(packing.dumps(value, "it"), "it")
        assert type(again) is type(value)
        assert torch.equal(again, value) if isinstance(value, torch.Tensor) else again == value
    with pytest.raises(meron.ArgumentError, match=re.escape("it['a'] holds a object")):
        packing.dumps({"a": object()}, "it")
