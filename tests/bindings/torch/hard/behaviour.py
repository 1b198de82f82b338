# SPDX-License-Identifier: Apache-2.0
"""One rank: what meron.torch promises beside parity, a function for each promise.

Writes one line of JSON per function into folder/rank: its name, and what went wrong or null. After
a failure the ranks go on together as long as they can.
"""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import nn

import meron
import meron.torch as mt
from meron.torch.gradients.accumulation import ENDED

context = mt.context_for(meron.Plan.preset("zero3"))
RANK, RANKS = context.rank, context.world_size
Optimizer = torch.optim.Optimizer


def mlp() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def data(seed: int) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def sharded(plan: str = "zero3", **options: Any) -> tuple[nn.Sequential, Optimizer]:
    model = mt.shard(mlp(), plan=plan, **options)
    return model, mt.shard_optimizer(model, sgd(model))


def loss(model: nn.Module, seed: int) -> torch.Tensor:
    return model(data(seed)).float().square().mean()


def backward_all(model: nn.Module, seed: int) -> None:
    """What all ranks' backward of `seed + rank` comes to, in plain torch."""
    for rank in range(RANKS):
        (loss(model, seed + rank) / RANKS).backward()


def same(model: nn.Module, plain: nn.Module, **tolerance: float) -> None:
    for param, expected in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(mt.full_param(param).float(), expected.detach(), **tolerance)


def step_both(
    model: nn.Module, optimizer: Optimizer, plain: nn.Module, twin: Optimizer, seed: int = 0
) -> None:
    """A step of the sharded model and one of plain torch's; they are the same afterwards."""
    loss(model, seed + RANK).backward()
    optimizer.step()
    twin.zero_grad()
    backward_all(plain, seed)
    twin.step()
    same(model, plain)


def raises(kind: type[BaseException], text: str, function: Callable[[], object]) -> None:
    try:
        function()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return
    raise AssertionError(f"no {kind.__name__} with {text!r}")


def out_of_use(param: torch.Tensor) -> bool:
    try:
        param.sum()
    except meron.StateError:
        return True
    return False


# ---- Gradients ----------------------------------------------------------------------------------


def no_sync_keeps_gradients_here() -> None:
    for plan in ("zero3", "zero1"):
        model, optimizer = sharded(plan)
        plain, twin = mlp(), None
        twin = sgd(plain)
        for step in range(2):
            with mt.no_sync(model):
                loss(model, 10 * step + RANK).backward()
            loss(model, 100 * step + 50 + RANK).backward()
            optimizer.step()
            twin.zero_grad()
            backward_all(plain, 10 * step)
            backward_all(plain, 100 * step + 50)
            twin.step()
        same(model, plain)


def a_step_takes_what_no_sync_left() -> None:
    model, optimizer = sharded()
    plain = mlp()
    with mt.no_sync(model):
        loss(model, RANK).backward()
    optimizer.step()
    backward_all(plain, 0)
    sgd(plain).step()
    same(model, plain)


def the_last_backward_ends_the_accumulation() -> None:
    """With the bits of a step that ends it; after the first step."""
    for plan in ("zero1", "zero2", "zero3", "mics(1)"):
        told, untold = sharded(plan), sharded(plan)
        for step in range(3):
            for model, optimizer in (told, untold):
                for micro in range(3):
                    mt.set_is_last_backward(model, model is told[0] and micro == 2)
                    loss(model, 100 * step + 10 * micro + RANK).backward()
                ended = [unit.gradients.phase is ENDED for unit in mt.api.require_units(model)]
                assert ended == [model is told[0] and step > 0] * len(ended), (plan, step)
                mt.clip_grad_norm_(model, 0.5)
                optimizer.step()
        for one, other in zip(told[0].parameters(), untold[0].parameters()):
            assert torch.equal(mt.full_param(one), mt.full_param(other)), plan


def a_backward_after_the_last_is_refused() -> None:
    model, optimizer = sharded()
    plain = mlp()
    for step in range(2):
        mt.set_is_last_backward(model, True)
        loss(model, 10 * step + RANK).backward()
        if step == 1:
            raises(meron.StateError, "after those of the last", lambda: loss(model, 0).backward())
            raises(meron.StateError, "after those of the last", optimizer.step)
            optimizer.zero_grad()
            mt.set_is_last_backward(model, False)
            loss(model, 10 * step + RANK).backward()
        optimizer.step()
        plain.zero_grad()
        backward_all(plain, 10 * step)
        sgd(plain).step()
    same(model, plain)


