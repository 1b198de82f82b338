# SPDX-License-Identifier: Apache-2.0
"""Training on the emulated device has the bits of training on the host."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from layers import RANK, SLOW, STEPS, batch, equal_bits, stack, trained
from torch.utils.checkpoint import checkpoint

import meron
import meron.torch as mt
from meron import zero
from model import Model, config, data, loss_of

pytestmark = pytest.mark.ranks(1, 2, environment=SLOW)


def flat(state: dict[str, Any]) -> list[torch.Tensor]:
    return [value for _, value in sorted(state.items()) if isinstance(value, torch.Tensor)]


# ---- meron.torch --------------------------------------------------------------------------------


def test_values_and_states_on_the_device_have_the_bits_of_the_host() -> None:
    there = {"tier": "device"}
    rows = {"param": there, "gradient": there, "optimizer": there}
    for dtype in (torch.float32, torch.bfloat16):
        for tiers in ({"param": there}, rows):

            def run(device: str, tiers: Any = tiers, dtype: torch.dtype = dtype) -> Any:
                # The plan's name gives the run on the host a context of its own too.
                table = {"preset": "zero3", "name": "rows"}
                table.update(tiers if device == "emulated" else {})
                model = mt.shard(
                    stack(dtype=dtype),
                    units=torch.nn.Linear,
                    plan=meron.Plan.parse(table),
                    device=device,
                )
                optimizer = mt.AdamW(model, lr=0.1)
                found = trained(model, optimizer, lambda x: model(x.to(dtype)), 2, 0.1)
                states = optimizer.state_dict()["state"]
                return [*found, *(tensor for state in states.values() for tensor in flat(state))]

            equal_bits(run)
    model = mt.shard(
        stack(),
        plan=meron.Plan.parse({"preset": "zero3", **rows}),
        device="emulated",
    )
    with pytest.raises(meron.UnsupportedError, match="on device"):
        mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_each_plan_and_rule_has_the_bits_of_the_host() -> None:
    for plan in ("zero0", "zero1", "zero2", "zero3"):

        def engines(device: str, plan: str = plan) -> list[torch.Tensor]:
            model = mt.shard(stack(), units=torch.nn.Linear, plan=plan, device=device)
            return trained(model, mt.AdamW(model, lr=0.1), accumulate=2, clip=0.1)

        def torchs(device: str, plan: str = plan) -> list[torch.Tensor]:
            model = mt.shard(stack(), units=torch.nn.Linear, plan=plan, device=device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            return trained(model, mt.shard_optimizer(model, optimizer), clip=0.1)

        equal_bits(engines)
        equal_bits(torchs)


def test_mixed_precision_and_autocast_have_the_bits_of_the_host() -> None:
    mp = mt.MixedPrecision(torch.bfloat16, torch.float32)

    def half(device: str) -> list[torch.Tensor]:
        model = mt.shard(stack(), units=torch.nn.Linear, mp=mp, device=device)
        return trained(model, mt.AdamW(model, lr=0.1))

    def autocast(device: str) -> list[torch.Tensor]:
        model = mt.shard(stack(), units=torch.nn.Linear, device=device)
        place = next(model.parameters()).device.type

        def forward(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(place, torch.bfloat16):
                return model(x)

        return trained(model, mt.AdamW(model, lr=0.1), forward)

    equal_bits(half)
    equal_bits(autocast)


def test_activation_checkpointing_has_the_bits_of_the_host() -> None:
    for reentrant in (True, False):

        def train(device: str, reentrant: bool = reentrant) -> list[torch.Tensor]:
            model = mt.shard(stack(), units=torch.nn.Linear, device=device, persist_elements=0)

            def forward(x: torch.Tensor) -> torch.Tensor:
                x = x.requires_grad_()
                for layer in model[:-1]:
                    x = checkpoint(layer, torch.tanh(x), use_reentrant=reentrant)
                return model[-1](x)

            whole = Around(model, forward)
            mt.shard(whole, device=device)
            return trained(whole, mt.AdamW(whole, lr=0.1))

        equal_bits(train)


class Around(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, run: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.run = run
        self.scale = torch.nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(x) * self.scale


def test_frozen_params_and_no_sync_have_the_bits_of_the_host() -> None:
    def train(device: str) -> list[torch.Tensor]:
        model = stack()
        model[0].weight.requires_grad_(False)
        model[2].bias.requires_grad_(False)
        mt.shard(model, units=torch.nn.Linear, device=device, reshard_after_forward=False)
        optimizer = mt.AdamW(model, lr=0.1)
        found = []
        for step in range(STEPS):
            with mt.no_sync(model):
                model(batch(2 * step)).square().mean().backward()
            loss = model(batch(2 * step + 1)).square().mean()
            loss.backward()
            found.append(loss.detach())
            optimizer.step()
        return [*found, *model.state_dict().values()]

    equal_bits(train)


def test_params_on_meta_get_the_values_of_the_host() -> None:
    def train(device: str) -> list[torch.Tensor]:
        model = mt.shard(stack(device="meta"), units=torch.nn.Linear, device=device, seed=3)
        return trained(model, mt.AdamW(model, lr=0.1))

    equal_bits(train)


# ---- meron.zero ---------------------------------------------------------------------------------


def test_each_stage_of_zero_has_the_bits_of_the_host() -> None:
    for stage in (0, 1, 2, 3):
        for others in (
            {"gradient_accumulation_steps": 2, "gradient_clipping": 0.1},
            {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}},
            {"fp16": {"enabled": True, "initial_scale_power": 4}},
        ):

            def train(device: str, stage: int = stage, others: Any = others) -> list[torch.Tensor]:
                torch.manual_seed(0)
                engine, *_ = zero.initialize(
                    model=Model(), config=config(stage, **others), device=device
                )
                assert engine.device == torch.device("cpu")
                generator = torch.Generator().manual_seed(1)
                found = []
                for _ in range(2 * engine.gradient_accumulation_steps()):
                    x, y = data(generator)
                    loss = loss_of(engine, x[RANK], y[RANK])
                    found.append(loss.detach())
                    engine.backward(loss)
                    engine.step()
                values = list(zero.full_state_dict(engine).values())
                engine.destroy()
                return [*found, *values]

            equal_bits(train)


def test_params_are_read_and_written_as_on_the_host() -> None:
    def train(device: str) -> list[torch.Tensor]:
        with zero.Init(config_dict_or_path=config(3), device=device):
            torch.manual_seed(0)
            model = Model()
        engine, *_ = zero.initialize(model=model, config=config(3), device=device)
        weight = model.head.weight
        with zero.GatheredParameters(weight, modifier_rank=0):
            if RANK == 0:
                weight.data.mul_(0.5)
        generator = torch.Generator().manual_seed(1)
        x, y = data(generator)
        engine.backward(loss_of(engine, x[RANK], y[RANK]))
        found = [zero.safe_get_full_grad(weight), zero.safe_get_full_fp32_param(weight)]
        engine.step()
        with zero.GatheredParameters(list(model.parameters())):
            found += [param.detach().clone() for param in model.parameters()]
            inside = loss_of(engine, x[RANK], y[RANK]).detach()
        outside = loss_of(engine, x[RANK], y[RANK]).detach()
        assert torch.equal(inside, outside)
        zero.safe_set_full_fp32_param(weight, torch.ones_like(found[1]))
        found += [loss_of(engine, x[RANK], y[RANK]).detach(), copy.deepcopy(weight).detach()]
        engine.load_state_dict(zero.full_state_dict(engine))
        found += [loss_of(engine, x[RANK], y[RANK]).detach()]
        engine.destroy()
        return found

    equal_bits(train)


def test_leaf_modules_have_the_bits_of_the_host() -> None:
    def train(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Model()
        zero.set_z3_leaf_modules(model, ["Block"])
        engine, *_ = zero.initialize(model=model, config=config(3), device=device)
        generator = torch.Generator().manual_seed(1)
        for _ in range(2):
            x, y = data(generator)
            engine.backward(loss_of(engine, x[RANK], y[RANK]))
            engine.step()
        values = list(zero.full_state_dict(engine).values())
        engine.destroy()
        return values

    equal_bits(train)


def test_initialize_keeps_the_device_of_init() -> None:
    with zero.Init(config_dict_or_path=config(3), device="emulated"):
        model = Model()
    with pytest.raises(meron.ArgumentError, match="was sharded for emulated"):
        zero.initialize(model=model, config=config(3), device="cpu")
    engine, *_ = zero.initialize(model=model, config=config(3))  # as it was built
    assert engine.sharding.context.device == "emulated"
    engine.destroy()
