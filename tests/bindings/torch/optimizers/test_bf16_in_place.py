# SPDX-License-Identifier: Apache-2.0
"""16-bit params under PyTorch's optimizers: f32 values, or bf16 ones that are updated in place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import meron
import meron.torch as mt
from meron.torch.checkpoint import get_optimizer_state_dict, set_optimizer_state_dict
from meron.torch.optim.in_place import CHUNK, bf16_at_random, coins, round_to

pytestmark = pytest.mark.ranks(1, 2)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
Make = Callable[[Any], torch.optim.Optimizer]


class Sum(nn.Module):
    """The gradient of p is the input."""

    def __init__(self, size: int = 1000, dtype: torch.dtype = BF16) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.ones(size, dtype=dtype))

    def forward(self, g: torch.Tensor) -> torch.Tensor:
        return (self.p * g).sum()


def adamw(params: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-5, weight_decay=0.0)


def sgd(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=1e-5)


def long_memory(params: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-4, betas=(0.9, 1 - 1e-7))


def sharded(model: nn.Module, make: Make, plan: str = "zero3", **options: Any) -> Any:
    mt.shard(model, plan=plan)
    return mt.shard_optimizer(model, make(model.parameters()), **options)


def train(model: Any, optimizer: Any, steps: range, scale: float = 1.0) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        g = torch.randn(model.p.numel(), generator=generator) * scale
        model(g.to(model.p.dtype)).backward()
        optimizer.step()
        optimizer.zero_grad()


def states(optimizer: Any) -> dict[str, torch.Tensor]:
    return dict(next(iter(optimizer.state.values())))


# ---- f32 values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_small_steps_of_16_bit_params_add_up(dtype: torch.dtype) -> None:
    """Each is below 1/512 of the value."""
    for plan, make in (("zero0", adamw), ("zero3", sgd)):
        model = Sum(16, dtype)
        optimizer = sharded(model, make, plan)
        for _ in range(100):
            model(torch.ones(16, dtype=dtype)).backward()
            optimizer.step()
        part = next(iter(optimizer.state), optimizer.param_groups[0]["params"][0])
        assert part.dtype is F32
        assert all(state.dtype is F32 for state in optimizer.state.get(part, {}).values())
        torch.testing.assert_close(part.detach(), torch.full_like(part, 0.999), rtol=1e-5, atol=0.0)
        assert torch.equal(mt.full_param(model.p), torch.full((16,), 0.999, dtype=dtype))
        mt.destroy(model)


def test_f16_params_with_a_gradient_of_0_stay_finite_under_adam() -> None:
    """The eps of Adam is 0 in f16."""
    model = Sum(1000, F16)
    optimizer = sharded(model, lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.0))
    g = torch.full((1000,), 1e-3, dtype=F16)
    g[::2] = 0
    model(g).backward()
    optimizer.step()
    values = mt.full_param(model.p)
    assert bool(values.isfinite().all()) and bool(values[::2].eq(1).all())
    assert bool(values[1::2].lt(1).all())


def test_a_written_value_reaches_the_f32_one() -> None:
    model = Sum(8)
    optimizer = sharded(model, sgd)
    mt.set_full_param(model.p, torch.full((8,), 1.0 + 2.0**-12))
    model(torch.zeros(8, dtype=BF16)).backward()
    optimizer.step()
    assert bool(optimizer.param_groups[0]["params"][0].eq(1.0 + 2.0**-12).all())


def test_states_of_before_shard_become_f32() -> None:
    model = Sum(8)
    optimizer = adamw(model.parameters())
    model(torch.ones(8, dtype=BF16)).backward()
    optimizer.step()
    assert states(optimizer)["exp_avg"].dtype is BF16
    mt.shard(model)
    mt.shard_optimizer(model, optimizer)
    train(model, optimizer, range(2))
    assert states(optimizer)["exp_avg"].dtype is F32 and states(optimizer)["step"] == 3


def test_a_group_that_is_added_has_f32_values() -> None:
    model = nn.ModuleList([Sum(8), Sum(8)])
    mt.shard(model[0])
    mt.shard(model[1])
    mt.shard(model)
    optimizer = mt.shard_optimizer(model, sgd(model[0].parameters()))
    optimizer.add_param_group({"params": model[1].parameters(), "lr": 1e-3})
    part = optimizer.param_groups[1]["params"][0]
    assert part.dtype is F32 and bool(part.eq(1).all())


# ---- In place -----------------------------------------------------------------------------------


def test_a_bf16_moment_decays_with_the_gradients() -> None:
    """To nearest it would stay where it is: each step changes it by less than 1/512."""
    make = (
        lambda p: torch.optim.AdamW(p, lr=1e-4, weight_decay=0.0),
        lambda p: torch.optim.RMSprop(p, lr=1e-4, alpha=0.999),
    )
    for each, key in zip(make, ("exp_avg_sq", "square_avg")):
        model = Sum(2048)
        optimizer = sharded(model, each, in_place=mt.InPlace())
        train(model, optimizer, range(1), 0.0)
        mt.set_full_optimizer_state(optimizer, model.p, key, torch.ones(2048))
        train(model, optimizer, range(150), 0.0)
        assert states(optimizer)[key].dtype is BF16
        found = mt.full_optimizer_state(optimizer, model.p, key)
        assert found is not None
        assert abs(float(found.double().mean()) / 0.999**150 - 1) < 5e-3
        mt.destroy(model)


def test_coins_go_on_where_torchs_count_of_steps_ends() -> None:
    """An f32 count stays at 2**24. With one coin for ever no element would move, or all would."""
    model = Sum(2048)
    optimizer = sharded(model, adamw, in_place=mt.InPlace())
    train(model, optimizer, range(1), 0.0)
    states(optimizer)["step"].fill_(2.0**24)
    optimizer.param_groups[0]["rounded_steps"] = 2**53
    mt.set_full_optimizer_state(optimizer, model.p, "exp_avg_sq", torch.ones(2048))
    train(model, optimizer, range(60), 0.0)
    assert states(optimizer)["step"] == 2**24
    assert optimizer.param_groups[0]["rounded_steps"] == 2**53 + 60
    found = mt.full_optimizer_state(optimizer, model.p, "exp_avg_sq")
    assert found is not None and abs(float(found.double().mean()) / 0.999**60 - 1) < 5e-3


def test_f32_models_of_mixed_precision_are_updated_in_place_if_asked_for() -> None:
    model = mt.shard(Sum(1, F32), mp=mt.MixedPrecision(BF16))  # one rank of two has no element
    optimizer = mt.shard_optimizer(model, sgd(model.parameters()), in_place=mt.InPlace())
    train(model, optimizer, range(3))
    assert optimizer.param_groups[0]["params"][0].dtype is BF16


def test_params_without_a_gradient_stay_as_they_are() -> None:
    model = nn.ModuleList([Sum(8), Sum(8)])
    mt.shard(model[0])
    mt.shard(model[1])
    mt.shard(model)
    optimizer = mt.shard_optimizer(
        model, torch.optim.AdamW(model.parameters(), lr=0.1), in_place=mt.InPlace()
    )
    model[0](torch.ones(8, dtype=BF16)).backward()
    optimizer.step()
    assert bool(mt.full_param(model[1].p).eq(1).all())
    assert len(optimizer.state) == 1


def test_random_values_move_by_the_mean_of_their_steps() -> None:
    for make in (adamw, sgd):
        model = Sum(1000)
        optimizer = sharded(model, make, in_place=mt.InPlace())
        for _ in range(100):
            model(torch.ones(1000, dtype=BF16)).backward()
            optimizer.step()
        values = mt.full_param(model.p).float()
        assert abs(float(values.mean()) - 0.999) < 3e-4
        assert optimizer.param_groups[0]["params"][0].dtype is BF16
        mt.destroy(model)


def test_values_to_nearest_lose_small_steps() -> None:
    """As DeepSpeed's bf16_master_weights_and_grads."""
    model = Sum(16)
    optimizer = sharded(model, sgd, in_place=mt.InPlace(values="nearest"))
    train(model, optimizer, range(20))
    assert bool(mt.full_param(model.p).eq(1).all())


