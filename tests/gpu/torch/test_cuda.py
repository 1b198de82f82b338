# SPDX-License-Identifier: Apache-2.0
"""meron.torch on a CUDA device, one rank: what the emulated device cannot show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import meron
import meron.torch as mt
from meron import zero
from meron.torch.passes import units_below
from meron.torch.registry import contexts
from meron.torch.residency import device_gradients

WIDTH = 512
LAYER = WIDTH * (WIDTH + 1) * 4  # bytes


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    for context in contexts.values():
        context.close()


def stack(layers: int = 6, **options: Any) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, **options) for _ in range(layers)))


def batch(step: int = 0) -> torch.Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step)).cuda()


def losses(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4) -> list[float]:
    found = []
    for step in range(steps):
        loss = model(batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def expected(steps: int = 4) -> list[float]:
    plain = stack().cuda()
    return losses(plain, torch.optim.AdamW(plain.parameters(), lr=1e-3), steps)


@pytest.mark.parametrize("plan", ["zero0", "zero1", "zero2", "zero3"])
def test_it_learns_what_plain_torch_learns(plan: str) -> None:
    model = mt.shard(stack().cuda(), units=torch.nn.Linear, plan=plan)
    assert model[0].weight.device == torch.device("cuda", torch.cuda.current_device())
    assert losses(model, mt.AdamW(model, lr=1e-3)) == pytest.approx(expected(), rel=1e-4)


def test_memory_goes_back_after_use(monkeypatch: pytest.MonkeyPatch) -> None:
    # Layers as small as these have their gradients under way all at a time otherwise.
    monkeypatch.setattr(device_gradients, "MOST_BYTES", 0)
    model = stack().cuda()
    before = torch.cuda.memory_allocated()
    mt.shard(model, units=torch.nn.Linear, persist_elements=0, prefetch_elements=0)
    assert before - torch.cuda.memory_allocated() > 5 * LAYER
    optimizer = mt.AdamW(model, lr=1e-3)
    losses(model, optimizer, 2)
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    losses(model, optimizer, 2)
    assert torch.cuda.memory_allocated() == held
    # A layer, the gradients of those on their way to the host, and what comes next.
    assert torch.cuda.max_memory_allocated() - held < 6 * LAYER
    assert not any(unit.memory.storage.nbytes() for unit in units_below(model))


def test_on_streams_of_the_callers() -> None:
    model = mt.shard(stack(), units=torch.nn.Linear, device="cuda", persist_elements=10**9)
    optimizer = mt.AdamW(model, lr=1e-3)
    found = []
    for step in range(4):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found += [model(batch(step)).square().mean()]
            found[-1].backward()
        torch.cuda.current_stream().wait_stream(side)
        optimizer.step()
        with torch.no_grad():
            model(batch(step))  # units that stay, on another stream
    assert [loss.item() for loss in found] == pytest.approx(expected(), rel=1e-4)


def test_autocast_checkpointing_and_accumulation() -> None:
    from torch.utils.checkpoint import checkpoint_sequential

    model = mt.shard(stack(), units=torch.nn.Linear, device="cuda")
    optimizer = mt.AdamW(model, lr=1e-3)
    plain = stack().cuda()
    twin = torch.optim.AdamW(plain.parameters(), lr=1e-3)
    for step in range(3):
        for trained in (model, plain):
            for turn in range(2):
                with torch.autocast("cuda", torch.bfloat16):
                    x = batch(2 * step + turn).requires_grad_()
                    y = checkpoint_sequential(trained, 3, x, use_reentrant=False)
                (y.float().square().mean() / 2).backward()
        for each in (optimizer, twin):
            each.step()
            each.zero_grad()
    for param, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(mt.full_param(param), other.detach().cpu(), rtol=0, atol=1e-3)


def test_buffers_and_what_is_on_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    layers = [torch.nn.Linear(WIDTH, WIDTH, device="meta"), torch.nn.BatchNorm1d(WIDTH)]
    model = torch.nn.Sequential(*layers)
    mt.shard(model, units=torch.nn.Linear, device="cuda")
    assert all(buffer.is_cuda for buffer in model.buffers())
    model(batch()).square().mean().backward()
    assert not any(value.is_cuda for name, value in model.state_dict().items() if "0." in name)
    alone = mt.shard(stack(2, device="meta"))
    assert alone[0].weight.is_cuda


def test_zero_reads_and_changes_params_there() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_optimization": {"stage": 3},
        "fp16": {"enabled": True, "initial_scale_power": 8},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    }
    with zero.Init(config_dict_or_path=config, device="cuda"):
        model = stack(2)
    engine, *_ = zero.initialize(model=model, config=config)
    with zero.GatheredParameters(model[0].weight, modifier_rank=0):
        assert model[0].weight.is_cuda
        model[0].weight.data.fill_(0.25)
    assert (mt.full_param(model[0].weight) == 0.25).all()
    loss = engine(batch().half()).float().square().mean()
    engine.backward(loss)
    grad = zero.safe_get_full_grad(model[1].weight)
    assert grad is not None and not grad.is_cuda and grad.abs().sum() > 0
    engine.step()
    assert engine.device.type == "cuda" and engine.was_step_applied()
    engine.load_state_dict(zero.full_state_dict(engine))
    assert engine(batch().half()).is_cuda


def test_what_the_engine_takes_is_counted_by_torch() -> None:
    context = mt.context_for(meron.Plan.preset("zero3"), device="cuda")
    param = context.param("w", (1 << 20,))
    unit = context.unit("u", [param])
    before = torch.cuda.memory_allocated()
    with unit.gather():
        assert torch.cuda.memory_allocated() - before >= 4 << 20
    context.world.barrier()  # the trainer's allocator is called by the next call at the latest
    assert torch.cuda.memory_allocated() == before


THERE = {"tier": "device"}
TIERS = [{}, {"param": THERE}, {"param": THERE, "gradient": THERE, "optimizer": THERE}]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tiers", TIERS)
def test_what_is_saved_while_it_trains_goes_on(
    tmp_path: Path, tiers: dict[str, Any], dtype: torch.dtype
) -> None:
    plan = meron.Plan.parse({"preset": "zero3", **tiers})

    def build(device: str) -> tuple[torch.nn.Module, Any]:
        where = plan if device == "cuda" else meron.Plan.preset("zero3")
        made = mt.shard(stack(3, dtype=dtype), units=torch.nn.Linear, plan=where, device=device)
        return made, mt.AdamW(made, lr=1e-2)

    def train(model: torch.nn.Module, optimizer: Any, first: int, last: int) -> None:
        for step in range(first, last):
            model(batch(step).to(dtype)).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    def states(model: torch.nn.Module, optimizer: Any) -> list[torch.Tensor]:
        found = []
        for param in model.parameters():
            found.append(mt.full_param(param).cpu().clone())
            for key in ("exp_avg", "exp_avg_sq"):
                state = mt.full_optimizer_state(optimizer, param, key)
                assert state is not None
                found.append(state.cpu().clone())
        return found

    model, optimizer = build("cuda")
    train(model, optimizer, 0, 2)
    before = states(model, optimizer)
    saving = mt.save(tmp_path, "it", model, optimizer, step=2, background=True)
    train(model, optimizer, 2, 4)
    saving.wait()
    after = states(model, optimizer)
    again, resumed = build("cuda")
    train(again, resumed, 7, 8)
    mt.load(tmp_path, "it", again, resumed)
    assert all(map(torch.equal, states(again, resumed), before))
    train(again, resumed, 2, 4)
    assert all(map(torch.equal, states(again, resumed), after))
    on_host = build("cpu")
    mt.load(tmp_path, "it", *on_host)
    assert all(map(torch.equal, states(*on_host), before))


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(meron.ArgumentError, match=r"is on cuda:0.*emulated"):
        mt.shard(stack(1).cuda(), device="emulated")
    mixed = stack(2)
    mixed[1].cuda()
    with pytest.raises(meron.ArgumentError, match=r"Sequential.0.weight is on cpu"):
        mt.shard(mixed)
    model = mt.shard(stack(1), device="cuda")
    assert model.cuda() is model
    with pytest.raises(meron.StateError, match="moved"):
        model.cpu()


def test_rejects_a_forward_within_a_capture() -> None:
    model = mt.shard(stack(2), units=torch.nn.Linear, device="cuda")
    x = batch()
    expected = model(x)
    torch.cuda.synchronize()
    with (
        pytest.raises(meron.StateError, match="CUDA graph"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        model(x)
    assert torch.equal(model(x), expected)