def two_models_take_turns() -> None:
    """A generator and its critic: one backward for both, clipping and steps of each alone."""
    (maker, makers), (critic, critics) = sharded(), sharded()
    plain_maker, plain_critic = mlp(), mlp()
    plain_makers, plain_critics = sgd(plain_maker), sgd(plain_critic)
    for step in range(3):
        critic(maker(data(step + RANK))).square().mean().backward()
        mt.clip_grad_norm_(maker, 1e9)
        mt.clip_grad_norm_(critic, 1e9)
        makers.step()
        critics.step()
        critic(maker(data(step + RANK)).detach()).square().mean().backward()
        critics.step()
        makers.zero_grad()
        plain_makers.zero_grad()
        plain_critics.zero_grad()
        for rank in range(RANKS):
            (plain_critic(plain_maker(data(step + rank))).square().mean() / RANKS).backward()
        plain_makers.step()
        plain_critics.step()
        plain_critics.zero_grad()
        for rank in range(RANKS):
            made = plain_maker(data(step + rank)).detach()
            (plain_critic(made).square().mean() / RANKS).backward()
        plain_critics.step()
    same(maker, plain_maker)
    same(critic, plain_critic)


def two_engines_with_other_plans() -> None:
    model, optimizer = sharded("zero1")
    other, others = sharded("zero2")
    plain = mlp()
    for each, its in ((model, optimizer), (other, others)):
        loss(each, RANK).backward()
        its.step()
    backward_all(plain, 0)
    sgd(plain).step()
    same(model, plain)
    same(other, plain)


def a_deepspeed_config_is_a_plan() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 2, "stage3_param_persistence_threshold": 0},
        "bf16": {"enabled": True},
    }
    if "meron.zero" not in sys.modules:
        raises(meron.StateError, "import meron.zero", lambda: mt.shard(mlp(), config=config))
        importlib.import_module("meron.zero")
    model = mt.shard(mlp(), config=config)
    assert model(data(RANK)).dtype == torch.bfloat16
    unit = model[0].weight._meron[0]
    assert json.loads(unit.sharding.context.plan.json())["name"] == "zero2"
    raises(meron.ArgumentError, "not both", lambda: mt.shard(mlp(), plan="zero1", config=config))
    wrong = {"zero_optimization": {"stagee": 2}}
    raises(meron.ArgumentError, "stage", lambda: mt.shard(mlp(), config=wrong))


def gradient_of_a_gradient() -> None:
    def penalty(model: nn.Module, seed: int) -> torch.Tensor:
        x = data(seed).requires_grad_()
        (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return slope.square().sum()

    model = mt.shard(mlp(), units=nn.Linear)
    optimizer = mt.shard_optimizer(model, sgd(model))
    plain = mlp()
    penalty(model, RANK).backward()
    optimizer.step()
    for rank in range(RANKS):
        (penalty(plain, rank) / RANKS).backward()
    sgd(plain).step()
    same(model, plain)


def clipping_is_that_of_torch() -> None:
    for plan in ("zero0", "zero1", "zero3"):
        for kind in (2.0, 1.0, float("inf")):
            model, _ = sharded(plan)
            plain = mlp()
            loss(model, RANK).backward()
            backward_all(plain, 0)
            expected = torch.nn.utils.clip_grad_norm_(plain.parameters(), 1e-3, kind)
            torch.testing.assert_close(mt.clip_grad_norm_(model, 1e-3, kind), expected)
            for param, twin in zip(model.parameters(), plain.parameters()):
                torch.testing.assert_close(mt.full_grad(param), twin.grad)


def gradients_may_be_asked_for_before_there_are_any() -> None:
    model, optimizer = sharded()
    assert mt.full_grad(model[0].weight) is None
    assert float(mt.clip_grad_norm_(model, 1.0)) == 0.0
    loss(model, RANK).backward()
    optimizer.step()


def whole_tensors_on_demand() -> None:
    model = mt.shard(mlp())
    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    weight = model[0].weight
    loss(model, RANK).backward()
    plain = mlp()
    backward_all(plain, 0)
    grad = mt.full_grad(weight)
    torch.testing.assert_close(grad, plain[0].weight.grad)
    mt.set_full_grad(weight, grad * 2)
    torch.testing.assert_close(mt.full_grad(weight), grad * 2)
    optimizer.step()
    torch.testing.assert_close(mt.full_optimizer_state(optimizer, weight, "exp_avg"), grad * 0.2)
    mt.set_full_optimizer_state(optimizer, weight, "exp_avg", torch.ones(8, 8))
    assert mt.full_optimizer_state(optimizer, weight, "exp_avg").eq(1).all()
    assert mt.full_optimizer_state(optimizer, weight, "step") == 1
    assert mt.full_optimizer_state(optimizer, weight, "nothing") is None
    mt.set_full_param(weight, torch.full((8, 8), 0.5))
    assert mt.full_param(weight).eq(0.5).all()
    assert mt.full_grad(weight) is None, "the step has used it"


# ---- Optimizers ---------------------------------------------------------------------------------


def an_optimizer_of_before_keeps_its_states() -> None:
    model, plain = mlp(), mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    twin = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for seed in range(2):
        for each, its in ((model, optimizer), (plain, twin)):
            its.zero_grad()
            loss(each, seed).backward()
            its.step()
    twin.zero_grad()
    mt.shard(model)
    mt.shard_optimizer(model, optimizer)
    loss(model, RANK).backward()
    optimizer.step()
    backward_all(plain, 0)
    twin.step()
    same(model, plain)


def the_engines_adamw_is_that_of_torch() -> None:
    for dtype, tolerance in ((None, 1e-6), (torch.bfloat16, 2e-2)):
        model = mt.shard(mlp(), mp=mt.MixedPrecision(dtype))
        plain = mlp()
        optimizer = mt.AdamW(model, lr=0.01, weight_decay=0.1)
        twin = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
        schedules = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (optimizer, twin)]
        for seed in range(4):
            loss(model, seed + RANK).backward()
            optimizer.step()
            optimizer.zero_grad()
            twin.zero_grad()
            backward_all(plain, seed)
            twin.step()
            for schedule in schedules:
                schedule.step()
        same(model, plain, rtol=tolerance, atol=tolerance)