def result(model: Any, optimizer: Any) -> list[torch.Tensor]:
    found = [mt.full_param(model.p).float()]
    for key in sorted(states(optimizer)):
        state = mt.full_optimizer_state(optimizer, model.p, key)
        assert state is not None
        found.append(state.float())
    return found


def test_each_plan_and_number_of_ranks_has_the_same_bits() -> None:
    """Also replicas: under zero0 each rank has all states."""
    expected = None
    for plan in ("zero0", "zero1", "zero3"):
        model = Sum(1001)
        optimizer = sharded(model, adamw, plan, in_place=mt.InPlace())
        train(model, optimizer, range(5))
        found = result(model, optimizer)
        expected = expected or found
        assert all(map(torch.equal, expected, found)), plan
        mt.destroy(model)
    assert expected is not None
    assert abs(float(expected[0].double().sum()) - 1000.9921875) < 1e-9, expected[0].double().sum()


@pytest.mark.parametrize("how", [mt.InPlace(), mt.InPlace(F32), mt.InPlace(F32, "nearest")])
def test_a_resumed_run_has_the_bits_of_one_that_went_on(how: mt.InPlace, tmp_path: Path) -> None:
    for make in (
        lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=1e-3),
    ):
        model = Sum(101)
        optimizer = sharded(model, make, in_place=how)
        train(model, optimizer, range(3))
        mt.save(tmp_path, "c", model, optimizer, overwrite=True)
        kept = copy.deepcopy(optimizer.state_dict())
        train(model, optimizer, range(3, 6))
        expected = result(model, optimizer)
        values = mt.full_param(model.p)
        mt.destroy(model)
        for by_file in (True, False):
            other = Sum(101)
            resumed = sharded(other, make, in_place=how)
            if by_file:
                mt.load(tmp_path, None, other, resumed)
            else:
                train(other, resumed, range(3))
                resumed.load_state_dict(kept)
            train(other, resumed, range(3, 6))
            assert all(map(torch.equal, expected, result(other, resumed))), by_file
            assert torch.equal(values, mt.full_param(other.p))
            mt.destroy(other)


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_states_of_before_the_first_step_have_their_dtype(dtype: torch.dtype) -> None:
    model = Sum(8)
    optimizer = sharded(model, adamw, in_place=mt.InPlace(dtype))
    found = get_optimizer_state_dict(model, optimizer)
    assert found["state"]["p"]["exp_avg"].dtype is dtype
    set_optimizer_state_dict(model, optimizer, found)
    train(model, optimizer, range(1))
    assert states(optimizer)["exp_avg"].dtype is dtype and states(optimizer)["step"] == 1


