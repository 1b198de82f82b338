# SPDX-License-Identifier: Apache-2.0
"""One rank: what meron.torch promises of exceptions, and of the mistakes that it reports.

Run and reported by promise_program.py.
"""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any, NoReturn

import torch
from mlp import backward_all, data, loss, mlp, out_of_use, same, sgd, sharded
from promise_program import RANK, main, promises_of, raises
from torch import nn

import meron
import meron.torch as mt


def exceptions_leave_it_usable() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, broken: bool = False) -> torch.Tensor:
            hidden = self.a(x)
            if broken:
                raise ValueError("in the forward")
            return self.b(hidden)

    class InBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> NoReturn:  # type: ignore[override]
            raise ValueError("in the backward")

    def hook(*_: object) -> NoReturn:
        raise ValueError("in a hook")

    plain, model = Breaks(), Breaks()
    mt.shard(model, units=nn.Linear)
    optimizer = mt.shard_optimizer(model, sgd(model))
    raises(ValueError, "in the forward", lambda: model(data(RANK), broken=True))
    out = model(data(RANK))
    out.register_hook(hook)
    raises(ValueError, "in a hook", out.sum().backward)
    handle = model.b.register_forward_hook(hook)
    raises(ValueError, "in a hook", lambda: model(data(RANK)))
    handle.remove()
    optimizer.zero_grad()
    value = model.b(InBackward.apply(model.a(data(RANK)))).sum()
    raises(ValueError, "in the backward", value.backward)
    optimizer.zero_grad()
    for param in model.parameters():
        assert out_of_use(param), "a param is still in use"
    loss(model, RANK).backward()
    optimizer.step()
    backward_all(plain, 0)
    sgd(plain).step()
    same(model, plain)


def mistakes_are_told() -> None:
    model = mt.shard(mlp())
    weight = model[0].weight
    raises(meron.StateError, "sharded already", lambda: mt.shard(model))
    raises(meron.StateError, "is not sharded", lambda: mt.AdamW(mlp()))
    raises(meron.StateError, "cannot be a leaf", lambda: mt.shard(nn.Sequential(model), leaf=True))
    plain = sgd(model)
    loss(model, RANK).backward()
    raises(meron.StateError, "0.weight, which is sharded", plain.step)
    for move in (lambda: model.to(torch.float64), model.half, lambda: model.to("meta")):
        raises(meron.StateError, "cannot be moved", move)
    assert model.to("cpu").float() is model  # changes nothing
    raises(meron.ArgumentError, "float64", lambda: mt.shard(nn.Linear(3, 3).double()))
    raises(meron.ArgumentError, "fits no submodule", lambda: mt.shard(mlp(), units=nn.Conv1d))
    whole = torch.optim.LBFGS(model.parameters())
    raises(meron.ArgumentError, "not elementwise", lambda: mt.shard_optimizer(model, whole))
    other = sgd(mlp())
    raises(meron.ArgumentError, "does not have", lambda: mt.shard_optimizer(model, other))
    raises(meron.ArgumentError, "no sharded param", lambda: mt.full_param(torch.ones(3)))
    raises(meron.ArgumentError, "has shape", lambda: mt.set_full_param(weight, torch.ones(3)))

    optimizer = mt.shard_optimizer(model, plain)
    raises(meron.StateError, "already", lambda: mt.shard_optimizer(model, plain))
    mt.clip_grad_norm_(model, 1.0)
    raises(meron.StateError, "were finished", loss(model, RANK).backward)
    optimizer.zero_grad()
    optimizer.step()  # without a backward: nothing to do

    half = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    mt.shard(half[0])
    raises(meron.ArgumentError, "1.weight", lambda: mt.shard_optimizer(half, sgd(half)))


def copies_are_told() -> None:
    model, _ = sharded()
    outer = nn.Sequential(model)
    raises(meron.StateError, "state_dict", lambda: copy.deepcopy(outer))
    raises(meron.StateError, "state_dict", lambda: pickle.dumps(model))


def unfreezing_is_told() -> None:
    model = mlp()
    model[0].weight.requires_grad_(False)
    mt.shard(model)
    model[0].weight.requires_grad_(True)
    raises(meron.StateError, "was frozen", lambda: model(data(RANK)))


def backward_twice_is_torchs_own_error() -> None:
    model, optimizer = sharded()
    value = loss(model, RANK)
    value.backward()
    raises(RuntimeError, "second time", value.backward)
    optimizer.zero_grad()
    loss(model, RANK).backward()
    optimizer.step()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], promises_of(dict(globals()))))