def mixed_precision_keeps_f32_weights() -> None:
    """bf16 compute and gradients, f32 sums and updates: bit for bit what plain torch does so."""
    mp = mt.MixedPrecision(torch.bfloat16, torch.float32)
    model = mt.shard(mlp(), mp=mp)
    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    plain = mlp()
    low = copy.deepcopy(plain).bfloat16()
    twin = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for seed in range(3):
        out = model(data(seed + RANK))
        assert out.dtype == torch.bfloat16
        out.float().square().mean().backward()
        optimizer.step()
        sums = [torch.zeros_like(param) for param in plain.parameters()]
        for rank in range(RANKS):
            low.zero_grad()
            low(data(seed + rank).bfloat16()).float().square().mean().backward()
            for total, param in zip(sums, low.parameters()):
                total += param.grad.float()
        for total, param in zip(sums, plain.parameters()):
            param.grad = total / RANKS
        twin.step()
        for param, values in zip(low.parameters(), plain.parameters()):
            param.data.copy_(values.detach())
    for param, expected in zip(model.parameters(), low.parameters()):
        assert torch.equal(mt.full_param(param), expected.detach())


def params_added_late() -> None:
    model = mt.shard(mlp())
    optimizer = mt.shard_optimizer(model, sgd(model))
    loss(model, RANK).backward()
    optimizer.step()
    optimizer.zero_grad()
    model.add_module("3", nn.Linear(8, 8))
    raises(meron.ArgumentError, "3.weight", lambda: mt.AdamW(model))
    mt.shard(model)
    optimizer.add_param_group({"params": model[3].parameters()})
    before = mt.full_param(model[3].weight)
    loss(model, RANK).backward()
    optimizer.step()
    assert not torch.equal(before, mt.full_param(model[3].weight))


# ---- In and out of use --------------------------------------------------------------------------


def out_of_use_params_hold_nothing() -> None:
    model, _ = sharded()
    for param in model.parameters():
        assert param.untyped_storage().nbytes() <= 8
        assert out_of_use(param)
    assert [param.shape for param in model.parameters()] == [p.shape for p in mlp().parameters()]


def hooks_of_others_see_whole_params() -> None:
    plain = mlp()
    seen: list[torch.Tensor] = []
    model = mlp()
    model[0].register_forward_pre_hook(lambda module, _: seen.append(module.weight.clone()))
    mt.shard(model, units=nn.Linear)
    model[0].register_forward_hook(lambda module, *_: seen.append(module.weight.clone()))
    doubled = model[2].register_forward_hook(lambda module, _, output: output * 2)
    assert torch.equal(model(data(1)), plain(data(1)) * 2)
    doubled.remove()
    assert len(seen) == 2 and all(torch.equal(value, plain[0].weight) for value in seen)
    inputs: list[torch.Tensor] = []
    model[2].register_full_backward_hook(lambda module, given, _: inputs.extend(given))
    loss(model, 1).backward()
    assert len(inputs) == 1
    # What a forward finds in the place of its params, in its own module and in others.
    other = torch.zeros(8, 8)
    swapped = torch.func.functional_call(model[0], {"weight": other}, data(1))
    assert torch.equal(swapped, plain[0].bias.expand(4, 8))
    assert "weight" not in model[0].__dict__
    tied = mt.shard(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), units=nn.Linear)
    tied[1].weight = tied[0].weight  # after sharding: a use of another's param
    value = mt.full_param(tied[0].weight)
    with torch.no_grad():
        expected = data(1) @ value.T + mt.full_param(tied[0].bias)
        expected = expected @ value.T + mt.full_param(tied[1].bias)
        torch.testing.assert_close(tied(data(1)), expected)


