# SPDX-License-Identifier: Apache-2.0
"""Steps that are interrupted or fail, and training after them."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import torch
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from meron.torch.optim import engine
from model import raises, run_cases


def interrupted(wait: Any, late: bool) -> Any:
    """A wait that Ctrl-C ends once, before it or behind it."""
    told = False

    def waits(*arguments: Any) -> Any:
        nonlocal told
        if told:
            return wait(*arguments)
        told = True
        if late:
            wait(*arguments)
        raise KeyboardInterrupt

    return waits


class Clamped(nn.Linear):
    limit = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.limit < 1:
            with torch.no_grad():
                self.weight.clamp_(-self.limit, self.limit)
        return super().forward(x)


class Spare(nn.Module):
    """Has a layer that no forward uses."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = Clamped(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def case_zero_grad_drops_what_a_failed_step_has_finished() -> None:
    """Also of units that had no gradient, so that training goes on."""

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
        with raises(meron.StateError, "used.weight': written to while in use"):
            optimizer.step()

    def by_a_gather(model: Any, optimizer: Any, backward: Any) -> None:
        backward()
        mt.unshard(model.used)
        with raises(meron.StateError, "leased"):
            optimizer.step()
        mt.reshard(model.used)

    def by_an_interrupt(_model: Any, optimizer: Any, backward: Any) -> None:
        backward()
        reducer = optimizer.sharding.reducer
        ends = interrupted(reducer.finish_rest, late=True)
        with mock.patch.object(reducer, "finish_rest", ends), raises(KeyboardInterrupt, ""):
            optimizer.step()

    def by_an_interrupt_and_again(model: Any, optimizer: Any, backward: Any) -> None:
        by_an_interrupt(model, optimizer, backward)
        fails = mock.patch.object(engine, "Still", interrupted(None, late=False))
        with fails, raises(KeyboardInterrupt, ""):
            optimizer.step()

    for plan in ("zero3", "zero1", "zero0"):
        for fails in (by_a_write, by_a_gather, by_an_interrupt, by_an_interrupt_and_again):
            under(plan, fails)


if __name__ == "__main__":
    run_cases(sys.modules[__name__])
