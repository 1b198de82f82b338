# SPDX-License-Identifier: Apache-2.0
"""States and params on a drive: the same bits as in memory, and misuse."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import meron
from meron import zero
from meron.zero.units import units_of
from model import RANK, batches_of, config, engine_step, on_device, twins

pytestmark = [pytest.mark.ranks(1, 3), on_device(1, MERON_ZERO_TIERS="host")]

# On a drive; the folder for temporary files may be in memory. Tests leave nothing behind.
DRIVE = str(Path(__file__).parent)
STATES = ("exp_avg", "exp_avg_sq")


def settings(stage: int, device: str | None, **keys: Any) -> dict[str, Any]:
    zero_block: dict[str, Any] = {"stage": stage}
    if device is not None:
        zero_block["offload_optimizer"] = {"device": device, "nvme_path": DRIVE, "buffer_count": 3}
    block = {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}}
    return config(zero_optimization=zero_block, optimizer=block, **keys)


def trained(given: dict[str, Any], steps: int = 3) -> Any:
    model, _ = twins()
    engine = zero.initialize(model=model, config=given)[0]
    for batch in batches_of(steps, 7):
        engine_step(engine, [batch])
    return engine


def values_of(engine: Any) -> list[torch.Tensor]:
    """Returns weights and states, unsharded."""
    found = []
    for param in engine.module.parameters():
        found.append(zero.safe_get_full_fp32_param(param))
        found += [zero.safe_get_full_optimizer_state(param, key) for key in STATES]
    return found


def test_offload_changes_no_bit() -> None:
    for stage in (1, 2, 3):
        for keys in ({}, {"bf16": {"enabled": True}}):
            expected = values_of(trained(settings(stage, None, **keys)))
            for device in ("cpu", "nvme"):
                found = values_of(trained(settings(stage, device, **keys)))
                assert len(found) == len(expected)
                assert all(torch.equal(a, b) for a, b in zip(found, expected))


def with_params(given: dict[str, Any], **keys: Any) -> dict[str, Any]:
    block = {"device": "nvme", "nvme_path": DRIVE, **keys}
    given["zero_optimization"]["offload_param"] = block
    return given


def test_params_on_nvme_change_no_bit() -> None:
    for keys in ({}, {"bf16": {"enabled": True}}):
        expected = values_of(trained(settings(3, None, **keys)))
        for device in (None, "cpu", "nvme"):
            for block in ({}, {"max_in_cpu": 2000, "buffer_count": 1}, {"buffer_size": 10**6}):
                given = with_params(settings(3, device, **keys), **block)
                found = values_of(trained(given))
                assert all(torch.equal(a, b) for a, b in zip(found, expected)), (keys, block)


def test_params_on_nvme_take_no_memory() -> None:
    memory = trained(settings(3, "nvme", bf16={"enabled": True}))
    given = with_params(settings(3, "nvme", bf16={"enabled": True}))
    drive = trained(given)
    context = units_of(memory.module)[0].sharding.context
    in_memory = context.stats()
    on_drive = units_of(drive.module)[0].sharding.context.stats()
    assert on_drive.param_bytes == 0
    if context.rank == 0:  # later ranks may have no shard of a small model
        assert in_memory.param_bytes > 0
        assert on_drive.nvme_bytes > in_memory.nvme_bytes


def test_init_puts_params_on_nvme() -> None:
    given = with_params(settings(3, "nvme"))
    model, _ = twins()
    with zero.Init(remote_device="nvme", config_dict_or_path=given):
        sharded = type(model)()
    engine = zero.initialize(model=sharded, config=given)[0]
    for batch in batches_of(2, 7):
        engine_step(engine, [batch])
    with pytest.raises(meron.ArgumentError, match="names no folder for params"):
        zero.Init(remote_device="nvme", config_dict_or_path=settings(3, "nvme"))


def test_names_the_buffer_size_that_params_need() -> None:
    units = units_of(trained(settings(3, None)).module)
    ranks = units[0].sharding.context.world_size
    needed = -(-max(sum(handle.size for handle in unit.handles) for unit in units) // ranks)
    trained(with_params(settings(3, None), buffer_size=needed))
    with pytest.raises(meron.ArgumentError, match=re.escape(str(needed))):
        trained(with_params(settings(3, None), buffer_size=needed - 1))


def test_rejects_params_on_nvme_below_stage_3() -> None:
    with pytest.raises(meron.ArgumentError, match="below stage 3"):
        trained(with_params(settings(2, None)))
    other = with_params(settings(3, "nvme"))
    other["zero_optimization"]["offload_param"]["nvme_path"] = "/"
    with pytest.raises(meron.ArgumentError, match="one folder"):
        trained(other)


def test_each_rule_keeps_its_states_on_nvme() -> None:
    for kind, params, key in (
        ("Adam", {"adam_w_mode": False}, "exp_avg_sq"),
        ("Adagrad", {"lr": 0.1}, "sum"),
        ("Lion", {}, "exp_avg"),
        ("SGD", {"lr": 0.1, "momentum": 0.9}, "momentum_buffer"),
    ):
        found = []
        for device in (None, "nvme"):
            model, _ = twins()
            given = settings(3, device, bf16={"enabled": True})
            given["optimizer"] = {"type": kind, "params": params}
            wide = [param for param in model.parameters() if param.dim() > 1]
            rest = [param for param in model.parameters() if param.dim() <= 1]
            engine = zero.initialize(
                model=model,
                model_parameters=[{"params": wide, "lr": 0.01}, {"params": rest}],
                config=given,
            )[0]
            drawn = batches_of(6, 7)
            for batch in drawn[:3]:
                engine_step(engine, [batch])
            # Loading the engine's own states reads them from the drive and writes them there.
            engine.optimizer.load_state_dict(engine.optimizer.state_dict())
            for batch in drawn[3:]:
                engine_step(engine, [batch])
            on_drive = engine.optimizer.engine.nvme_bytes
            if RANK == 0:  # later ranks may have no shard of a small model
                assert (on_drive > 0) == (device == "nvme"), (kind, on_drive)
            params_now = list(engine.module.parameters())
            found.append([zero.safe_get_full_fp32_param(param) for param in params_now])
            found[-1] += [zero.safe_get_full_optimizer_state(param, key) for param in params_now]
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)), kind


def test_offloads_and_reloads_states() -> None:
    expected = values_of(trained(settings(3, None), steps=4))
    engine = trained(settings(3, None), steps=2)
    context = units_of(engine.module)[0].sharding.context
    before = context.stats().optimizer_bytes
    engine.offload_states(device="cpu")  # moves nothing
    engine.offload_states(include=["lp_params"], device="nvme")
    assert context.stats().optimizer_bytes == before
    engine.reload_states()
    with pytest.raises(meron.ArgumentError, match="folder"):
        engine.offload_states(device="nvme")
    with pytest.raises(meron.ArgumentError, match="kinds of states are"):
        engine.offload_states(include=["weights"], device="nvme")
    with pytest.raises(meron.ArgumentError, match="cpu and nvme"):
        engine.offload_states(device="cuda")
    kinds = [zero.OffloadStateTypeEnum.optim_states]
    engine.offload_states(include=kinds, device=zero.OffloadDeviceEnum.nvme, nvme_path=DRIVE)
    assert context.stats().optimizer_bytes < before or before == 0
    third, fourth = batches_of(4, 7)[2:]
    with torch.no_grad():
        engine(third[0])
    with pytest.raises(meron.StateError, match="offloaded"):
        engine_step(engine, [third])
    engine.optimizer.zero_grad()
    engine.reload_states()
    engine = trained(settings(3, None), steps=2)
    for batch in (third, fourth):
        engine.offload_states(device="nvme", nvme_path=DRIVE)
        engine.reload_states()
        engine_step(engine, [batch])
    found = values_of(engine)
    assert all(torch.equal(a, b) for a, b in zip(found, expected))


def test_chooses_the_ratio_by_measured_rates(tmp_path: Path) -> None:
    folder = Path(DRIVE) / f"measured-{tmp_path.parent.name}-{tmp_path.name}"
    world = units_of(trained(settings(1, None)).module)[0].sharding.context.world
    given = settings(1, "nvme")
    given["zero_optimization"]["offload_optimizer"].update(ratio="auto", nvme_path=str(folder))
    with pytest.raises(meron.ArgumentError, match="meron io-bench"):
        trained(given)
    world.barrier()
    rates = {"read": 1, "write": 1, "both": 3 * 10**9, "update": 10**9}
    nvme = {"path": "elsewhere", "block": 8192, "depth": 4, "threads": 1, "rates": rates}
    try:
        if world.rank == 0:
            folder.mkdir()
            (folder / "meron-nvme.json").write_text(json.dumps({"nvme": nvme}))
        world.barrier()
        engine = trained(given)
        world.barrier()
    finally:
        if world.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
    plan = json.loads(units_of(engine.module)[0].sharding.context.plan.json())
    assert plan["optimizer"]["fraction"] == 0.25 and plan["nvme"]["block"] == 8192
    expected = values_of(trained(settings(1, None)))
    assert all(torch.equal(a, b) for a, b in zip(values_of(engine), expected))


def test_rejects_torch_optimizers_with_params_on_nvme() -> None:
    model, _ = twins()
    own = torch.optim.AdamW(model.parameters())
    with pytest.raises(meron.UnsupportedError, match="in memory"):
        zero.initialize(model=model, optimizer=own, config=with_params(settings(3, None)))


def test_reads_and_writes_states_on_nvme() -> None:
    engine = trained(settings(3, "nvme", bf16={"enabled": True}))
    param = engine.module.blocks[0].up.weight
    wanted = torch.arange(param.numel(), dtype=torch.float32).view(param.shape) / 64
    for key in STATES:
        zero.safe_set_full_optimizer_state(param, wanted, key)
        assert torch.equal(zero.safe_get_full_optimizer_state(param, key), wanted)
    exact = wanted + 2.0**-16  # only f32 values can hold these
    zero.safe_set_full_fp32_param(param, exact)
    assert torch.equal(zero.safe_get_full_fp32_param(param), exact)


def test_f32_values_on_nvme_outlive_an_engine() -> None:
    engine = trained(settings(3, "nvme", bf16={"enabled": True}))
    param = engine.module.embed.weight
    before = zero.safe_get_full_fp32_param(param)
    engine.destroy()
    given = settings(3, "nvme", bf16={"enabled": True})
    again = zero.initialize(model=engine.module, config=given)[0]
    assert again.optimizer is not engine.optimizer
    assert torch.equal(before, zero.safe_get_full_fp32_param(param))


@pytest.mark.parametrize("stage", [1, 3])
def test_makes_a_folder_that_is_absent(stage: int) -> None:
    made = Path(DRIVE) / f"made_{stage}"
    given = settings(stage, "nvme")
    given["zero_optimization"]["offload_optimizer"]["nvme_path"] = str(made / "within")
    if stage == 3:
        given = with_params(given, nvme_path=str(made / "within"))
    engine = trained(given)
    assert (made / "within").is_dir()
    engine.sharding.context.world.barrier()
    engine.destroy()
    if RANK == 0:
        shutil.rmtree(made)


def test_names_a_folder_that_cannot_be_made() -> None:
    nowhere = settings(3, "nvme")
    path = f"{Path(__file__)}/nowhere"
    nowhere["zero_optimization"]["offload_optimizer"]["nvme_path"] = path
    with pytest.raises(meron.Error, match="nowhere"):
        trained(nowhere)


def test_rejects_nvme_states_of_torch_optimizers() -> None:
    model, _ = twins()
    own = torch.optim.AdamW(model.parameters())
    with pytest.raises(meron.UnsupportedError, match="torch's own"):
        zero.initialize(model=model, optimizer=own, config=settings(3, "nvme"))


@pytest.mark.parametrize("block", ["offload_optimizer", "offload_param"])
@pytest.mark.parametrize("device", ["none", "cpu"])
def test_states_move_to_the_folder_of_a_config_that_offloads_nothing(
    block: str, device: str, tmp_path: Path
) -> None:
    chosen = settings(3, None)
    folder = tmp_path / "new" / "folder"
    chosen["zero_optimization"][block] = {"device": device, "nvme_path": str(folder)}
    engine = trained(chosen, steps=2)
    context = units_of(engine.module)[0].sharding.context
    before = context.stats().optimizer_bytes
    for _ in range(2):
        engine.offload_states(device="nvme")
        assert context.stats().optimizer_bytes < before or before == 0
        engine.reload_states()
        assert context.stats().optimizer_bytes == before
    assert folder.is_dir()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_offload_states_accepts_an_optimizer_of_torch(stage: int) -> None:
    """Its states reside on the host, where DeepSpeed's default device moves them."""
    for make in (torch.optim.AdamW, zero.ops.FusedAdam):
        model, _ = twins()
        engine = zero.initialize(
            model=model, optimizer=make(model.parameters(), lr=0.1), config=config(stage)
        )[0]
        batches = batches_of(2)
        engine_step(engine, batches[:1])
        before = zero.full_state_dict(engine)
        engine.offload_states()
        assert all(
            torch.equal(value, before[name]) for name, value in zero.full_state_dict(engine).items()
        )
        engine.reload_states()
        engine_step(engine, batches[1:])
        with pytest.raises(meron.UnsupportedError, match="torch's own, and cannot move to a drive"):
            engine.offload_states(device="nvme", nvme_path=DRIVE)
        engine.destroy()
    none = {key: value for key, value in config(stage).items() if key != "optimizer"}
    engine = zero.initialize(model=twins()[0], config=none)[0]
    engine.offload_states()
    engine.reload_states()
