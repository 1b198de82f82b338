# SPDX-License-Identifier: Apache-2.0
"""One rank: torch.amp.GradScaler, copies, adapters as PEFT makes them, params that are replaced in
their modules, and DTensors.

Run and reported by promise_program.py; the folder is where ranks meet.
"""

from __future__ import annotations

import copy
import functools
import gc
import sys
import weakref
from typing import Any

import torch
import torch.distributed as dist
from mlp import backward_all, data, loss, mlp, same, sgd, sharded, step_both
from promise_program import RANK, RANKS, main, promises_of, raises
from torch import nn
from torch.nn.utils import prune

import meron
import meron.torch as mt

# ---- torch.amp.GradScaler -----------------------------------------------------------------------


def a_grad_scaler_scales_shards() -> None:
    """Beside one process of plain torch that takes all micro-batches."""
    kinds: list[Any] = [
        lambda m: mt.shard_optimizer(m, torch.optim.Adam(m.parameters(), lr=0.05)),
        lambda m: mt.Adam(m, lr=0.05),
    ]
    for make in kinds:
        for plan in ("zero1", "zero3"):
            plain, model = mlp(), mt.shard(mlp(), plan=plan, units=nn.Linear)
            optimizer, twin = make(model), torch.optim.Adam(plain.parameters(), lr=0.05)
            scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0) for _ in range(2)]
            for step, factor in enumerate((1.0, 1.0, float("inf"), 1.0)):
                mine = loss(model, 10 * step + RANK) * (factor if RANK == RANKS - 1 else 1.0)
                scalers[0].scale(mine).backward()
                for rank in range(RANKS):
                    its = loss(plain, 10 * step + rank) * (factor if rank == RANKS - 1 else 1.0)
                    scalers[1].scale(its / RANKS).backward()
                if step != 1:
                    scalers[0].unscale_(optimizer)
                    scalers[1].unscale_(twin)
                    norm = mt.clip_grad_norm_(model, 0.1)
                    expected = nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
                    if factor == 1.0:
                        torch.testing.assert_close(norm, expected)
                for scaler, own in ((scalers[0], optimizer), (scalers[1], twin)):
                    scaler.step(own)
                    scaler.update()
                twin.zero_grad()  # Meron's steps use gradients up, also those left out
                assert scalers[0].get_scale() == scalers[1].get_scale(), step
                same(model, plain, rtol=1e-4, atol=1e-5)


def a_grad_scaler_refuses_an_optimizer_of_params() -> None:
    model = mt.shard(mlp())
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss(model, RANK)).backward()
    raises(meron.StateError, "shard_optimizer", lambda: scaler.unscale_(optimizer))
    raises(meron.StateError, "shard_optimizer", lambda: scaler.step(optimizer))
    plain = mlp()
    scaler.scale(loss(plain, RANK)).backward()
    scaler.step(sgd(plain))


# ---- Copies -------------------------------------------------------------------------------------


def copies_of_params_have_values_or_are_refused() -> None:
    for plan in ("zero3", "zero1"):
        model, _ = sharded(plan)
        for param, own in zip(model.parameters(), mlp().parameters()):
            try:
                copied = copy.deepcopy(param)
            except meron.StateError as error:
                assert "full_param" in str(error) and plan == "zero3", error
                continue
            assert torch.equal(copied, own), plan
        raises(meron.StateError, "copied", lambda m=model: copy.deepcopy(m))


# ---- Adapters -----------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A linear layer with a trainable update of low rank, as PEFT's."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_a = nn.Linear(base.in_features, 2, bias=False)
        self.lora_b = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.lora_b(self.lora_a(x))

    def delta(self) -> torch.Tensor:
        return mt.full_param(self.lora_b.weight) @ mt.full_param(self.lora_a.weight)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


def base() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block(), nn.Linear(8, 8))


def adapt(model: nn.Module) -> nn.Module:
    """As get_peft_model: the base is frozen, layers of blocks are replaced, a module is around."""
    torch.manual_seed(6)
    for param in model.parameters():
        param.requires_grad_(False)
    for block in (model[0], model[1]):
        block.up, block.down = Adapted(block.up), Adapted(block.down)
    return nn.Sequential(model)


def adapters_of_a_sharded_base_are_sharded() -> None:
    model = adapt(mt.shard(base(), units=Block))
    plain = adapt(base())
    mt.shard(model)
    inside = [name for name, p in model.named_parameters() if not hasattr(p, "_meron")]
    assert not inside, inside
    raises(meron.StateError, "sharded already", lambda: mt.shard(model))
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == 8
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(trained, lr=0.1))
    twin = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.1)
    for step in range(3):
        step_both(model, optimizer, plain, twin, 10 * step)


