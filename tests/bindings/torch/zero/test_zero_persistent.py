# SPDX-License-Identifier: Apache-2.0
"""Small params at stage 3 are whole at any time: below stage3_param_persistence_threshold."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import meron
from meron import zero
from model import RANK, RANKS, config, on_device, whole

pytestmark = [pytest.mark.ranks(1, 2), on_device(2)]


class Model(nn.Module):
    """A scale and norms of few elements, and layers of more."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.frozen = nn.LayerNorm(8)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(self.two(self.norm(self.one(x)))) * self.scale


def settings(threshold: int = 20, optimizer: str = "SGD", **others: Any) -> dict[str, Any]:
    zero3 = {"stage": 3, "stage3_param_persistence_threshold": threshold}
    block = {"type": optimizer, "params": {"lr": 0.1}}
    return config(zero_optimization={**zero3, **others.pop("zero", {})}, optimizer=block, **others)


def made(seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return Model()


def inputs(step: int) -> torch.Tensor:
    return torch.randn(RANKS, 4, 8, generator=torch.Generator().manual_seed(step))


def train(engine: Any, step: int) -> None:
    dtype = engine.module.scale.dtype
    engine.backward(engine(inputs(step)[RANK].to(dtype)).float().square().mean())
    engine.step()


def train_plain(plain: nn.Module, optimizer: Any, step: int) -> None:
    optimizer.zero_grad()
    for part in inputs(step):
        (plain(part).square().mean() / RANKS).backward()
    optimizer.step()


def small(model: Model) -> dict[str, torch.Tensor]:
    found = dict(model.named_parameters())
    return {name: p for name, p in found.items() if p.ds_persist}  # type: ignore[attr-defined]


def assert_reads(model: Model, rank: int = 0) -> None:
    """One rank alone reads them; they have the values that all ranks gather."""
    here: dict[str, torch.Tensor] = {}
    if rank == RANK:
        for name, param in small(model).items():
            here[name] = param.detach().clone().cpu()
            assert param.ds_status is zero.ZeroParamStatus.AVAILABLE  # type: ignore
            assert "sharded" not in repr(param) and param.data_ptr() != 0
        assert model.scale.item() == float(model.scale) == float(here["scale"])
    for name, value in zero.full_state_dict(model).items():
        assert name not in here or torch.equal(value, here[name]), name


@pytest.mark.parametrize("client", [False, True])
def test_values_of_the_last_update_are_read_on_one_rank_alone(client: bool) -> None:
    model, plain = made(), made()
    own = settings()
    optimizer = None
    if client:
        own.pop("optimizer")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = zero.initialize(model=model, optimizer=optimizer, config=own)
    names = {
        "scale",
        *(f"{part}.{kind}" for part in ("norm", "frozen") for kind in ("weight", "bias")),
    }
    assert set(small(model)) == names
    twin = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(3):
        assert_reads(model, step % RANKS)
        train(engine, step)
        train_plain(plain, twin, step)
        expected = dict(plain.named_parameters())
        for name, param in small(model).items():
            torch.testing.assert_close(param.detach().cpu(), expected[name].detach())
    with pytest.raises(meron.StateError, match="cannot be read"):
        model.one.bias.sum()
    engine.destroy()
    assert_reads(model)


def test_limits_choose_the_params() -> None:
    model = made()
    assert not hasattr(model.scale, "ds_persist")
    for threshold, total, expected in (
        (0, 1000, 0),
        (1, 1000, 1),
        (16, 1000, 5),
        (16, 17, 3),  # in the order of the units
        (72, 1000, 9),
    ):
        more = {"stage3_model_persistence_threshold": total}
        engine, *_ = zero.initialize(model=model, config=settings(threshold, zero=more))
        assert len(small(model)) == expected, (threshold, total, set(small(model)))
        train(engine, 0)
        assert len(small(model)) == expected
        for param in model.parameters():
            if not param.ds_persist:  # type: ignore[attr-defined]
                with pytest.raises(meron.StateError, match="cannot be read"):
                    param.sum()
        engine.destroy()


def test_writes_count_on_all_ranks() -> None:
    model = made()
    engine, *_ = zero.initialize(model=model, config=settings())
    norm, frozen = whole(model.norm.weight), whole(model.frozen.bias)
    for turn in (1, 2):
        model.scale.data.fill_(2.0 * turn)
        assert model.scale.item() == 2.0 * turn == float(whole(model.scale))
        model.norm.weight.detach().mul_(2.0)
        assert torch.equal(model.norm.weight.detach().cpu(), norm * 2**turn)
        model.scale.data = torch.tensor(3.0 * turn, device=model.scale.device)
        assert model.scale.item() == 3.0 * turn == float(whole(model.scale))
        model.frozen.bias.data.add_(1.0)
        assert torch.equal(whole(model.frozen.bias), frozen + turn)
        train(engine, turn)
        norm, frozen = whole(model.norm.weight) / 2**turn, whole(model.frozen.bias) - turn
    assert_reads(model)
    both = [model.scale, model.frozen.bias]
    with zero.GatheredParameters(both, modifier_rank=RANKS - 1), torch.no_grad():
        model.scale.fill_(RANK + 2.0)
        model.frozen.bias.fill_(RANK + 3.0)
    assert (
        model.scale.item() == RANKS + 1.0 and float(model.frozen.bias.detach().max()) == RANKS + 2
    )
    dropped = pytest.warns(UserWarning, match="dropped")
    with dropped, zero.GatheredParameters(model.scale), torch.no_grad():
        model.scale.fill_(9.0)
    with pytest.raises(KeyError), zero.GatheredParameters(model.scale, modifier_rank=0):
        with torch.no_grad():
            model.scale.fill_(9.0)
        raise KeyError
    assert model.scale.item() == RANKS + 1.0
    zero.safe_set_full_fp32_param(model.scale, torch.tensor(4.0))
    assert model.scale.item() == 4.0 == float(whole(model.scale))
    state = zero.full_state_dict(model)
    engine.load_state_dict({**state, "scale": torch.tensor(5.0)})
    assert model.scale.item() == 5.0
    train(engine, 0)
    assert model.scale.item() != 5.0
    assert_reads(model)


def test_a_step_that_fails_or_is_skipped_leaves_the_values() -> None:
    for dtype in ("f32", "fp16", "bf16"):
        model = made()
        block = {} if dtype == "f32" else {dtype: {"enabled": True}}
        if dtype == "fp16":
            block["fp16"]["initial_scale_power"] = 4  # type: ignore[assignment]
        engine, *_ = zero.initialize(model=model, config=settings(**block))
        wanted = {"f32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
        assert model.scale.dtype == wanted
        train(engine, 0)
        before = model.scale.item()
        for _ in range(2):
            loss = engine(inputs(1)[RANK].to(wanted)).float().square().mean()
            engine.backward(loss * (math.inf if RANK == 0 else 1.0))
            if dtype == "f32":
                with pytest.raises(meron.errors.NonFiniteError):
                    engine.step()
            else:
                engine.step()
                assert engine.skipped_steps
            assert model.scale.item() == before
        with pytest.raises(KeyError, match="in a forward"):
            handle = model.two.register_forward_pre_hook(fail)
            engine(inputs(1)[RANK].to(wanted))
        handle.remove()
        assert_reads(model)
        train(engine, 2)
        assert model.scale.item() != before
        assert_reads(model)
        engine.destroy()


def fail(*_arguments: Any) -> None:
    raise KeyError("in a forward")


def test_loads_and_offload_keep_them_readable(tmp_path: Path) -> None:
    nvme = {"device": "nvme", "nvme_path": str(tmp_path)}
    for offload in (
        {},
        {"offload_optimizer": nvme},
        {"offload_optimizer": nvme, "offload_param": nvme},
    ):
        model = made()
        engine, *_ = zero.initialize(model=model, config=settings(optimizer="AdamW", zero=offload))
        assert_reads(model)
        train(engine, 0)
        saved = model.scale.item()
        engine.save_checkpoint(tmp_path / "saved")
        train(engine, 1)
        assert model.scale.item() != saved
        engine.load_checkpoint(tmp_path / "saved")
        assert model.scale.item() == saved
        assert_reads(model)
        copied = copy.deepcopy(model.norm.weight)
        assert torch.equal(copied.detach().cpu(), model.norm.weight.detach().cpu())
        engine.destroy()


def test_an_update_gathers_them_in_place_of_the_next_pass() -> None:
    counts = []
    for threshold in (0, 20, 100):
        model = made()
        engine, *_ = zero.initialize(model=model, config=settings(threshold))
        for step in range(2):
            train(engine, step)
        before = engine.sharding.context.stats().operations
        for step in range(2):
            train(engine, step)
        counts.append(engine.sharding.context.stats().operations - before)
        engine.destroy()
    assert counts[2] <= counts[1] <= counts[0], counts
