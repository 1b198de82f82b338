# SPDX-License-Identifier: Apache-2.0
"""GradScaler, copies, adapters like those of PEFT, replaced params, and DTensors."""

from __future__ import annotations

import copy
import functools
import gc
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from mlp import RANK, RANKS, backward_all, data, loss, mlp, same, sgd, sharded, step_both
from torch import nn
from torch.nn.utils import prune

import meron
import meron.torch as mt
import meron.zero

pytestmark = pytest.mark.ranks(2)

# ---- torch.amp.GradScaler -----------------------------------------------------------------------


def test_grad_scaler_scales_shards() -> None:
    """Compared with plain torch, which computes the micro-batches of all ranks."""
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
                twin.zero_grad()  # a step of Meron consumes gradients, even if it is skipped
                assert scalers[0].get_scale() == scalers[1].get_scale(), step
                same(model, plain, rtol=1e-4, atol=1e-5)


def test_grad_scaler_rejects_an_unsharded_optimizer() -> None:
    model = mt.shard(mlp())
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss(model, RANK)).backward()
    with pytest.raises(meron.StateError, match="shard_optimizer"):
        scaler.unscale_(optimizer)
    with pytest.raises(meron.StateError, match="shard_optimizer"):
        scaler.step(optimizer)
    plain = mlp()
    scaler.scale(loss(plain, RANK)).backward()
    scaler.step(sgd(plain))


# ---- Copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_copied_params_have_values_or_are_rejected(plan: str) -> None:
    model, _ = sharded(plan)
    for param, own in zip(model.parameters(), mlp().parameters()):
        try:
            copied = copy.deepcopy(param)
        except meron.StateError as error:
            assert "full_param" in str(error) and plan == "zero3", error
            continue
        assert torch.equal(copied, own), plan
    with pytest.raises(meron.StateError, match="copied"):
        copy.deepcopy(model)


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
    """As get_peft_model does: freezes the base, replaces layers of blocks, and wraps the model."""
    torch.manual_seed(6)
    for param in model.parameters():
        param.requires_grad_(False)
    for block in (model[0], model[1]):
        block.up, block.down = Adapted(block.up), Adapted(block.down)
    return nn.Sequential(model)


def test_shards_adapters_of_a_sharded_base() -> None:
    model = adapt(mt.shard(base(), units=Block))
    plain = adapt(base())
    mt.shard(model)
    inside = [name for name, p in model.named_parameters() if not hasattr(p, "_meron")]
    assert not inside
    with pytest.raises(meron.StateError, match="sharded already"):
        mt.shard(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == 8
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(trained, lr=0.1))
    twin = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.1)
    for step in range(3):
        step_both(model, optimizer, plain, twin, 10 * step)


def test_rejects_adapters_under_another_plan() -> None:
    model = adapt(mt.shard(base(), units=Block, plan="zero1"))
    with pytest.raises(meron.StateError, match=r"0\.1 has new params"):
        mt.shard(model, plan="zero3")
    mt.shard(model, plan="zero1")


def test_ignored_params_stay_ignored() -> None:
    model = base()
    left_out = model[0].up.bias
    mt.shard(model[0], ignored_params=[left_out])
    mt.shard(model)
    assert not hasattr(left_out, "_meron") and not left_out.isnan().any()
    model(data(0))


def test_merges_adapters_into_gathered_params() -> None:
    """As merge_and_unload does: adds the adapters to the weights, and removes them."""

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
            if plan == "zero3":
                with pytest.raises(meron.StateError, match="GatheredParameters"):
                    merge(model)
            with meron.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
                merged = merge(model)
            if not hasattr(merged, "_meron_scope"):
                mt.shard(merged, plan=plan)  # the sharded module around it was dropped
            torch.testing.assert_close(merged(data(0)), plain(data(0)))
            assert merged.state_dict().keys() == plain.state_dict().keys()
            same(merged, plain)


def test_merges_adapters_into_readable_params() -> None:
    for plan in ("zero0", "zero2"):
        model = mt.shard(adapt(mt.shard(base(), units=Block, plan=plan)), plan=plan)
        layer = model[0][0].up
        delta, before = layer.delta(), mt.full_param(layer.base_layer.weight)
        layer.base_layer.weight.data += delta
        assert torch.equal(mt.full_param(layer.base_layer.weight), before + delta)


def test_rejects_merging_into_a_sharded_weight() -> None:
    model = mt.shard(adapt(mt.shard(base(), units=Block)))
    layer = model[0][0].up
    delta, before = layer.delta() + 1, mt.full_param(layer.base_layer.weight)

    def merge() -> None:
        layer.base_layer.weight.data += delta

    with pytest.raises(meron.StateError, match="set_full_param"):
        merge()
    mt.set_full_param(layer.base_layer.weight, before + delta)
    torch.testing.assert_close(mt.full_param(layer.base_layer.weight), before + delta)