def adapters_of_another_plan_are_refused() -> None:
    model = adapt(mt.shard(base(), units=Block, plan="zero1"))
    raises(meron.StateError, "0.1 has new params", lambda: mt.shard(model, plan="zero3"))
    mt.shard(model, plan="zero1")


def what_was_ignored_stays_ignored() -> None:
    model = base()
    left_out = model[0].up.bias
    mt.shard(model[0], ignored_params=[left_out])
    mt.shard(model)
    assert not hasattr(left_out, "_meron") and not left_out.isnan().any()
    model(data(0))


def adapters_are_merged_where_params_are_gathered() -> None:
    """As merge_and_unload: weights get the product of the adapters' and the layers their places."""

    def merge(model: nn.Module) -> nn.Module:
        for block in (model[0][0], model[0][1]):
            for name in ("up", "down"):
                layer = getattr(block, name)
                layer.base_layer.weight.data += layer.lora_b.weight @ layer.lora_a.weight
                setattr(block, name, layer.base_layer)
        return model[0]

    plain = merge(adapt(base()))
    for plan in ("zero3", "zero1"):
        for model in (adapt(mt.shard(base(), units=Block, plan=plan)), adapt(base())):
            mt.shard(model, units=Block, plan=plan)
            raises(meron.StateError, "GatheredParameters", lambda m=model: merge(m))
            with meron.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
                merged = merge(model)
            if not hasattr(merged, "_meron_scope"):
                mt.shard(merged, plan=plan)  # what was around it is gone
            torch.testing.assert_close(merged(data(0)), plain(data(0)))
            assert merged.state_dict().keys() == plain.state_dict().keys()
            same(merged, plain)


def merging_into_a_sharded_weight_is_refused_in_words() -> None:
    model = mt.shard(adapt(mt.shard(base(), units=Block)))
    layer = model[0][0].up
    delta, before = layer.delta() + 1, mt.full_param(layer.base_layer.weight)

    def merge() -> None:
        layer.base_layer.weight.data += delta

    raises(meron.StateError, "set_full_param", merge)
    mt.set_full_param(layer.base_layer.weight, before + delta)
    torch.testing.assert_close(mt.full_param(layer.base_layer.weight), before + delta)


# ---- Params replaced in their modules -----------------------------------------------------------


def a_replaced_param_is_refused() -> None:
    """By every way that torch has; the forward would use it, and the optimizer step another one."""

    def under(plan: str) -> None:
        model, optimizer = sharded(plan)
        layer, other = model[2], nn.Parameter(torch.ones(8, 8))
        before, params = dict(model.state_dict()), list(model.parameters())
        for way in (
            lambda: setattr(layer, "weight", other),
            lambda: layer.register_parameter("weight", other),
            lambda: setattr(layer, "weight", None),
            lambda: layer._parameters.update(weight=other),
            lambda: layer._parameters.__setitem__("weight", other),
            lambda: delattr(layer, "weight"),
            lambda: layer._parameters.pop("weight"),
            lambda: layer._parameters.clear(),
            lambda: nn.utils.parametrizations.weight_norm(layer),
            lambda: nn.utils.parametrizations.spectral_norm(layer),
            lambda: nn.utils.weight_norm(layer),
            lambda: nn.utils.spectral_norm(layer),
            lambda: torch.utils.swap_tensors(layer.weight, other),
            lambda: torch.utils.swap_tensors(other, layer.weight),
        ):
            raises(meron.StateError, "2.weight' is sharded", way)
        raises(meron.StateError, "shard for the root again", lambda: delattr(layer, "bias"))
        assert "_forward_pre_hooks" in layer.__dict__ and not layer._forward_pre_hooks
        assert all(one is p for one, p in zip(model.parameters(), params, strict=True))
        for key, value in model.state_dict().items():
            assert torch.equal(value, before[key]), key
        layer.weight = params[2]  # the same one
        given = {"weight": other, "bias": torch.zeros(8)}
        called = torch.func.functional_call(layer, given, data(0))
        torch.testing.assert_close(called, data(0) @ torch.ones(8, 8))
        assert layer._parameters.pop("no", 3) == 3
        plain = mlp()
        step_both(model, optimizer, plain, sgd(plain))

    for plan in ("zero3", "zero1"):
        under(plan)


