# SPDX-License-Identifier: Apache-2.0
"""Values of sharded params: loads, writes, reads, and clipping by torch."""

from __future__ import annotations

import copy
import functools
import pickle
import re
from typing import Any

import pytest
import torch
from mlp import RANK, RANKS, backward_all, data, loss, mlp, same, sgd, sharded
from torch import nn

import meron
import meron.torch as mt

pytestmark = pytest.mark.ranks(1, 2)

# ---- Loads --------------------------------------------------------------------------------------


def loaded() -> dict[str, Any]:
    torch.manual_seed(8)
    state = mlp_and_norm().state_dict()
    return {
        key: torch.rand_like(value) if value.is_floating_point() else value + 3
        for key, value in state.items()
    }


def mlp_and_norm() -> nn.Sequential:
    return nn.Sequential(*mlp(), nn.LayerNorm(8), nn.BatchNorm1d(8, affine=False))


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_failed_load_changes_nothing(plan: str) -> None:
    """A failure on one rank fails the load on all, and all ranks report it."""
    model = mt.shard(mlp_and_norm(), units=nn.Linear, plan=plan)
    outer = nn.ModuleDict({"inner": model})  # not sharded itself
    before = {key: value.clone() for key, value in outer.state_dict().items()}
    good = {f"inner.{key}": value for key, value in loaded().items()}
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("inner.2.weight", {"inner.2.weight": torch.ones(9)}, "size mismatch"),
        ("inner.2.weight", {"inner.2.weight": [1.0]}, "expected torch.Tensor"),
        ("inner.2.bias", {"inner.2.bias": torch.ones(8, device="meta")}, "meta"),
        ("inner.2.bias", {"inner.2.bias": torch.ones(8, dtype=torch.complex64)}, "complex64"),
        ("inner.0.typo", {"inner.0.typo": torch.ones(8)}, "Unexpected key"),
        ("inner.4.running_var", {"inner.4.running_var": torch.ones(3)}, "size mismatch"),
    ]
    for key, change, text in cases:
        for assign in (False, True):
            state = {**good, **change} if RANK == RANKS - 1 else good
            load = functools.partial(outer.load_state_dict, state, assign=assign)
            for part in (key, text, f"Rank {RANKS - 1}:" if RANKS > 1 else key):
                with pytest.raises(RuntimeError, match=re.escape(part)):
                    load()
    less = {key: value for key, value in good.items() if key != "inner.0.bias"}
    with pytest.raises(RuntimeError, match="Missing key"):
        outer.load_state_dict(less)
    if RANKS > 1:
        fewer = less if RANK else good
        with pytest.raises(RuntimeError, match="for other params"):
            outer.load_state_dict(fewer, False)
    mt.unshard(model[0])
    with pytest.raises(RuntimeError, match=r"0\.weight' is gathered"):
        outer.load_state_dict(good)
    mt.reshard(model[0])
    if plan == "zero3":  # else it writes
        errors: list[str] = []
        model[0]._load_from_state_dict(loaded(), "0.", {}, True, [], [], errors)
        assert len(errors) == 2 and "is sharded: a write" in errors[0], errors
    after = outer.state_dict()
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert torch.equal(after[name], value), name
    assert loss(model, RANK).isfinite()


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_load_keeps_the_params_that_the_optimizer_steps(plan: str) -> None:
    """Also with `assign`."""
    for assign in (False, True):
        model = mt.shard(mlp_and_norm(), units=nn.Linear, plan=plan)
        params = list(model.parameters())
        optimizer = mt.shard_optimizer(model, sgd(model))
        plain, state = mlp_and_norm(), loaded()
        result = model.load_state_dict({**state, "more": 1}, strict=False, assign=assign)
        assert result.unexpected_keys == ["more"] and result.missing_keys == []
        plain.load_state_dict(state)
        assert all(one is other for one, other in zip(model.parameters(), params))
        for key, value in model.state_dict().items():
            assert torch.equal(value, state[key]), key
        loss(model, RANK).backward()
        optimizer.step()
        backward_all(plain, 0)
        sgd(plain).step()
        same(model, plain)
        parts = {
            "0.weight": torch.arange(64.0).double().view(8, 8),
            "2.bias": torch.ones(8).double(),
        }
        model.load_state_dict(parts, strict=False, assign=assign)
        assert torch.equal(mt.full_param(params[0]), parts["0.weight"].float())
        assert mt.full_param(params[3]).eq(1).all()


# ---- Writes and reads ----------------------------------------------------------------------------


