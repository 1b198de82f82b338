# SPDX-License-Identifier: Apache-2.0
"""MiCS, hpZ and ZeRO++ on four ranks: two groups of two."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from meron.torch.sharding import placed
from meron.zero import comm
from model import (
    RANK,
    RANKS,
    Model,
    assert_equal_weights,
    config,
    data,
    engine_step,
    loss_of,
    plain_step,
    train,
    twins,
)

pytestmark = pytest.mark.ranks(4)

MICS = {"mics_shard_size": 2}
HPZ = {"zero_hpz_partition_size": 2}
CODED = {**HPZ, "zero_quantized_weights": True, "zero_quantized_gradients": True}
EXACT = (MICS, {"mics_shard_size": 1}, HPZ, {"zero_quantized_weights": True})


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Ignores the warning that one node saves nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "zero_")
        yield


def engine_of(model: nn.Module, keys: dict[str, Any], **others: Any) -> Any:
    zero_keys = {"stage": 3, **keys}
    with quiet():
        return zero.initialize(model=model, config=config(zero_optimization=zero_keys, **others))[0]


def everywhere(value: torch.Tensor) -> list[torch.Tensor]:
    """Returns the tensor of each rank."""
    rows = torch.zeros(RANKS, value.numel())
    rows[RANK] = value.detach().flatten()
    comm.all_reduce(rows)
    return list(rows)


def test_trains_as_plain_torch_does() -> None:
    for keys in EXACT:
        for optimizer in ("SGD", "AdamW"):
            model, plain = twins()
            block = {"type": optimizer, "params": {"lr": 0.01, "weight_decay": 0.0}}
            engine = engine_of(
                model,
                keys,
                optimizer=block,
                gradient_accumulation_steps=2,
                gradient_clipping=0.5,
            )
            others = torch.optim.SGD(plain.parameters(), lr=0.01)
            if optimizer == "AdamW":
                others = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
            train(engine, plain, others, 4, clip=0.5)
            assert_equal_weights(model, plain, 1e-5)
            engine.destroy()


def test_norms_count_each_element_once() -> None:
    x, y = data(torch.Generator().manual_seed(3))
    _, plain = twins()
    plain_step(plain, torch.optim.SGD(plain.parameters(), lr=0.1), [(x, y)])
    grads = [param.grad for param in plain.parameters()]
    for norm_type in (2.0, 1.0, float("inf")):
        norms = torch.stack([torch.linalg.vector_norm(grad, norm_type) for grad in grads])
        expected = float(torch.linalg.vector_norm(norms, norm_type))
        for plan in ("mics(2)", "mics(1)", "hpz(2)"):
            _, own = twins()
            mt.shard(own, plan=plan)
            loss_of(own, x[RANK], y[RANK]).backward()
            norm = float(mt.clip_grad_norm_(own, 1e9, norm_type))
            assert abs(norm - expected) <= 1e-5 * expected, (plan, norm_type)
            for param, grad in zip(own.parameters(), grads, strict=True):
                whole = mt.full_grad(param)
                assert whole is not None and torch.allclose(whole, grad, atol=1e-7)


def test_reads_and_writes_full_optimizer_states() -> None:
    for keys in (MICS, HPZ, CODED):
        model, _ = twins()
        block = {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": keys is not MICS}}
        engine = engine_of(model, keys, optimizer=block)
        generator = torch.Generator().manual_seed(1)
        for _ in range(2):
            engine_step(engine, [data(generator)])
        for param in model.parameters():
            moment = zero.safe_get_full_optimizer_state(param, "exp_avg")
            local = zero.safe_get_local_optimizer_state(param, "exp_avg")
            assert moment is not None and float(moment.abs().max()) < 1
            unit, i = placed(param)
            shard_range = unit.shard_range(i)
            assert torch.equal(moment.flatten()[shard_range.start : shard_range.stop], local)
            for other in everywhere(moment):
                assert torch.equal(other, moment.flatten())
            fresh = torch.arange(param.numel()).view(param.shape).float()
            zero.safe_set_full_optimizer_state(param, fresh, "exp_avg")
            again = zero.safe_get_full_optimizer_state(param, "exp_avg")
            assert again is not None and torch.equal(again, fresh)
        engine.destroy()


def test_owners_keep_exact_values() -> None:
    for torch_adam in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            model, plain = twins()
            block = {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": torch_adam}}
            engine = engine_of(
                model, CODED, optimizer=block, bf16={"enabled": dtype is torch.bfloat16}
            )
            for param, expected in zip(model.parameters(), plain.parameters(), strict=True):
                exact = expected.detach()
                seen = mt.full_param(param)
                assert seen.dtype == dtype
                # A block of the codec may span params of a unit.
                largest = max(float(exact.abs().max()), 1.0)
                assert float((seen - exact).abs().max()) <= largest / 100
                master = zero.safe_get_full_fp32_param(param)
                assert master is not None and torch.equal(master, exact)
                unit, i = placed(param)
                shard_range = unit.shard_range(i)
                part = exact.flatten()[shard_range.start : shard_range.stop]
                assert torch.equal(mt.local_param(param), part.to(dtype))
                own = zero.safe_get_local_fp32_param(param)
                assert own is not None and torch.equal(own, part)
            state = zero.full_state_dict(model)
            for name, expected in plain.state_dict().items():
                assert torch.equal(state[name], expected.to(dtype)), name
            # Reads change nothing, not even f32 values of 16-bit params.
            for param, expected in zip(model.parameters(), plain.parameters(), strict=True):
                master = zero.safe_get_full_fp32_param(param)
                assert master is not None and torch.equal(master, expected)
            engine.destroy()


def test_a_write_changes_no_other_value() -> None:
    model, plain = twins()
    engine = engine_of(model, CODED)
    weight = model.blocks[0].up.weight
    with zero.GatheredParameters(weight, modifier_rank=1):
        if RANK == 1:
            weight.data[0, 0] = 7.0
    with torch.no_grad():
        plain.blocks[0].up.weight[0, 0] = 7.0
    assert_equal_weights(model, plain, 0.0)
    with zero.GatheredParameters(model.parameters(), modifier_rank=0):
        pass
    assert_equal_weights(model, plain, 0.0)
    value = torch.randn(weight.shape, generator=torch.Generator().manual_seed(5))
    zero.safe_set_full_fp32_param(weight, value)
    whole = zero.safe_get_full_fp32_param(weight)
    assert whole is not None and torch.equal(whole, value)
    engine.destroy()


def test_sanity_checks_detect_changes_under_a_codec() -> None:
    model, _ = twins()
    engine = engine_of(model, {**CODED, "enable_sanity_checks": True})
    weight = model.blocks[0].up.weight
    with zero.GatheredParameters(weight):
        pass
    with (
        pytest.raises(meron.StateError, match="without modifier_rank"),
        zero.GatheredParameters(weight),
    ):
        weight.data[0, 0] = 7.0 + RANK
    engine.destroy()


class Frozen(Model):
    """Half of its params are frozen."""

    def __init__(self) -> None:
        super().__init__(size=64)
        for param in self.blocks[0].parameters():
            param.requires_grad_(False)
        self.blocks[1].up.bias.requires_grad_(False)


def test_keeps_values_of_frozen_params() -> None:
    for keys in ({}, MICS, HPZ):
        for torch_adam in (False, True):
            torch.manual_seed(0)
            model, plain = Frozen(), Frozen()
            plain.load_state_dict(zero.full_state_dict(model))
            block = {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": torch_adam}}
            bf16 = {"enabled": torch_adam}
            engine = engine_of(
                model,
                {**keys, "zero_quantized_nontrainable_weights": True},
                optimizer=block,
                bf16=bf16,
            )
            frozen = [param for param in model.parameters() if not param.requires_grad]
            before = [mt.full_param(param) for param in frozen]
            values = [param.detach() for param in plain.parameters() if not param.requires_grad]
            for seen, exact in zip(before, values, strict=True):
                assert float((seen - exact).abs().max()) <= float(exact.abs().max()) / 120 + 1e-9
            generator = torch.Generator().manual_seed(1)
            for _ in range(6):
                engine_step(engine, [data(generator)])
            for param, value in zip(frozen, before, strict=True):
                assert torch.equal(mt.full_param(param), value)
            engine.destroy()


def test_an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    for keys in (MICS, HPZ, CODED):
        for torch_adam in (False, True):
            model, _ = twins()
            block = {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": torch_adam}}
            fp16 = {"enabled": True, "initial_scale_power": 4, "hysteresis": 1}
            engine = engine_of(model, keys, optimizer=block, fp16=fp16)
            before = [zero.safe_get_full_fp32_param(param) for param in model.parameters()]
            x, y = data(torch.Generator().manual_seed(1))
            factor = float("inf") if RANK == 3 else 1.0
            engine.backward(loss_of(engine, x[RANK], y[RANK]) * factor)
            engine.step()
            assert engine.skipped_steps == 1 and engine.cur_scale == 8.0
            for param, value in zip(model.parameters(), before, strict=True):
                now = zero.safe_get_full_fp32_param(param)
                assert now is not None and value is not None and torch.equal(now, value)
            engine_step(engine, [(x, y)])
            assert engine.skipped_steps == 1 and engine.was_step_applied()
            norm = engine.get_global_grad_norm()
            assert norm is not None and 0 < norm < 100
            assert all(torch.isfinite(mt.full_param(param)).all() for param in model.parameters())
            engine.destroy()


def test_no_sync_defers_the_reduction() -> None:
    for keys in (MICS, HPZ):
        model, plain = twins()
        engine = engine_of(model, keys, managed_gradient_accumulation=False)
        generator = torch.Generator().manual_seed(1)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        for _ in range(3):
            first, second = data(generator), data(generator)
            with engine.no_sync():
                (loss_of(engine, first[0][RANK], first[1][RANK]) / 2).backward()
            (loss_of(engine, second[0][RANK], second[1][RANK]) / 2).backward()
            engine.step()
            plain_step(plain, optimizer, [first, second])
        assert_equal_weights(model, plain, 1e-6)
        engine.destroy()


def test_mics_init_shards_within_groups() -> None:
    keys = config(zero_optimization={"stage": 3, **MICS})
    torch.manual_seed(0)
    with zero.MiCS_Init(config_dict_or_path=keys):
        model = Model()
    torch.manual_seed(0)
    plain = Model()
    engine = zero.initialize(model=model, config=keys)[0]
    assert engine.sharding.context.plan == meron.Plan.preset("mics(2)")
    train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 3)
    assert_equal_weights(model, plain, 1e-6)
    handles = [handle for unit in engine.units for handle in unit.handles]
    held = everywhere(torch.tensor(float(sum(len(handle.shard_range) for handle in handles))))
    assert sum(map(float, held)) == 2 * sum(handle.size for handle in handles)  # once per group
    engine.destroy()


def test_warns_once_that_one_node_saves_nothing() -> None:
    model, _ = twins()
    keys = {"stage": 3, "zero_hpz_partition_size": 4}
    for expected in (RANK == 0, False):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            engine = zero.initialize(model=model, config=config(zero_optimization=keys))[0]
        texts = [str(warning.message) for warning in told]
        assert any("saves nothing here" in text for text in texts) == expected
        engine.destroy()


def test_rejects_group_sizes_that_do_not_divide_the_ranks() -> None:
    model, _ = twins()
    for key in ("mics_shard_size", "zero_hpz_partition_size"):
        with pytest.raises(meron.ArgumentError, match=f"{key} 3") as caught:
            engine_of(model, {key: 3})
        assert "does not divide the 4 ranks" in str(caught.value)
    engine_of(model, MICS).destroy()