def a_param_is_made_of_a_copy() -> None:
    for plan in ("zero3", "zero1"):
        model, _ = sharded(plan)
        for value in (model[2].weight, model[2].weight.data, model[2].weight.detach()):
            part = "2.weight' is sharded: torch.nn.Parameter(weight)"
            raises(meron.StateError, part, lambda v=value: nn.Parameter(v))
        copied = nn.Parameter(mt.full_param(model[2].weight))
        assert type(copied) is nn.Parameter and torch.equal(copied, mlp()[2].weight)
        if plan == "zero1":
            assert type(nn.Parameter(model[2].weight.detach().clone())) is nn.Parameter


def a_param_tied_after_sharding_is_trained() -> None:
    for plan in ("zero3", "zero1"):
        model, plain = mt.shard(mlp(), units=nn.Linear, plan=plan), mlp()
        for each in (model, plain):
            each[2].weight = each[0].weight
        optimizer, twin = mt.AdamW(model, lr=0.05), torch.optim.AdamW(plain.parameters(), lr=0.05)
        for step in range(3):
            step_both(model, optimizer, plain, twin, 10 * step)
        assert torch.equal(model.state_dict()["2.weight"], model.state_dict()["0.weight"])
        mt.destroy(model)
        model[0].weight = nn.Parameter(torch.ones(8, 8))  # not refused any more


def a_param_whose_place_another_took_is_not_kept() -> None:
    model = mt.shard(mlp(), units=nn.Linear, plan="zero3")
    loss(model, RANK).backward()
    weight = model[2].weight
    unit, _ = weight._meron
    model[2].weight = model[0].weight
    replaced = weakref.ref(weight)
    unit.release_params()  # as the search for unused units does
    del weight
    gc.collect()
    assert replaced() is None


def pruning_works_where_values_can_be_read() -> None:
    model, plain = mt.shard(mlp(), plan="zero1"), mlp()
    for each in (model, plain):
        prune.l1_unstructured(each[0], "weight", amount=0.5)
    optimizer = mt.shard_optimizer(model, sgd(model))
    step_both(model, optimizer, plain, sgd(plain))
    assert model.state_dict().keys() == plain.state_dict().keys()
    model = mt.shard(mlp())
    cut = functools.partial(prune.l1_unstructured, model[0], "weight", amount=0.5)
    raises(meron.StateError, "0.weight' is sharded", cut)
    assert loss(model, RANK).isfinite() and "0.weight" in model.state_dict()


def what_replaces_params_of_zero_init_is_sharded_by_initialize() -> None:
    """As with DeepSpeed, where a parent's __init__ sets params of its parts."""

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = (nn.Linear(8, 8) for _ in range(3))
            self.one.weight = nn.Parameter(torch.eye(8))
            self.three.weight = self.two.weight
            self.three.bias = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.three(self.two(self.one(x)))

    config = {
        "train_batch_size": RANKS,
        "zero_optimization": {"stage": 3},
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    }
    torch.manual_seed(4)
    with meron.zero.Init(config_dict_or_path=config):
        model = Parent()
    plain = Parent()
    plain.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})
    assert torch.equal(plain.one.weight, torch.eye(8)) and model.three.bias is None
    engine, *_ = meron.zero.initialize(model=model, config=config)
    engine.backward(loss(engine, RANK))
    engine.step()
    backward_all(plain, 0)
    sgd(plain).step()
    same(model, plain)
    raises(meron.StateError, "sharded", lambda: setattr(model.one, "weight", model.one.bias.data))


# ---- DTensors -----------------------------------------------------------------------------------


def dtensors_are_refused_by_name() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_module, distribute_tensor

    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[1]}/meet", rank=RANK, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    model = mlp()
    model[2].weight = nn.Parameter(distribute_tensor(model[2].weight.detach(), mesh))
    refusal = "Sequential.2.weight is a DTensor"
    raises(meron.ArgumentError, refusal, lambda: mt.shard(model, units=nn.Linear))
    assert not any(hasattr(param, "_meron") for param in model.parameters())
    raises(
        meron.ArgumentError,
        "is a DTensor",
        lambda: meron.zero.initialize(
            model=distribute_module(mlp(), mesh),
            config={"train_batch_size": RANKS, "zero_optimization": {"stage": 3}},
        ),
    )
    mt.shard(model, ignored_params=[model[2].weight])
    half = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    raises(
        meron.ArgumentError, "1.weight is torch.float64", lambda: mt.shard(half, units=nn.Linear)
    )
    assert not hasattr(half[0].weight, "_meron"), "it was changed"
    dist.destroy_process_group()


if __name__ == "__main__":
    import meron.zero

    sys.exit(main(sys.argv[1], promises_of(dict(globals()))))
