# SPDX-License-Identifier: Apache-2.0
"""State dicts of optimizers, with their models', for torch.distributed.checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_model import (
    FULL,
    JOB,
    LENIENT,
    RANK,
    RANK0,
    RANKS,
    build,
    same,
    train,
    trained,
    values_of,
)
from torch import nn
from torch.distributed.checkpoint import state_dict as of_torch
from torch.distributed.checkpoint.state_dict import StateDictOptions

import meron
from meron.torch.checkpoint import (
    FlatShard,
    dcp_load,
    dcp_save,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)

pytestmark = pytest.mark.ranks(1, 2)
NAME = "blocks.0.up.weight"


def same_states(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["state"].keys() == other["state"].keys()
    for name, state in one["state"].items():
        assert state.keys() == other["state"][name].keys(), name
        for key, value in state.items():
            assert torch.equal(value, other["state"][name][key]), (name, key)
    assert one["param_groups"] == other["param_groups"]


def test_rank_0_collects_and_broadcasts_full_states() -> None:
    for rule in ("torch AdamW", "engine AdamW"):
        for low in (False, True):
            model, optimizer = trained(rule=rule, low=low)
            values, states = get_state_dict(model, optimizer, options=RANK0)
            assert bool(values) == bool(states) == (RANK == 0)
            assert not any(isinstance(value, FlatShard) for value in values.values())
            other, its, _ = build({**JOB, "rule": rule, "low": low, "seed": 4})
            if RANK:
                values, states = {"not": "looked at"}, {}
            set_state_dict(
                other, its, model_state_dict=values, optim_state_dict=states, options=RANK0
            )
            same(other, values_of(model))
            same_states(
                get_optimizer_state_dict(other, its, options=FULL),
                get_optimizer_state_dict(model, optimizer, options=FULL),
            )


def test_all_ranks_reject_values_that_rank_0_cannot_send() -> None:
    model, optimizer = trained()
    all_of_rank0 = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    before = values_of(model)
    values, states = get_state_dict(model, optimizer, options=FULL)
    shard = get_model_state_dict(model)[NAME]
    for wrong, text in (
        (shard, "it is one rank's range"),
        (torch.empty(shard.shape, device="meta"), "it is on the device meta"),
        (torch.eye(3).to_sparse(), "it is no dense tensor"),
        (lambda: None, "cannot be sent" if RANKS > 1 else "is a function"),
    ):
        given = {**values, NAME: wrong} if RANK == 0 else {}
        for part in (NAME, text):
            with pytest.raises(meron.ArgumentError, match=re.escape(part)):
                set_model_state_dict(model, given, options=all_of_rank0)
        given = {**states, "state": {**states["state"], NAME: {"exp_avg": wrong}}}
        given = given if RANK == 0 else {}
        with pytest.raises(meron.ArgumentError, match=re.escape(NAME)):
            set_optimizer_state_dict(model, optimizer, given, options=all_of_rank0)
    same(model, before)
    set_model_state_dict(model, values if RANK == 0 else {}, options=all_of_rank0)
    same(model, before)


def test_reading_states_before_the_first_step_changes_nothing() -> None:
    for rule, key in (
        ("torch AdamW", "exp_avg_sq"),
        ("torch SGD", "momentum_buffer"),
        ("torch Adagrad", "sum"),
        ("torch RMSprop", "square_avg"),
        ("engine AdamW", "exp_avg_sq"),
    ):
        model, optimizer, scheduler = build({**JOB, "rule": rule})
        before = values_of(model)
        state = get_optimizer_state_dict(model, optimizer)
        assert key in state["state"]["blocks.0.up.weight"], rule
        assert int(state["state"]["blocks.0.up.weight"].get("step", torch.zeros(()))) == 0
        same(model, before)
        twin, its, other = build({**JOB, "rule": rule})
        set_optimizer_state_dict(twin, its, get_optimizer_state_dict(twin, its))
        train(JOB, model, optimizer, scheduler, 0, 2)
        train(JOB, twin, its, other, 0, 2)
        same(twin, values_of(model))


def test_set_rejects_mismatched_states_and_changes_nothing() -> None:
    for rule in ("torch AdamW", "engine AdamW"):
        model, optimizer = trained(rule=rule)
        before = get_optimizer_state_dict(model, optimizer, options=FULL)

        def changed(
            change: Callable[[dict[str, Any]], Any],
            model: nn.Module = model,
            optimizer: Any = optimizer,
        ) -> dict[str, Any]:
            state = get_optimizer_state_dict(model, optimizer)
            change(state)
            return state

        for text, change in (
            ("do not have: more", lambda s: s["state"].update(more={"step": 1})),
            (f"no states of: {NAME}", lambda s: s["state"].pop(NAME)),
            (f"no states of: {NAME} (exp_avg)", lambda s: s["state"][NAME].pop("exp_avg")),
            ("no states of", lambda s: s["state"].clear()),
            ("shape", lambda s: s["state"][NAME].update(exp_avg=torch.zeros(3))),
            ("param groups", lambda s: s["param_groups"].pop()),
            ("other params", lambda s: s["param_groups"][0]["params"].pop()),
        ):
            bad = changed(change)
            with pytest.raises(meron.ArgumentError, match=re.escape(text)):
                set_optimizer_state_dict(model, optimizer, bad)
            bad = bad if RANK == RANKS - 1 else changed(lambda s: None)
            with pytest.raises(meron.ArgumentError, match=re.escape(text)):
                set_optimizer_state_dict(model, optimizer, bad)
        same_states(get_optimizer_state_dict(model, optimizer, options=FULL), before)
        less = changed(lambda s: s["state"].pop(NAME))
        set_optimizer_state_dict(model, optimizer, less, options=LENIENT)
        flat_options = StateDictOptions(flatten_optimizer_state_dict=True)
        set_optimizer_state_dict(model, optimizer, before, options=FULL)
        flat = get_optimizer_state_dict(model, optimizer, options=flat_options)
        assert f"state.{NAME}.exp_avg" in flat and f"param_groups.{NAME}.lr" in flat
        set_optimizer_state_dict(model, optimizer, flat, options=flat_options)
        same_states(get_optimizer_state_dict(model, optimizer, options=FULL), before)
        bad = {**flat, "a.b": 1}
        with pytest.raises(meron.ArgumentError, match=re.escape("'a.b'")):
            set_optimizer_state_dict(model, optimizer, bad)


def test_optimizer_states_hold_f32_values_of_bf16_params() -> None:
    for rule in ("torch AdamW", "engine AdamW"):
        model, optimizer = trained(rule=rule, low=True)
        values, states = get_state_dict(model, optimizer)
        assert values["embed.weight"].dtype is torch.bfloat16
        assert states["state"]["embed.weight"]["master"].dtype is torch.float32
        other, its, _ = build({**JOB, "rule": rule, "low": True, "seed": 2})
        with pytest.raises(meron.ArgumentError, match="do not round"):
            set_optimizer_state_dict(other, its, states)
        set_state_dict(other, its, model_state_dict=values, optim_state_dict=states)
        found = get_optimizer_state_dict(other, its)
        for name, state in states["state"].items():
            assert torch.equal(found["state"][name]["master"], state["master"])
        # The optimizer keeps the f32 values of other checkpoints.
        fine = {name: state["master"].clone() for name, state in states["state"].items()}
        for value in fine.values():
            value.to_local().add_(1e-5)
        set_model_state_dict(other, {**values, **fine, "head.weight": fine["embed.weight"]})
        found = get_optimizer_state_dict(other, its)
        for name, value in fine.items():
            assert torch.equal(found["state"][name]["master"], value), (rule, name)


def test_torchs_functions_return_and_accept_shards() -> None:
    for rule in ("torch AdamW", "engine AdamW"):
        model, optimizer = trained(rule=rule, low=True)
        for options in (None, FULL, RANK0):
            values, states = of_torch.get_state_dict(model, optimizer, options=options)
            other, its, _ = build({**JOB, "rule": rule, "low": True, "seed": 2})
            of_torch.set_state_dict(
                other, its, model_state_dict=values, optim_state_dict=states, options=options
            )
            same(other, values_of(model))
            same_states(
                of_torch.get_optimizer_state_dict(other, its, options=FULL),
                get_optimizer_state_dict(model, optimizer, options=FULL),
            )
        sharded = of_torch.get_model_state_dict(model)
        assert isinstance(sharded["embed.weight"], FlatShard)
        assert not of_torch.set_model_state_dict(model, sharded).missing_keys
        model.load_state_dict(sharded)
    plain = nn.Linear(2, 2)
    assert type(of_torch.get_model_state_dict(plain)["weight"]) is torch.Tensor


def test_saves_unquantized_values_under_a_codec(tmp_path: Path) -> None:
    for rule in ("torch AdamW", "engine AdamW"):
        model, optimizer = trained(plan="zeropp(1)", rule=rule)
        exact = model.state_dict()
        values, states = get_state_dict(model, optimizer)
        for name, value in values.items():
            if isinstance(value, FlatShard):
                own = exact[name].reshape(-1)[value.begin :][: value.to_local().numel()]
                assert torch.equal(value.to_local(), own)
        where = tmp_path / rule
        dcp_save({"m": values, "o": states}, checkpoint_id=where)
        other, its, _ = build({**JOB, "plan": "zero3", "rule": rule, "seed": 3})
        values, states = get_state_dict(other, its)
        dcp_load({"m": values, "o": states}, checkpoint_id=where)
        set_state_dict(other, its, model_state_dict=values, optim_state_dict=states)
        same(other, exact)
