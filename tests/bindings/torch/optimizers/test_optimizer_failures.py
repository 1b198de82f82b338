# SPDX-License-Identifier: Apache-2.0
"""Steps that are interrupted or fail, and training after them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from rules import RANK, RANKS, RULES, loss_of, sharded
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from meron._native import lib

pytestmark = pytest.mark.ranks(1, 2)


def interrupted(wait: Any, late: bool, times: int = 1) -> Any:
    """Returns a wait that raises KeyboardInterrupt some times, before or after it waits."""
    told = 0

    def waits(*arguments: Any) -> Any:
        nonlocal told
        if told == times:
            return wait(*arguments)
        told += 1
        if late:
            wait(*arguments)
        raise KeyboardInterrupt

    return waits


@contextlib.contextmanager
def ctrl_c(where: str, late: bool, times: int = 1) -> Iterator[None]:
    """Interrupts rank 0 when a step begins or ends."""
    if RANK:
        yield
        return
    if where == "begin":
        plain = meron.future.call
        once = interrupted(plain, late)

        def call(function: Any, *arguments: Any) -> Any:
            begins = function is lib.meron_optimizer_step_begin
            return (once if begins else plain)(function, *arguments)

        patch = mock.patch.object(meron.future, "call", call)
    else:
        kind = type("Step", (meron.Future,), {"wait": interrupted(meron.Future.wait, late, times)})
        patch = mock.patch.object(meron.optimizer, "Future", kind)
    with patch, pytest.raises(KeyboardInterrupt):
        yield


def test_interrupted_step_keeps_frozen_params() -> None:
    """The interrupted rank stays in step with its peers."""

    def under(name: str, plan: str, dtype: torch.dtype | None, where: str, late: bool) -> None:
        model = sharded(plan, mp=mt.MixedPrecision(dtype))
        rule, _, _, options, _ = RULES[name]
        optimizer = rule(model, **options)

        def kept(param: nn.Parameter) -> list[torch.Tensor]:
            states = [mt.full_optimizer_state(optimizer, param, k) for k in optimizer.state_names]
            return [mt.full_param(param), *(each for each in states if each is not None)]

        loss_of(model, 0).backward()
        optimizer.step()
        frozen = model.blocks[0].up.weight
        frozen.requires_grad_(False)
        loss_of(model, 1).backward()
        before, moving = kept(frozen), mt.full_param(model.head.weight)
        with ctrl_c(where, late):
            optimizer.step()
        optimizer.zero_grad()
        loss_of(model, 2).backward()
        optimizer.step()
        assert optimizer.steps == 3
        for value, old in zip(kept(frozen), before, strict=True):
            assert torch.equal(value, old), (name, plan, where, late)
        assert not torch.equal(mt.full_param(model.head.weight), moving)

    for late in (False, True):
        under("AdamW", "zero3", None, "end", late)
        under("momentum", "zero1", torch.bfloat16, "end", late)
    under("momentum", "zero3", None, "begin", True)
    under("Lion", "zero0", None, "end", True)


def test_a_call_after_a_second_ctrl_c_waits_for_the_step(tmp_path: Path) -> None:
    """The second one leaves the step under way. Training then has the bits of an uninterrupted
    run."""

    calls: dict[str, Any] = {
        "forward": lambda model, _: loss_of(model, 1),
        "zero_grad": lambda _, optimizer: optimizer.zero_grad(),
        "step": lambda _, optimizer: optimizer.step(),
        "full_param": lambda model, _: mt.full_param(model.head.weight),
        "set_full_param": lambda model, _: mt.set_full_param(
            model.head.weight, mt.full_param(model.head.weight)
        ),
        "unshard": lambda model, _: (mt.unshard(model.blocks[0]), mt.reshard(model.blocks[0])),
        "state_dict": lambda model, _: model.state_dict(),
        "states": lambda _, optimizer: optimizer.state_dict(),
        "full_states": lambda _, optimizer: optimizer.full_state_dict(),
        "one_state": lambda model, optimizer: mt.full_optimizer_state(
            optimizer, model.head.weight, "exp_avg"
        ),
        "load_states": lambda _, optimizer: optimizer.load_state_dict(optimizer.state_dict()),
        "save": lambda model, optimizer: mt.save(
            tmp_path, "it", model, optimizer, step=1, overwrite=True
        ),
        "export": lambda model, _: mt.save_pretrained(model, tmp_path / "hf", overwrite=True),
        "wait_step": lambda _, optimizer: optimizer.wait_step(),
    }

    def values_after(plan: str, call: Any, interrupts: bool) -> list[torch.Tensor]:
        model = sharded(plan)
        optimizer = mt.AdamW(model, lr=0.01)
        loss_of(model, 0).backward()
        with ctrl_c("end", late=False, times=2) if interrupts else contextlib.nullcontext():
            optimizer.step()
        call(model, optimizer)
        optimizer.zero_grad()
        loss_of(model, 1).backward()
        optimizer.step()
        assert optimizer.steps == 2
        return [mt.full_param(param) for param in model.parameters()]

    for plan in ("zero3", "zero1"):
        wanted = values_after(plan, lambda *_: None, interrupts=False)
        for name, call in calls.items():
            got = values_after(plan, call, interrupts=True)
            assert all(map(torch.equal, got, wanted)), (plan, name)


class Clamped(nn.Linear):
    limit = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.limit < 1:
            with torch.no_grad():
                self.weight.clamp_(-self.limit, self.limit)
        return super().forward(x)


class Spare(nn.Module):
    """A model with a layer that its forward does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = Clamped(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def test_zero_grad_drops_gradients_of_a_failed_step() -> None:
    """Units without a gradient drop theirs too. Training then continues."""

    def under(plan: str, fails: Any) -> None:
        torch.manual_seed(0)
        model = mt.shard(Spare(), units=nn.Linear, plan=plan)
        optimizer = mt.AdamW(model, lr=0.01)

        def backward() -> None:
            model(torch.ones(2, 64)).sum().backward()

        backward()
        optimizer.step()
        before = [mt.full_param(param) for param in model.parameters()]
        fails(model, optimizer, backward)
        assert zero.safe_get_full_grad(model.spare.weight) is None
        optimizer.zero_grad()
        for param, value in zip(model.parameters(), before):
            assert torch.equal(mt.full_param(param), value)
        backward()
        optimizer.step()
        assert optimizer.steps == 2
        for param, value in zip(model.parameters(), before):
            assert not torch.equal(mt.full_param(param), value)

    def by_a_write(model: Any, optimizer: Any, backward: Any) -> None:
        model.used.limit = 1e-3
        backward()
        model.used.limit = 1.0
        with pytest.raises(
            meron.StateError, match=re.escape("used.weight': written to while in use")
        ):
            optimizer.step()

    def by_a_gather(model: Any, optimizer: Any, backward: Any) -> None:
        backward()
        mt.unshard(model.used)
        with pytest.raises(meron.StateError, match="leased"):
            optimizer.step()
        mt.reshard(model.used)

    def by_an_interrupt(_model: Any, optimizer: Any, backward: Any) -> None:
        backward()
        reducer = optimizer.sharding.reducer
        ends = interrupted(reducer.finish_rest, late=True)
        with mock.patch.object(reducer, "finish_rest", ends), pytest.raises(KeyboardInterrupt):
            optimizer.step()

    def by_an_interrupt_and_again(model: Any, optimizer: Any, backward: Any) -> None:
        by_an_interrupt(model, optimizer, backward)
        drop = interrupted(optimizer.sharding.drop, late=False)
        fails = mock.patch.object(optimizer.sharding, "drop", drop)
        with fails, pytest.raises(KeyboardInterrupt):
            optimizer.step()

    for plan in ("zero3", "zero1", "zero0"):
        for fails in (by_a_write, by_a_gather, by_an_interrupt, by_an_interrupt_and_again):
            under(plan, fails)


@pytest.mark.parametrize("plan", ["zero1", "zero3"])
def test_a_step_of_torch_names_a_value_that_f16_cannot_hold(plan: str) -> None:
    model = nn.Linear(64, 64, bias=False, dtype=torch.float16)
    nn.init.zeros_(model.weight)
    mt.shard(model, plan=plan)
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=1.0))

    def step(gradient: float) -> None:
        full = torch.zeros(64, 64, dtype=torch.float16)
        full[63, 5] = gradient
        model(torch.ones(1, 64, dtype=torch.float16)).sum().backward()
        mt.set_full_grad(model.weight, full)
        optimizer.step()

    step(-65000)
    step(-500)  # 65,500, which rounds to a number
    with pytest.raises(meron.NonFiniteError) as caught:
        step(-800)
    assert (
        "the step made a value infinite in f16: 'Linear.weight', element 4037, in the shard of "
        f"rank {RANKS - 1}. The optimizer has taken the step, on all ranks." in str(caught.value)
    )
    assert caught.value.subject == "Linear.weight"
    assert torch.isposinf(mt.full_param(model.weight)[63, 5])
    with pytest.raises(meron.NonFiniteError, match="element 4037"):
        step(0)  # it still cannot hold it
