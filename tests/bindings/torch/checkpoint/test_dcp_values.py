# SPDX-License-Identifier: Apache-2.0
"""State dicts of models for torch.distributed.checkpoint: contents, loads, and what they reject."""

from __future__ import annotations

import copy
import io
import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from checkpoint_model import (
    FULL,
    JOB,
    LENIENT,
    RANK,
    RANKS,
    WIDTH,
    Block,
    Model,
    build,
    same,
    trained,
    values_of,
    wait_for_all,
)
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions

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

pytestmark = pytest.mark.ranks(1, 2)


def test_boxes_cover_each_range() -> None:
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


def test_state_dict_has_the_shard_of_each_rank() -> None:
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


def test_shards_copy_and_pickle_but_do_not_compute() -> None:
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
    with pytest.raises(meron.UnsupportedError, match="full_state_dict=True"):
        _ = value + 1
    with pytest.raises(meron.UnsupportedError, match="to_local"):
        value.sum()
    assert "FlatShard" in repr(value)


def test_saves_and_loads_without_a_process_group(tmp_path: Path) -> None:
    model, _ = trained()
    state = {"model": get_model_state_dict(model), "step": torch.tensor(3), "note": "x"}
    if RANKS > 1:
        try:
            dcp.save(state, checkpoint_id=tmp_path)
        except (Exception, dcp.api.CheckpointException) as error:
            assert "dcp_save" in str(error)
        else:
            raise AssertionError("each rank saved as if it were alone")
    dcp_save(state, checkpoint_id=tmp_path)
    expected = values_of(model)
    for load in (dcp_load, dcp.load):
        other, _, _ = build({**JOB, "seed": 8})
        found = {"model": get_model_state_dict(other), "step": torch.tensor(0), "note": ""}
        load(found, checkpoint_id=tmp_path)
        assert int(found["step"]) == 3 and found["note"] == "x"
        set_model_state_dict(other, found["model"])
        same(other, expected)
    found = {"model": {**found["model"], "more": torch.zeros(2)}}
    if RANK:
        found["model"].pop("more")
    kind = meron.ArgumentError if RANK else RuntimeError  # rank 0 reports what torch raised
    with pytest.raises(kind, match="more"):
        dcp_load(found, checkpoint_id=tmp_path)
    with pytest.raises(meron.ArgumentError, match="model="):
        dcp_save({"a": 1}, checkpoint_id=tmp_path)
    with pytest.raises(meron.ArgumentError, match="checkpoint_id"):
        dcp_save(state)


def test_saves_and_loads_stateful_objects(tmp_path: Path) -> None:
    model, optimizer = trained()

    class App:
        def state_dict(self) -> dict[str, Any]:
            return dict(zip(("model", "optim"), get_state_dict(model, optimizer)))

        def load_state_dict(self, state: dict[str, Any]) -> None:
            set_state_dict(
                model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
            )

    before = values_of(model)
    dcp_save({"app": App()}, checkpoint_id=tmp_path, background=True).wait()
    mt.set_full_param(model.blocks[0].up.bias, torch.zeros(2 * WIDTH + 1))
    dcp_load({"app": App()}, checkpoint_id=tmp_path)
    same(model, before)


def test_set_rejects_mismatched_values_and_changes_nothing() -> None:
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
        with pytest.raises(meron.ArgumentError, match=re.escape(text)):
            set_model_state_dict(other, bad)
        on_one = bad if RANK == 0 else good
        with pytest.raises(meron.ArgumentError, match=re.escape(text)):
            set_model_state_dict(other, on_one)
    if RANKS > 1:
        shards = get_model_state_dict(model)
        with pytest.raises(meron.ArgumentError, match="another plan"):
            set_model_state_dict(other, shards)
        with pytest.raises(meron.ArgumentError, match="elements"):
            other.load_state_dict(shards)
        bad = less if RANK == 0 else good
        with pytest.raises(LoadError, match="other tensors"):
            set_model_state_dict(other, bad, options=LENIENT)
    same(other, before)
    result = set_model_state_dict(other, {**less, "more": torch.zeros(1)}, options=LENIENT)
    assert result.missing_keys == [name] and result.unexpected_keys == ["more"]
    other.load_state_dict(good)
    same(other, before)


