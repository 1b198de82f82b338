# SPDX-License-Identifier: Apache-2.0
"""Param groups: how they are passed, added and changed; which are rejected."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rules import (
    RANK,
    RULES,
    Block,
    Model,
    assert_equal,
    backward_of_all,
    build,
    groups_of,
    loss_of,
    make,
    sharded,
    train,
)
from torch import nn

import meron
import meron.torch as mt

pytestmark = pytest.mark.ranks(1, 2, 3)


def step_both(model: nn.Module, optimizer: Any, plain: nn.Module, twin: Any, step: int) -> None:
    loss_of(model, step).backward()
    optimizer.step()
    backward_of_all(plain, step)
    twin.step()


def test_accepts_params_in_each_form_of_torch() -> None:
    forms = (
        lambda model: model.parameters(),
        lambda model: list(model.named_parameters()),
        lambda model: [{"params": [p]} for p in model.parameters()],
        lambda model: [{"params": model.named_parameters(), "lr": 0.01}],
    )
    for form in forms:
        model, plain = sharded(), build()
        optimizer = mt.AdamW(form(model), lr=0.01)
        twin = torch.optim.AdamW(plain.parameters(), lr=0.01)
        for step in range(3):
            step_both(model, optimizer, plain, twin, step)
        assert_equal(model, plain, 1e-4, 1e-5)
    assert optimizer.param_groups[0]["param_names"][0] == "embed.weight"
    one, other = sharded(), sharded()
    mt.SGD([*one.parameters(), *other.parameters()])


def test_frozen_params_in_a_group_stay() -> None:
    model = build()
    model.embed.weight.requires_grad_(False)
    mt.shard(model, units=Block)
    optimizer = mt.AdamW(model.parameters(), lr=0.01)
    before = mt.full_param(model.embed.weight)
    train(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 9), range(2))
    assert torch.equal(mt.full_param(model.embed.weight), before)
    state = optimizer.state_dict()
    assert 0 not in state["state"] and 1 in state["state"]
    optimizer.load_state_dict(state)


def test_params_of_no_group_stay_until_a_group_is_added() -> None:
    for rule in ("AdamW", "SGD"):
        model, plain = sharded(), build()
        own, torchs, _, first, _ = RULES[rule]
        groups, others = groups_of(model, {}), groups_of(plain, {})
        optimizer = own(groups[:1], **first)
        twin = torchs(others[:1], **first)
        rest = others[1]["params"]
        before = [param.detach().clone() for param in rest]
        for step in range(3):
            step_both(model, optimizer, plain, twin, step)
        for param, value in zip(groups[1]["params"], before):
            assert torch.equal(mt.full_param(param), value)
        assert_equal(model, plain, 1e-4, 1e-5)
        late = {"lr": 0.02, "weight_decay": 0.0}
        optimizer.add_param_group({"params": groups[1]["params"], **late})
        assert optimizer.engine.groups == 2
        loss_of(model, 3).backward()
        optimizer.step()
        for param, value in zip(groups[1]["params"], before):
            assert not torch.equal(mt.full_param(param), value)
        twin.add_param_group({"params": rest, **late})
        backward_of_all(plain, 3)
        twin.step()
        assert_equal(model, plain, 1e-4, 1e-5)


def test_adds_units_before_the_first_step() -> None:
    model, plain = sharded(), build()
    blocks = list(model.blocks.parameters())
    inside = {id(param) for param in blocks}
    outside = [param for param in model.parameters() if id(param) not in inside]
    optimizer = mt.AdamW(blocks, lr=0.01)
    assert len(optimizer.sharded) == 2
    with pytest.raises(meron.ArgumentError, match="param group 1 of AdamW: lr is -1"):
        optimizer.add_param_group({"params": outside, "lr": -1.0})
    assert len(optimizer.sharded) == 2 and len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": outside, "lr": 0.02})
    assert len(optimizer.sharded) == 3
    twin = torch.optim.AdamW(plain.blocks.parameters(), lr=0.01)
    others = [*plain.embed.parameters(), *plain.head.parameters()]
    twin.add_param_group({"params": others, "lr": 0.02})
    for step in range(3):
        step_both(model, optimizer, plain, twin, step)
    assert_equal(model, plain, 1e-4, 1e-5)
    extra = mt.shard(nn.Linear(3, 3))
    with pytest.raises(meron.UnsupportedError, match="lr=0"):
        optimizer.add_param_group({"params": extra.parameters()})
    assert len(optimizer.param_groups) == 2
    taken = mt.shard(nn.Linear(3, 3))
    keep = mt.SGD(taken)
    fresh = mt.SGD(extra)
    with pytest.raises(meron.DuplicateError, match="Linear"):
        fresh.add_param_group({"params": taken.parameters()})
    extra(torch.ones(3)).sum().backward()
    fresh.step()
    assert fresh.steps == 1 and keep.steps == 0


def test_rejects_numbers_out_of_range_by_group() -> None:
    model = sharded()
    wide, rest = groups_of(model, {})
    for kind, key, value, name in (
        (mt.AdamW, "lr", -1.0, "lr"),
        (mt.AdamW, "betas", (0.9, 1.0), "betas[1]"),
        (mt.Adam, "eps", 0.0, "eps"),
        (mt.Adam, "weight_decay", -0.1, "weight_decay"),
        (mt.Adagrad, "lr_decay", -1.0, "lr_decay"),
        (mt.Lion, "betas", (-0.1, 0.9), "betas[0]"),
    ):
        with pytest.raises(
            meron.ArgumentError, match=re.escape(f"param group 1 of {kind.__name__}: {name} is")
        ):
            kind([{**wide}, {**rest, key: value}])
        with pytest.raises(
            ValueError, match=re.escape(f"param group 0 of {kind.__name__}: {name} is")
        ):
            kind([{**wide, key: value}, {**rest}])
    with pytest.raises(meron.ArgumentError, match="param group 0 of SGD: momentum is 1"):
        mt.SGD(model, momentum=1.0)
    optimizer = mt.AdamW([wide, rest])
    loss_of(model, 0).backward()
    optimizer.param_groups[1]["lr"] = float("nan")
    with pytest.raises(meron.ArgumentError, match="param group 1 of AdamW: lr is nan"):
        optimizer.step()
    optimizer.param_groups[1]["lr"] = 1e-3
    optimizer.step()  # with the gradients that it kept
    assert optimizer.steps == 1


def test_rejects_options_that_the_engine_lacks() -> None:
    model = sharded()
    wide, rest = groups_of(model, {})
    for kind, key in (
        (mt.AdamW, "amsgrad"),
        (mt.Adam, "maximize"),
        (mt.Adam, "decoupled_weight_decay"),
        (mt.Adagrad, "differentiable"),
        (mt.SGD, "maximize"),
    ):
        with pytest.raises(
            meron.UnsupportedError,
            match=re.escape(f"{kind.__name__} with {key}=True (param group 1)"),
        ):
            kind([{**wide}, {**rest, key: True}])
        with pytest.raises(meron.UnsupportedError, match=re.escape(f"{key}=True (param group 0)")):
            kind(model, **{key: True})
    with pytest.raises(TypeError, match="nonsense"):
        mt.AdamW(model, nonsense=1)
    for key, value in (("dampening", 0.1), ("nesterov", True), ("momentum", 0.0)):
        with pytest.raises(meron.UnsupportedError, match=re.escape(f"{key} of SGD")):
            mt.SGD([{**wide}, {**rest, key: value}], momentum=0.9)
    optimizer = mt.SGD([wide, rest], momentum=0.9)
    optimizer.param_groups[0]["nesterov"] = True
    with pytest.raises(meron.UnsupportedError, match="param group 0 has True"):
        optimizer.step()


def test_logs_options_without_effect_once() -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("meron.torch"), Keep()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    model = sharded()
    mt.AdamW(groups_of(model, {"capturable": True}), foreach=True, fused=True)
    mt.AdamW(sharded(), foreach=False, fused=None)
    logger.removeHandler(handler)
    assert lines == ["AdamW: foreach, fused without effect"]


def test_rejects_params_that_it_cannot_step() -> None:
    with pytest.raises(meron.ArgumentError, match="no sharded param"):
        mt.AdamW(Model().parameters())
    model = sharded()
    with pytest.raises(meron.ArgumentError, match=re.escape("(3,) that is no sharded param")):
        mt.AdamW([*model.parameters(), nn.Parameter(torch.ones(3))])
    other = sharded("zero1")
    with pytest.raises(meron.ArgumentError, match="by another plan"):
        mt.AdamW([{"params": model.parameters()}, {"params": other.parameters()}])
    with pytest.raises(ValueError, match="more than one parameter group"):
        mt.AdamW([{"params": model.parameters()}, {"params": model.parameters()}])
    with pytest.raises(meron.ArgumentError, match="no trainable param"):
        mt.AdamW(mt.shard(nn.Linear(2, 2).requires_grad_(False)).parameters())


def test_torchs_optimizer_rejects_plans_with_other_states(tmp_path: Path) -> None:
    nvme = {"nvme": {"path": str(tmp_path)}}
    for states, drive, refused in (
        ({"dtype": "int8"}, {}, "optimizer states in int8"),
        ({"dtype": "bf16"}, {}, "optimizer states in bf16"),
        ({"tier": "nvme"}, nvme, "optimizer states on nvme"),
    ):
        plan = meron.Plan.parse(json.dumps({"preset": "zero3", "optimizer": states, **drive}))
        model = sharded(plan)
        own = torch.optim.AdamW(model.parameters())
        with pytest.raises(meron.UnsupportedError, match=re.escape(refused)):
            mt.shard_optimizer(model, own)
        make("AdamW", model)


def test_step_calls_closure_and_hooks() -> None:
    model = sharded()
    optimizer = make("Adam", model)
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))

    def closure() -> torch.Tensor:
        loss = loss_of(model, 0)
        loss.backward()
        return loss

    assert optimizer.step(closure).dim() == 0
    assert seen == ["pre", "post"] and optimizer.steps == 1
    assert optimizer.step() is None and optimizer.steps == 1, "there was no gradient"
    assert optimizer.sharding.context.rank == RANK


def kept_of(optimizer: Any, param: torch.Tensor, keys: Any) -> list[torch.Tensor]:
    states = [mt.full_optimizer_state(optimizer, param, key) for key in keys]
    return [mt.full_param(param), *(state for state in states if state is not None)]


def test_step_keeps_params_and_states_that_are_frozen() -> None:
    """Frozen params and their states keep their bits under each rule, and move again later."""

    def under(name: str, plan: Any, dtype: torch.dtype | None, engines: bool) -> None:
        model = sharded(plan, mp=mt.MixedPrecision(dtype))
        rule, torchs, _, options, _ = RULES[name]
        if engines:
            optimizer = rule(model, **options)
            keys = [*optimizer.state_names, *(["master"] if dtype is not None else [])]
        else:
            optimizer = mt.shard_optimizer(model, torchs(model.parameters(), **options))
            keys = ["exp_avg", "exp_avg_sq", "momentum_buffer"]
        turns = [
            [],
            [model.blocks[0].up.weight, model.head.bias],
            list(model.blocks[1].parameters()),  # a unit as a whole
            [],
        ]
        for step, frozen in enumerate(turns):
            if step != 1:
                for param in model.parameters():
                    param.requires_grad_(True)
            for param in frozen if step != 1 else []:
                param.requires_grad_(False)
            loss_of(model, step).backward()
            for param in frozen:  # on the first turn after their gradient arrived
                param.requires_grad_(False)
            moving = [p for p in model.parameters() if not any(p is other for other in frozen)]
            before = [kept_of(optimizer, param, keys) for param in frozen]
            then = [mt.full_param(param) for param in moving]
            optimizer.step()
            optimizer.zero_grad()
            for param, values in zip(frozen, before):
                for value, old in zip(kept_of(optimizer, param, keys), values, strict=True):
                    assert torch.equal(value, old), (name, plan, step, param._meron)
            still = [torch.equal(mt.full_param(p), old) for p, old in zip(moving, then)]
            assert dtype is not None or not any(still), (name, plan, step)

    for name in RULES:
        under(name, "zero3" if name != "Adam" else "zero1", None, True)
    under("AdamW", "zero2", torch.bfloat16, True)
    under("momentum", {"preset": "zero3", "optimizer": {"dtype": "bf16"}}, None, True)
    under("AdamW", "zero3", None, False)
    under("momentum", "zero1", torch.bfloat16, False)


def test_max_norm_is_set_for_the_next_steps() -> None:
    model = sharded("zero3")
    optimizer = mt.SGD(model, lr=1.0)
    weight = model.head.weight

    def change() -> torch.Tensor:
        before = mt.full_param(weight)
        loss_of(model, 0).backward()
        mt.set_full_grad(weight, torch.full_like(before, 3.0))
        optimizer.step()
        return mt.full_param(weight) - before

    plain = change().norm()
    optimizer.max_norm = 1e-3
    assert 0.99e-3 < change().norm() < 1.01e-3 < plain  # a difference of rounded values
    with pytest.raises(meron.ArgumentError, match="max_norm"):
        optimizer.max_norm = -1.0
    assert optimizer.max_norm == 1e-3
    optimizer.max_norm = 0.0
    assert change().norm() > 1.0