# ---- Params replaced in their modules -----------------------------------------------------------


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_rejects_replacing_a_param(plan: str) -> None:
    """By each way that torch has. The optimizer would not step the new param."""
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
        with pytest.raises(meron.StateError, match=r"2\.weight' is sharded"):
            way()
    with pytest.raises(meron.StateError, match="shard for the root again"):
        delattr(layer, "bias")
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


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_makes_a_parameter_of_a_copy_only(plan: str) -> None:
    model, _ = sharded(plan)
    for value in (model[2].weight, model[2].weight.data, model[2].weight.detach()):
        part = "2.weight' is sharded: torch.nn.Parameter(weight)"
        with pytest.raises(meron.StateError, match=re.escape(part)):
            nn.Parameter(value)
    copied = nn.Parameter(mt.full_param(model[2].weight))
    assert type(copied) is nn.Parameter and torch.equal(copied, mlp()[2].weight)
    if plan == "zero1":
        assert type(nn.Parameter(model[2].weight.detach().clone())) is nn.Parameter


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_trains_a_param_tied_after_shard(plan: str) -> None:
    model, plain = mt.shard(mlp(), units=nn.Linear, plan=plan), mlp()
    for each in (model, plain):
        each[2].weight = each[0].weight
    optimizer, twin = mt.AdamW(model, lr=0.05), torch.optim.AdamW(plain.parameters(), lr=0.05)
    for step in range(3):
        step_both(model, optimizer, plain, twin, 10 * step)
    assert torch.equal(model.state_dict()["2.weight"], model.state_dict()["0.weight"])
    mt.destroy(model)
    model[0].weight = nn.Parameter(torch.ones(8, 8))  # a plain module accepts it


def test_frees_a_replaced_param() -> None:
    model = mt.shard(mlp(), units=nn.Linear, plan="zero3")
    loss(model, RANK).backward()
    weight = model[2].weight
    unit, _ = weight._meron
    model[2].weight = model[0].weight
    replaced = weakref.ref(weight)
    unit.release_params()  # as Meron does when it looks for unused units
    del weight
    gc.collect()
    assert replaced() is None


def test_prunes_replicated_params_only() -> None:
    model, plain = mt.shard(mlp(), plan="zero1"), mlp()
    for each in (model, plain):
        prune.l1_unstructured(each[0], "weight", amount=0.5)
    optimizer = mt.shard_optimizer(model, sgd(model))
    step_both(model, optimizer, plain, sgd(plain))
    assert model.state_dict().keys() == plain.state_dict().keys()
    model = mt.shard(mlp())
    cut = functools.partial(prune.l1_unstructured, model[0], "weight", amount=0.5)
    with pytest.raises(meron.StateError, match=r"0\.weight' is sharded"):
        cut()
    assert loss(model, RANK).isfinite() and "0.weight" in model.state_dict()


def test_initialize_shards_params_replaced_under_init() -> None:
    """As with DeepSpeed, a parent's __init__ may set params of its children."""

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
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    }
    torch.manual_seed(4)
    with meron.zero.Init(config_dict_or_path=config):
        model = Parent()
    plain = Parent()
    plain.load_state_dict(meron.zero.full_state_dict(model))
    assert torch.equal(plain.one.weight, torch.eye(8)) and model.three.bias is None
    engine, *_ = meron.zero.initialize(model=model, config=config)
    engine.backward(loss(engine, RANK))
    engine.step()
    backward_all(plain, 0)
    sgd(plain).step()
    same(model, plain)
    with pytest.raises(meron.StateError, match="sharded"):
        model.one.weight = model.one.bias.data


@pytest.mark.parametrize("held", [False, True])
def test_initialize_forgets_replaced_params(held: bool) -> None:
    """After a resize the old embeddings are gathered no more. They live on only if `held`."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(8, 4)
            self.head = nn.Linear(4, 8, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(x))

    config = {
        "train_batch_size": RANKS,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    }
    torch.manual_seed(4)
    plain = Model()
    with meron.zero.Init(config_dict_or_path=config):
        model = Model()
    old = model.embed.weight
    unit = old._meron[0]
    if not held:
        del old
    for each in (model, plain):
        torch.manual_seed(5)
        each.embed.weight = each.head.weight = nn.Parameter(torch.randn(9, 4))
    engine, *_ = meron.zero.initialize(model=model, config=config)
    units = engine.sharding.units
    assert (unit in units) == held
    assert all(unit not in scope.units for scope in engine.sharding.scopes)
    optimizer = sgd(plain)
    for step in range(2):
        tokens = torch.arange(RANKS * 3).view(RANKS, 3) + step
        engine.backward(engine(tokens[RANK] % 9).square().mean())
        engine.step()
        optimizer.zero_grad()
        for own in tokens:
            (plain(own % 9).square().mean() / RANKS).backward()
        optimizer.step()
    same(model, plain)


# ---- DTensors -----------------------------------------------------------------------------------


def test_rejects_dtensors_by_name(tmp_path: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_module, distribute_tensor

    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=RANK, world_size=RANKS
    )
    dist.barrier()  # the group breaks if a rank ends before the others are connected
    mesh = init_device_mesh("cpu", (RANKS,))
    model = mlp()
    model[2].weight = nn.Parameter(distribute_tensor(model[2].weight.detach(), mesh))
    refusal = "Sequential.2.weight is a DTensor"
    with pytest.raises(meron.ArgumentError, match=re.escape(refusal)):
        mt.shard(model, units=nn.Linear)
    assert not any(hasattr(param, "_meron") for param in model.parameters())
    with pytest.raises(meron.ArgumentError, match="is a DTensor"):
        meron.zero.initialize(
            model=distribute_module(mlp(), mesh),
            config={"train_batch_size": RANKS, "zero_optimization": {"stage": 3}},
        )
    mt.shard(model, ignored_params=[model[2].weight])
    half = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(meron.ArgumentError, match=r"1\.weight is torch\.float64"):
        mt.shard(half, units=nn.Linear)
    assert not hasattr(half[0].weight, "_meron")
    dist.destroy_process_group()