@pytest.mark.parametrize("in_place", [None, mt.InPlace()])
def test_loads_bf16_states_of_earlier_checkpoints(in_place: Any, tmp_path: Path) -> None:
    """As saved before params of 16 bits had f32 values, and coins."""
    model = Sum(101)
    optimizer = sharded(model, adamw, in_place=mt.InPlace(values="nearest"))
    train(model, optimizer, range(3))
    for group in optimizer.param_groups:
        del group["rounded_steps"]
    mt.save(tmp_path, "old", model, optimizer)
    values = mt.full_param(model.p)
    moment = mt.full_optimizer_state(optimizer, model.p, "exp_avg")
    mt.destroy(model)
    other = Sum(101)
    resumed = sharded(other, adamw, in_place=in_place)
    mt.load(tmp_path, None, other, resumed)
    assert torch.equal(values, mt.full_param(other.p))
    found = mt.full_optimizer_state(resumed, other.p, "exp_avg")
    assert found is not None and moment is not None and torch.equal(found.float(), moment.float())
    train(other, resumed, range(3, 5))
    assert states(resumed)["exp_avg"].dtype is (F32 if in_place is None else BF16)
    assert states(resumed)["step"] == 5


def test_refuses_what_cannot_be_updated_in_place() -> None:
    with pytest.raises(meron.UnsupportedError, match=r"'.*p' of SGD is f16"):
        sharded(Sum(8, F16), sgd, in_place=mt.InPlace())
    with pytest.raises(meron.ArgumentError, match="no param of SGD is bf16"):
        sharded(Sum(8, F32), sgd, in_place=mt.InPlace())
    with pytest.raises(meron.ArgumentError, match="in_place is a bool"):
        sharded(Sum(8), sgd, in_place=True)
    with pytest.raises(meron.ArgumentError, match="values of InPlace is 'even'"):
        mt.InPlace(values="even")
    with pytest.raises(meron.ArgumentError, match=r"states of InPlace is torch\.float16"):
        mt.InPlace(states=F16)