def test_selects_frozen_params_and_submodules() -> None:
    model, optimizer = trained()
    state = get_model_state_dict(model, options=StateDictOptions(ignore_frozen_params=True))
    assert not {"scale", "plain"} & state.keys() and "passes" in state
    with pytest.raises(LoadError, match="missing: plain, scale"):
        set_model_state_dict(model, state)
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
        with pytest.raises(meron.ArgumentError, match=re.escape(text)):
            function()


def deferred() -> nn.Module:
    """Returns a model whose sharded params have no values."""
    with torch.device("meta"):
        model = Model()
    model.plain = nn.Parameter(torch.zeros(5), requires_grad=False)
    model.passes, model.table = torch.zeros((), dtype=torch.int64), torch.ones(WIDTH)
    mt.shard(model, units=Block, init="defer", ignored_params=[model.plain])
    return model


def test_deferred_model_loads(tmp_path: Path) -> None:
    model, _ = trained()
    dcp_save(get_model_state_dict(model), checkpoint_id=tmp_path)
    other = deferred()
    state = get_model_state_dict(other)
    with pytest.raises(meron.StateError, match="no values yet"):
        dcp_save(state, checkpoint_id=tmp_path / "deferred")
    with pytest.raises(meron.StateError, match="no values yet"):
        set_model_state_dict(other, state)
    with pytest.raises(meron.StateError, match="no values yet"):
        get_model_state_dict(other, options=FULL)
    dcp_load(state, checkpoint_id=tmp_path)
    set_model_state_dict(other, state)
    same(other, values_of(model))


def test_deferred_model_has_no_values_after_a_failed_load(tmp_path: Path) -> None:
    model, _ = trained()
    where = tmp_path / "saved"
    dcp_save(get_model_state_dict(model), checkpoint_id=where)
    damaged = tmp_path / "damaged"
    dcp_save(get_model_state_dict(model), checkpoint_id=damaged)
    if RANK == 0:
        for file in damaged.glob("*.distcp"):
            file.write_bytes(b"")
    wait_for_all()
    other = deferred()
    state = get_model_state_dict(other)
    for load in (dcp_load, dcp.load):
        more = {**state, "more": torch.zeros(2)}
        for given, path in ((more, where), (state, damaged)):
            try:
                load(given, checkpoint_id=path)
            except (Exception, dcp.api.CheckpointException):
                with pytest.raises(meron.StateError, match="no values yet"):
                    set_model_state_dict(other, state)
            else:
                raise AssertionError("it loaded")
    copy_of = state["embed.weight"].clone()
    copy_of.copy_(state["embed.weight"])
    with pytest.raises(meron.StateError, match="no values"):
        copy_of.require_values("it")
    dcp.load(state, checkpoint_id=where)
    set_model_state_dict(other, state)
    same(other, values_of(model))


def test_saves_tensors_of_one_and_of_zero_elements(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Parameter(torch.tensor(2.0))
            self.none = nn.Parameter(torch.zeros(3, 0, 2))
            self.some = nn.Parameter(torch.arange(2.0))

    model = mt.shard(Odd())
    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters()))
    values, states = get_state_dict(model, optimizer)
    dcp_save({"m": values, "o": states}, checkpoint_id=tmp_path)
    mt.set_full_param(model.one, torch.tensor(5.0))
    dcp_load({"m": values, "o": states}, checkpoint_id=tmp_path)
    set_state_dict(model, optimizer, model_state_dict=values, optim_state_dict=states)
    full = get_state_dict(model, optimizer, options=FULL)
    assert full[0]["one"] == 2.0 and full[0]["none"].shape == (3, 0, 2)
    set_state_dict(model, optimizer, model_state_dict=full[0], optim_state_dict=full[1])
    assert not optimizer.state  # it has not stepped
