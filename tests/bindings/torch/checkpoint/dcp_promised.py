# SPDX-License-Identifier: Apache-2.0
"""One rank: what state dicts for torch.distributed.checkpoint promise. Writes a line of JSON per
function into folder/rank: its name, and what went wrong or null."""

from __future__ import annotations

import copy
import io
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from promised import JOB, RANK, RANKS, folder, main, raises, same, values_of
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions
from training import WIDTH, Block, Model, build, train

import meron
import meron.torch as mt
from meron.torch.checkpoint import (
    FlatShard,
    LoadError,
    dcp_load,
    dcp_save,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from meron.torch.flat_shard import boxes_of

FULL = StateDictOptions(full_state_dict=True)
RANK0 = StateDictOptions(full_state_dict=True, cpu_offload=True, broadcast_from_rank0=True)
LENIENT = StateDictOptions(strict=False)


def trained(**more: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    job = {**JOB, **more}
    model, optimizer, scheduler = build(job)
    train(job, model, optimizer, scheduler, 0, 1)
    return model, optimizer


def refused(kind: type[Exception], text: str, function: Callable[..., Any], *args: Any) -> None:
    raises(kind, text, lambda: function(*args))


def ranges_are_few_boxes() -> None:
    for shape in ((), (7,), (3, 5), (2, 3, 4), (1, 4, 1, 3), (3, 0, 2)):
        size = math.prod(shape)
        numbers = torch.arange(size).view(shape)
        for begin, end in itertools.combinations(range(size + 1), 2):
            boxes = list(boxes_of(range(begin, end), shape))
            assert len(boxes) <= max(2 * len(shape) - 1, 1), (shape, begin, end)
            covered = [
                numbers[tuple(slice(o, o + n) for o, n in zip(offsets, sizes))].reshape(-1)
                for offsets, sizes in boxes
            ]
            assert torch.cat(covered).tolist() == list(range(begin, end)), (shape, begin, end)


def each_rank_has_its_range() -> None:
    for plan in ("zero3", "zero0"):
        model, _ = trained(plan=plan)
        whole = model.state_dict()
        state = get_model_state_dict(model)
        assert list(state) == list(whole)
        for name, value in state.items():
            if name in ("plain", "passes"):
                assert torch.equal(value, whole[name]) and type(value) is torch.Tensor
                value += 1  # a copy
                continue
            own = whole[name].reshape(-1)[value.begin :][: value.to_local().numel()]
            assert value.shape == whole[name].shape and torch.equal(value.to_local(), own)
        assert state["head.weight"] is state["embed.weight"]
        same(model, whole)
        own = sum(s.to_local().numel() for s in state.values() if isinstance(s, FlatShard))
        total = sum(t.numel() for t in whole.values())
        assert plan == "zero0" or own < total / RANKS + total / 4


def shards_are_tensors_that_do_not_compute() -> None:
    model, _ = trained()
    value = get_model_state_dict(model)["blocks.0.up.weight"]
    for other in (value.clone(), copy.deepcopy(value), value.detach(), value.to(torch.float32)):
        assert isinstance(other, FlatShard) and torch.equal(other, value)
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(again.to_local(), value.to_local())
    assert value.bfloat16().dtype is torch.bfloat16
    refused(meron.UnsupportedError, "full_state_dict=True", lambda: value + 1)
    refused(meron.UnsupportedError, "to_local", lambda: value.sum())
    assert "FlatShard" in repr(value)


def files_need_no_process_group() -> None:
    model, _ = trained()
    where = folder()
    state = {"model": get_model_state_dict(model), "step": torch.tensor(3), "note": "x"}
    if RANKS > 1:
        try:
            dcp.save(state, checkpoint_id=where)
        except (Exception, dcp.api.CheckpointException) as error:
            assert "dcp_save" in str(error)
        else:
            raise AssertionError("each rank saved as if it were alone")
    dcp_save(state, checkpoint_id=where)
    expected = values_of(model)
    for load in (dcp_load, dcp.load):
        other, _, _ = build({**JOB, "seed": 8})
        found = {"model": get_model_state_dict(other), "step": torch.tensor(0), "note": ""}
        load(found, checkpoint_id=where)
        assert int(found["step"]) == 3 and found["note"] == "x"
        set_model_state_dict(other, found["model"])
        same(other, expected)
    found = {"model": {**found["model"], "more": torch.zeros(2)}}
    if RANK:
        found["model"].pop("more")
    kind = meron.ArgumentError if RANK else RuntimeError  # the others are told of rank 0's
    refused(kind, "more", lambda: dcp_load(found, checkpoint_id=where))
    refused(meron.ArgumentError, "model=", lambda: dcp_save({"a": 1}, checkpoint_id=where))
    refused(meron.ArgumentError, "checkpoint_id", lambda: dcp_save(state))


def objects_with_states_are_asked_for_them() -> None:
    model, optimizer = trained()

    class App:
        def state_dict(self) -> dict[str, Any]:
            return dict(zip(("model", "optim"), get_state_dict(model, optimizer)))

        def load_state_dict(self, state: dict[str, Any]) -> None:
            set_state_dict(
                model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
            )

    where, before = folder(), values_of(model)
    dcp_save({"app": App()}, checkpoint_id=where, background=True).wait()
    mt.set_full_param(model.blocks[0].up.bias, torch.zeros(2 * WIDTH + 1))
    dcp_load({"app": App()}, checkpoint_id=where)
    same(model, before)


def values_that_do_not_fit_change_nothing() -> None:
    model, _ = trained()
    other, _, _ = build({**JOB, "seed": 6, "units": False})
    before = values_of(other)
    good = get_model_state_dict(other)
    name = "blocks.0.up.weight"
    less = {key: value for key, value in good.items() if key != name}
    for text, bad in (
        (f"missing: {name}", less),
        ("unexpected: more", {**good, "more": torch.zeros(1)}),
        (f"of another shape or dtype: {name}", {**good, name: torch.zeros(2, 2)}),
        (f"the value of {name} is a str", {**good, name: "x"}),
        ("passes is a", {**good, "passes": good[name]}),
        ("head.weight has other values", {**good, "head.weight": torch.zeros(WIDTH, WIDTH)}),
    ):
        refused(meron.ArgumentError, text, lambda bad=bad: set_model_state_dict(other, bad))
        on_one = bad if RANK == 0 else good
        refused(meron.ArgumentError, text, lambda bad=on_one: set_model_state_dict(other, bad))
    if RANKS > 1:
        shards = get_model_state_dict(model)
        refused(meron.ArgumentError, "another plan", set_model_state_dict, other, shards)
        refused(meron.ArgumentError, "elements", other.load_state_dict, shards)
        bad = less if RANK == 0 else good
        raises(
            LoadError, "other tensors", lambda: set_model_state_dict(other, bad, options=LENIENT)
        )
    same(other, before)
    result = set_model_state_dict(other, {**less, "more": torch.zeros(1)}, options=LENIENT)
    assert result.missing_keys == [name] and result.unexpected_keys == ["more"]
    other.load_state_dict(good)
    same(other, before)


def frozen_params_and_submodules_are_chosen() -> None:
    model, optimizer = trained()
    state = get_model_state_dict(model, options=StateDictOptions(ignore_frozen_params=True))
    assert not {"scale", "plain"} & state.keys() and "passes" in state
    refused(LoadError, "missing: plain, scale", set_model_state_dict, model, state)
    set_model_state_dict(model, state, options=StateDictOptions(ignore_frozen_params=True))
    part = {model.blocks[0]}
    names = get_model_state_dict(model, submodules=part)
    assert all(name.startswith("blocks.0.") for name in names) and len(names) == 6
    short = StateDictOptions(keep_submodule_prefixes=False)
    state = get_model_state_dict(model, submodules=part, options=short)
    assert "up.weight" in state and len(state) == 6
    for text, function in (
        ("keep_submodule_prefixes", lambda: get_model_state_dict(model, options=short)),
        ("keep_submodule_prefixes", lambda: set_model_state_dict(model, {}, options=short)),
        ("submodules", lambda: get_optimizer_state_dict(model, optimizer, submodules=part)),
        ("submodules", lambda: get_model_state_dict(model, submodules={nn.Linear(1, 1)})),
        (
            "dsd_fqn_modifiers",
            lambda: get_model_state_dict(
                model, options=StateDictOptions(dsd_fqn_modifiers="_other")
            ),
        ),
        (
            "broadcast_from_rank0",
            lambda: set_model_state_dict(
                model, {}, options=StateDictOptions(broadcast_from_rank0=True)
            ),
        ),
        (
            "full_state_dict",
            lambda: set_model_state_dict(model, get_model_state_dict(model), options=FULL),
        ),
        ("options is a dict", lambda: get_model_state_dict(model, options={})),
    ):
        refused(meron.ArgumentError, text, function)


def deferred() -> nn.Module:
    """A model whose sharded params have no values."""
    with torch.device("meta"):
        model = Model()
    model.plain = nn.Parameter(torch.zeros(5), requires_grad=False)
    model.passes, model.table = torch.zeros((), dtype=torch.int64), torch.ones(WIDTH)
    mt.shard(model, units=Block, init="defer", ignored_params=[model.plain])
    return model


def deferred_models_load() -> None:
    model, _ = trained()
    where = folder()
    dcp_save(get_model_state_dict(model), checkpoint_id=where)
    other = deferred()
    state = get_model_state_dict(other)
    refused(meron.StateError, "no values yet", lambda: dcp_save(state, checkpoint_id=folder()))
    refused(meron.StateError, "no values yet", set_model_state_dict, other, state)
    refused(meron.StateError, "no values yet", lambda: get_model_state_dict(other, options=FULL))
    dcp_load(state, checkpoint_id=where)
    set_model_state_dict(other, state)
    same(other, values_of(model))


def deferred_models_have_no_values_after_a_load_that_failed() -> None:
    model, _ = trained()
    where = folder()
    dcp_save(get_model_state_dict(model), checkpoint_id=where)
    damaged = folder()
    dcp_save(get_model_state_dict(model), checkpoint_id=damaged)
    if RANK == 0:
        for file in Path(damaged).glob("*.distcp"):
            file.write_bytes(b"")
    folder()  # rank 0 is here
    other = deferred()
    state = get_model_state_dict(other)
    for load in (dcp_load, dcp.load):
        more = {**state, "more": torch.zeros(2)}
        for given, path in ((more, where), (state, damaged)):
            try:
                load(given, checkpoint_id=path)
            except (Exception, dcp.api.CheckpointException):
                refused(meron.StateError, "no values yet", set_model_state_dict, other, state)
            else:
                raise AssertionError("it loaded")
    copy_of = state["embed.weight"].clone()
    copy_of.copy_(state["embed.weight"])
    refused(meron.StateError, "no values", copy_of.require_values, "it")
    dcp.load(state, checkpoint_id=where)
    set_model_state_dict(other, state)
    same(other, values_of(model))


def tensors_of_one_and_of_no_elements_are_saved() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Parameter(torch.tensor(2.0))
            self.none = nn.Parameter(torch.zeros(3, 0, 2))
            self.some = nn.Parameter(torch.arange(2.0))

    model = mt.shard(Odd())
    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters()))
    where = folder()
    values, states = get_state_dict(model, optimizer)
    dcp_save({"m": values, "o": states}, checkpoint_id=where)
    mt.set_full_param(model.one, torch.tensor(5.0))
    dcp_load({"m": values, "o": states}, checkpoint_id=where)
    set_state_dict(model, optimizer, model_state_dict=values, optim_state_dict=states)
    full = get_state_dict(model, optimizer, options=FULL)
    assert full[0]["one"] == 2.0 and full[0]["none"].shape == (3, 0, 2)
    set_state_dict(model, optimizer, model_state_dict=full[0], optim_state_dict=full[1])
    assert optimizer.state[optimizer.param_groups[0]["params"][0]]["exp_avg"].dim() == 1


if __name__ == "__main__":
    main(globals())