def outputs_may_have_hooks() -> None:
    plain, (model, _) = mlp(), sharded()
    gradients: list[torch.Tensor] = []
    for each in (plain, model):
        each[0].register_forward_hook(
            lambda _module, _args, output: output.register_hook(gradients.append) and None
        )
        output = each(data(1))
        handle = output.register_hook(lambda gradient: gradient * 3)
        output.sum().backward(retain_graph=True)
        handle.remove()
        output.sum().backward()
    assert len(gradients) == 4
    for mine, torchs in zip(gradients[2:], gradients[:2]):
        torch.testing.assert_close(mine, torchs)


def unshard_by_hand() -> None:
    model, _ = sharded()
    mt.unshard(model)
    assert model[0].weight.isfinite().all()
    loss(model, RANK).backward()
    assert model[0].weight.isfinite().all()
    mt.reshard(model)
    assert out_of_use(model[0].weight)
    mt.prefetch(model)
    assert loss(model, RANK).isfinite()


def kept_from_forward_to_backward() -> None:
    model, _ = sharded(reshard_after_forward=False)
    value = loss(model, RANK)
    assert model[0].weight.isfinite().all()
    value.backward()
    assert out_of_use(model[0].weight)


def built_on_meta() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.BatchNorm1d(8))
        empty = nn.Sequential(nn.Linear(8, 8), nn.Module())
        empty[1].weight = nn.Parameter(torch.empty(3))
    mt.shard(model, units=nn.Linear, seed=5)
    weight = mt.full_param(model[0].weight)
    assert weight.abs().max() <= 8**-0.5 and weight.std() > 0.1
    everywhere = weight.clone()
    context.world.broadcast(everywhere.numpy())
    assert torch.equal(weight, everywhere), "ranks have different values"
    assert torch.equal(mt.full_param(model[1].weight), torch.ones(8))
    assert torch.equal(model[2].running_var, torch.ones(8))
    optimizer = mt.shard_optimizer(model, sgd(model))
    loss(model, RANK).backward()
    optimizer.step()
    raises(meron.ArgumentError, "has no reset_parameters", lambda: mt.shard(empty))

    mixed = nn.Sequential(nn.Linear(8, 8, device="meta"), mlp()[0])
    expected = mixed[1].weight.detach().clone()
    mt.shard(mixed, seed=5)
    assert torch.equal(mt.full_param(mixed[1].weight), expected), "a real param was lost"
    assert mt.full_param(mixed[0].weight).std() > 0.1
    partly = nn.Linear(8, 8, device="meta")
    partly.bias = nn.Parameter(torch.zeros(8))
    raises(meron.ArgumentError, "meta in part", lambda: mt.shard(partly))


# ---- Errors -------------------------------------------------------------------------------------


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


def two_optimizers_of_one_unit_are_told() -> None:
    model = mt.shard(mlp())
    params = list(model.parameters())
    first = mt.shard_optimizer(model, torch.optim.SGD(params[:2], lr=0.1))
    second = torch.optim.SGD(params[2:], lr=0.1)
    raises(meron.ArgumentError, "share the unit", lambda: mt.shard_optimizer(model, second))
    assert second.param_groups[0]["params"][0] is params[2], "it was changed"
    first.add_param_group({"params": params[2:]})
    loss(model, RANK).backward()
    first.step()
    parts = mt.shard(mlp(), units=nn.Linear)
    for part in (parts[0], parts[2]):
        mt.shard_optimizer(parts, sgd(part))


def a_prefetch_without_a_use() -> None:
    model, optimizer = sharded()
    loss(model, RANK).backward()
    mt.prefetch(model)
    optimizer.step()


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


def promises_of(content: dict[str, Any]) -> list[Callable[[], None]]:
    """The functions that a program of ranks defines, of no arguments, that return None."""
    return [
        function
        for function in content.values()
        if callable(function)
        and getattr(function, "__module__", None) == content["__name__"]
        and getattr(function, "__annotations__", {}) == {"return": "None"}
        and not isinstance(function, type)
    ]


def main(folder: str, promises: list[Callable[[], None]]) -> int:
    torch.set_num_threads(1)
    with open(f"{folder}/{RANK}", "w", encoding="utf-8") as file:
        for promise in promises:
            wrong = None
            try:
                promise()
            except Exception:
                wrong = traceback.format_exc()
            file.write(json.dumps([promise.__name__, wrong]) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], promises_of(dict(globals()))))