def test_a_rule_that_fails_leaves_bf16_states() -> None:
    class Failing(torch.optim.AdamW):
        fails = False

        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            if self.fails and self.param_groups[0]["params"][0].grad is not None:
                raise RuntimeError("no")

    model = Sum(16)
    optimizer = sharded(model, lambda p: Failing(p, lr=1e-3), in_place=mt.InPlace())
    train(model, optimizer, range(2))
    Failing.fails = True
    with pytest.raises(RuntimeError, match="no"):
        train(model, optimizer, range(2, 3))
    optimizer.zero_grad()
    part = optimizer.param_groups[0]["params"][0]
    assert part.dtype is BF16 and states(optimizer)["exp_avg"].dtype is BF16
    Failing.fails = False
    train(model, optimizer, range(3, 4))


def test_gradients_of_any_size_leave_bf16_states_as_rounding_f32_does() -> None:
    for scale in (0.0, 1e-42, 1e-30, 1e15):
        model = Sum(64)
        optimizer = sharded(model, long_memory, in_place=mt.InPlace())
        train(model, optimizer, range(3), scale)
        assert all(bool(value.isfinite().all()) for value in result(model, optimizer))
        mt.destroy(model)


# ---- Rounding -----------------------------------------------------------------------------------


def test_coins_are_fair_and_depend_on_step_and_element() -> None:
    first, second = coins(1, 0, 1 << 16), coins(2, 0, 1 << 16)
    assert abs(float(first.mean()) / 32767.5 - 1) < 0.01
    assert abs(float(np.corrcoef(first, second)[0, 1])) < 0.02
    assert np.array_equal(first[100:200], coins(1, 100, 100))
    assert not np.array_equal(first[:100], coins(1, 1 << 32, 100))


def test_rounding_at_random_is_exact_in_the_mean() -> None:
    values = torch.full((1 << 18,), 1.0 + 0.3 * 2.0**-7)
    out = torch.empty(1 << 18, dtype=BF16)
    round_to(out, values, "random", "seed", 12345)
    assert set(out.float().unique().tolist()) == {1.0, 1.0 + 2.0**-7}
    assert abs(float(out.double().mean()) - float(values[0])) < 3e-5
    begin = 3 * CHUNK - 100
    own = torch.empty(300, dtype=BF16)
    round_to(own, values[:300], "random", "seed", begin)
    assert torch.equal(own, _at(values, "seed", begin + 300)[begin : begin + 300])


def _at(values: torch.Tensor, seed: str, size: int) -> torch.Tensor:
    out = torch.empty(size, dtype=BF16)
    round_to(out, values[:1].expand(size).contiguous(), "random", seed, 0)
    return out


def test_rounding_keeps_what_bf16_holds() -> None:
    special = [0.0, -0.0, float("inf"), -float("inf"), 1.0, -3.5, 2.0**-133, 3.3895313892515355e38]
    values = torch.tensor(special)
    out = torch.empty(len(special), dtype=BF16)
    round_to(out, values, "random", "x", 0)
    assert torch.equal(out.view(torch.int16), values.bfloat16().view(torch.int16))
    nan = np.array([0x7FC00000, 0x7F800001, 0xFFFFFFFF], np.uint32)
    rounded = bf16_at_random(nan, np.full(3, 0xFFFF, np.uint32))
    assert all((int(each) & 0x7FFF) > 0x7F80 for each in rounded)