def test_rejects_writes_to_sharded_params() -> None:
    """Each way to write raises, and changes no value."""
    model, _ = sharded("zero3")
    weight, bias = model[2].weight, mt.shard(nn.Linear(8, 1), plan="zero3").bias
    before = mt.full_param(weight)
    with torch.no_grad():
        for write in (
            lambda: weight.add_(1),
            lambda: weight.zero_(),
            lambda: weight.data.zero_(),
            lambda: weight.detach().fill_(1.0),
            lambda: weight.__setitem__(0, 1.0),
            lambda: setattr(weight, "data", torch.ones(8, 8)),
            lambda: setattr(weight.data, "data", torch.ones(8, 8)),
            lambda: torch.add(before, 1, out=weight),
            lambda: torch._foreach_mul_([weight], 0.5),
            lambda: nn.init.ones_(weight),
            lambda: nn.init.normal_(weight),
            lambda: nn.init.kaiming_uniform_(weight.data),
            lambda: nn.utils.vector_to_parameters(torch.ones(64), [weight]),
        ):
            with pytest.raises(meron.StateError, match=r"2\.weight' is sharded"):
                write()
        for write in (lambda: bias.data.zero_(), lambda: bias.fill_(1.0)):
            with pytest.raises(meron.StateError, match="bias' is sharded"):
                write()
    assert torch.equal(mt.full_param(weight), before)
    assert loss(model, RANK).isfinite()
    for plan in ("zero0", "zero1"):
        assert not sharded(plan)[0][2].weight.detach().numpy().flags.writeable


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_the_address_of_values_elsewhere_is_0(plan: str) -> None:
    """As of FSDP2's and DeepSpeed's params. Scripts count params by address."""
    model, _ = sharded(plan)
    weight = model[2].weight
    for each in (weight, weight.data, weight.detach()):
        assert (each.data_ptr() == 0) == (plan == "zero3")
    assert sum({p.data_ptr(): p.numel() for p in model.parameters()}.values()) > 0
    mt.unshard(model)
    assert weight.data_ptr() != 0
    mt.reshard(model)
    assert (weight.data_ptr() == 0) == (plan == "zero3")


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_rejects_replaced_data(plan: str) -> None:
    class Normed(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data = nn.functional.normalize(self.weight.data)
            return super().forward(x)

    model = mt.shard(nn.Sequential(Normed(8, 8), nn.Linear(8, 8)), plan=plan)
    with pytest.raises(meron.StateError, match=r"0\.weight' is sharded: param\.data was"):
        model(data(0))
    other, _ = sharded(plan)
    mt.unshard(other)
    other[0].weight.data = torch.ones(8, 8)
    with pytest.raises(meron.StateError, match=r"0\.weight' is sharded: param\.data"):
        mt.reshard(other)
    assert loss(other, RANK).isfinite()


@pytest.mark.parametrize("plan", ["zero3", "zero1", "zero0"])
def test_reports_writes_to_gathered_params(plan: str) -> None:
    """The write reaches no other rank. The next pass or step names the param."""

    class Clamped(nn.Linear):
        limit = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.limit < 1:
                with torch.no_grad():
                    self.weight.clamp_(-self.limit, self.limit)
            return super().forward(x)

    torch.manual_seed(0)
    # Each param takes more than a page.
    model = mt.shard(nn.Sequential(Clamped(64, 64), nn.Linear(64, 64)), plan=plan)
    optimizer = mt.AdamW(model, lr=0.01)
    text = "0.weight': written to while in use"

    def step() -> None:
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    before = [mt.full_param(param).clone() for param in model.parameters()]
    model[0].limit = 1e-3
    model(torch.ones(2, 64)).sum().backward()
    model[0].limit = 1.0
    with pytest.raises(meron.StateError, match=re.escape(text)):
        optimizer.step()
    optimizer.zero_grad()
    for param, values in zip(model.parameters(), before):
        assert torch.equal(mt.full_param(param), values)
    step()
    assert all(mt.full_param(param).isfinite().all() for param in model.parameters())


def test_rejects_reads_of_sharded_params() -> None:
    """Each error names the param and the function that returns its values."""
    model, _ = sharded()
    weight = model[0].weight
    average = torch.zeros(8, 8)
    with torch.no_grad():
        for read in (
            lambda: weight.norm(),
            lambda: weight + 1,
            lambda: weight.data.clone(),
            lambda: weight.detach().numpy(),
            lambda: weight[0, 0].item(),
            lambda: weight.tolist(),
            lambda: average.lerp_(weight, 0.1),
            lambda: average.copy_(weight.data),
            lambda: torch._foreach_norm(list(model.parameters())),
            lambda: nn.utils.parameters_to_vector(model.parameters()),
            lambda: torch.equal(weight, average),
            lambda: copy.deepcopy(weight),
            lambda: pickle.dumps(weight),
            lambda: pickle.dumps(weight.data),
            lambda: model.forward(data(0)),
            lambda: mt.set_full_param(weight, model[2].weight),
        ):
            with pytest.raises(meron.StateError, match=r"Call meron\.torch\.full_param\(param\)"):
                read()
    with pytest.raises(meron.StateError, match=r"0\.weight' is sharded"):
        weight.sum()
    assert "0.weight', (8, 8), f32" in repr(weight) and "sharded" in f"{weight}"
    # Reads of metadata work.
    assert isinstance(weight, nn.Parameter) and weight.is_leaf and weight.requires_grad
    assert (weight.shape, weight.size(0), weight.numel(), weight.dim()) == ((8, 8), 8, 64, 2)
    assert weight.stride() == (8, 1) and weight.is_contiguous() and weight.device.type == "cpu"
    assert weight.dtype == torch.float32 and weight.grad is None and len({weight, weight}) == 1
    assert torch.zeros_like(weight).eq(0).all() and weight.new_ones(3).sum() == 3
    assert weight.data.shape == weight.detach().shape == (8, 8)


@pytest.mark.parametrize("plan", ["zero0", "zero1", "zero2"])
def test_replicated_params_can_be_read(plan: str) -> None:
    """Also between uses. After a step or load they have the new values."""
    plain, (model, optimizer) = mlp(), sharded(plan)
    twin = sgd(plain)
    averages = [torch.zeros_like(param) for param in model.parameters()]
    for step in range(2):
        assert torch.equal(model.forward(data(1)), model(data(1)))
        loss(model, step + RANK).backward()
        backward_all(plain, step)
        before = [param.clone() for param in model.parameters()]
        optimizer.step()
        twin.step()
        twin.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(averages, list(model.parameters()), 0.5)
        for param, expected, old in zip(model.parameters(), plain.parameters(), before):
            torch.testing.assert_close(param.detach(), expected.detach(), rtol=0, atol=1e-6)
            assert torch.equal(param.data, mt.full_param(param))
            assert not torch.equal(param, old)
    value = torch.full((8, 8), 0.25)
    mt.set_full_param(model[0].weight, value)
    assert torch.equal(model[0].weight, value) and model[0].weight.norm() == 2.0
    copied = copy.deepcopy(model[0].weight)
    assert type(copied) is nn.Parameter and torch.equal(copied, value)
    assert torch.equal(pickle.loads(pickle.dumps(model[0].weight)), value)
    copied.data.zero_()
    assert torch.equal(model[0].weight, value)
    adam = mt.AdamW(mt.shard(mlp(), plan=plan), lr=0.1)
    weight = adam.param_groups[0]["params"][0]
    before = weight.clone()
    adam.sharding.units[-1].params[0].grad = torch.ones(8, 8)
    adam.step()
    assert torch.equal(weight.data, mt.full_param(weight))
    assert not torch.equal(weight, before)


def test_clipping_of_torch_includes_sharded_params() -> None:
    """It equals Meron's clipping. A reference imported before Meron raises an error."""
    early = nn.utils.clip_grad_norm_.__wrapped__  # torch's own
    for plan in ("zero3", "zero1"):
        for kind in (2.0, float("inf")):
            model, _ = sharded(plan)
            plain = mlp()
            loss(model, RANK).backward()
            backward_all(plain, 0)
            expected = nn.utils.clip_grad_norm_(plain.parameters(), 1e-3, kind)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1e-3, kind)
            torch.testing.assert_close(norm, expected)
            nn.utils.clip_grad_value_(list(model.parameters()), 1e-5)
            nn.utils.clip_grad_value_(plain.parameters(), 1e-5)
            for param, twin in zip(model.parameters(), plain.parameters()):
                torch.testing.assert_close(mt.full_grad(param), twin.grad)
        for call in (
            functools.partial(early, model.parameters(), 1.0),
            functools.partial(
                nn.utils.clip_grads_with_norm_, model.parameters(), 1.0, torch.ones(())
            ),
        ):
            with pytest.raises(meron.StateError, match=r"meron\.torch\.clip_grad_norm_"):
                call()
        plain[0].weight.grad = torch.ones(8, 8)
        mixed = functools.partial(
            nn.utils.clip_grad_norm_, [*model.parameters(), plain[0].weight], 1.0
        )
        with pytest.raises(meron.ArgumentError, match="two calls"):
            mixed()


def test_unsharded_params_survive_a_failed_backward() -> None:
    model, optimizer = sharded(units=nn.Linear)
    mt.unshard(model[0])
    before = model[0].weight.detach().clone()

    def fail(_gradient: torch.Tensor) -> None:
        raise ValueError("in the backward")

    hidden = model[0](data(RANK))
    hidden.register_hook(fail)
    with pytest.raises(ValueError, match="in the backward"):
        model[1:](hidden).sum().backward()
    loss(model, RANK).backward()
    assert torch.equal(model[0].weight, before)
    mt.reshard(model[0])
    assert all(unit.uses == 0 for unit in mt.api.require_units(model))
    optimizer.zero_grad()
    loss(model, RANK).backward()
    optimizer.step()
