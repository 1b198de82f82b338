# SPDX-License-Identifier: Apache-2.0
"""A config of DeepSpeed trains on the emulated device as on the host, with its shards there.

DeepSpeed too keeps shards on the device unless they are offloaded.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from layers import RANK, RANKS

from meron import zero
from meron.zero.config import parse
from meron.zero.tiers import against, plan_for

pytestmark = pytest.mark.ranks(1, 2, 4)
ADAMW = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}


@pytest.fixture(params=[False, True], ids=["own_devices", "shared_device"])
def shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if ranks share one device and exchange through the host."""
    if request.param:
        monkeypatch.setenv("MERON_EMULATED_DEVICE", "shared=1")
    return bool(request.param)


def config(stage: int, offload: str = "none", **others: Any) -> dict[str, Any]:
    table = {"stage": stage, "offload_optimizer": {"device": offload}}
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0.5,
        "zero_optimization": table,
        **ADAMW,
        **others,
    }


def train(chosen: dict[str, Any], device: str, **others: Any) -> tuple[list[float], Any]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(3)])
    engine = zero.initialize(model=model, config=chosen, device=device, **others)[0]
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(6):
        x = torch.randn(RANKS, 4, 32, generator=generator)[RANK]
        loss = engine(x).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    stats = engine.sharding.context.stats()
    state = {
        name: value.sum().item() for name, value in zero.full_state_dict(engine.module).items()
    }
    engine.destroy()
    return [*losses, *state.values()], stats


def test_each_stage_has_the_values_of_the_host(shared: bool) -> None:
    for stage in range(4):
        host, _ = train(config(stage), "cpu")
        rows, stats = train(config(stage), "emulated")
        # Both add micro-batches in f32, and sum replicas in rank order.
        assert host == rows, stage
        on_device = RANKS == 1 or not shared or stage in (0, 3)
        assert (stats.device_bytes > 0) == on_device, stage
        if on_device and not (shared and RANKS > 1):
            assert stats.device_down_bytes == 0


def test_offloaded_states_are_in_host_memory(shared: bool) -> None:
    host, _ = train(config(3), "cpu")
    rows, stats = train(config(3, "cpu"), "emulated")
    assert host == rows
    assert RANK > 0 or (stats.device_bytes > 0 and stats.optimizer_bytes > 0)


@pytest.mark.ranks(2, 4)
def test_groups_of_ranks_have_the_values_of_the_host(shared: bool) -> None:
    """Secondary partitions need devices that exchange. A group of all ranks has none."""
    quantized = {
        "zero_quantized_weights": True,
        "zero_quantized_gradients": True,
        "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 8},
    }
    hpz = {"zero_hpz_partition_size": 2}
    mics = {"mics_shard_size": 2, "zero_quantized_gradients": True}
    for keys in (hpz, hpz | quantized, mics):
        chosen = config(3)
        chosen["zero_optimization"] |= keys
        host, _ = train(chosen, "cpu")
        rows, stats = train(chosen, "emulated")
        assert host == rows, keys
        on_device = RANKS == 2 or not shared or keys is mics
        assert (stats.device_bytes > 0) == on_device, keys


def test_optimizer_of_torch_steps_on_the_host(shared: bool) -> None:
    chosen = config(3)
    del chosen["optimizer"]
    _, stats = train(chosen, "emulated", optimizer=lambda params: torch.optim.AdamW(params))
    assert stats.device_bytes == 0


def test_names_the_reason_for_shards_on_the_host() -> None:
    def why(**zero_optimization: Any) -> str:
        return against(parse({"zero_optimization": zero_optimization, **ADAMW}))

    assert why(stage=3) == ""
    assert why(stage=3, zero_hpz_partition_size=2) == ""
    assert why(stage=3, zero_quantized_weights=True, zero_quantized_gradients=True) == ""
    assert "quantized" in why(stage=3, zero_quantized_nontrainable_weights=True)
    assert "offload_param" in why(stage=3, offload_param={"device": "cpu"})
    assert "passed" in against(parse({**ADAMW}), given=True)
    amsgrad = {"optimizer": {"type": "Adam", "params": {"amsgrad": True}}}
    assert "amsgrad" in against(parse(amsgrad))
    assert "no optimizer" in against(parse({}))
    assert plan_for(parse(config(2)), "") == parse(config(2)).plan()
