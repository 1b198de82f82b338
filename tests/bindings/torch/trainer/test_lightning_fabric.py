# SPDX-License-Identifier: Apache-2.0
"""Fabric on Meron beside Fabric with DDP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fabric_runs import distance, fabric_of, run
from modules import RANK, layers, loader, mse

import meron
from meron.lightning import MeronFabricPrecision, MeronFabricStrategy

pytestmark = pytest.mark.ranks(2)


def test_fabric_trains_as_ddp() -> None:
    for clip, most in ((None, 0.0), ({"max_norm": 0.05}, 1e-6), ({"clip_val": 0.01}, 0.0)):
        plain = run("ddp", clip=clip)
        for stage in (1, 2, 3):
            ours = run(f"meron_stage_{stage}", clip=clip)
            assert distance(ours[1], plain[1]) <= most
            assert ours[0] == plain[0] or most > 0


def test_fabric_engine_counts_micro_batches() -> None:
    config = {"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 2}
    _, counted = run(MeronFabricStrategy(config=config))
    _, by_hand = run("meron_stage_2", accumulate=2)
    assert distance(counted, by_hand) == 0
    assert distance(run("ddp", accumulate=2)[1], by_hand) < 1e-6


def test_fabric_trains_in_16_bits() -> None:
    for precision in ("bf16-mixed", "16-true", MeronFabricPrecision("16-mixed")):
        plugin = isinstance(precision, MeronFabricPrecision)
        strategy = MeronFabricStrategy(stage=3, precision=precision) if plugin else "meron_stage_3"
        losses, _ = run(strategy, precision=None if plugin else precision)
        assert losses[-1] < losses[0]
    with pytest.raises(ValueError, match="64-true"):
        fabric_of("meron", "64-true")


def test_fabric_resumes_at_another_stage(tmp_path: Path) -> None:
    plain = run("ddp")
    run("meron_stage_3", steps=3, save=tmp_path / "fabric")
    losses, values = run("meron_stage_1", resume=tmp_path / "fabric")
    assert losses == plain[0][3:] and distance(values, plain[1]) == 0


def test_fabric_resumes_from_a_file_of_ddp(tmp_path: Path) -> None:
    run("ddp", steps=3, save=tmp_path / "fabric.pt")
    plain = run("ddp", resume=tmp_path / "fabric.pt")
    for stage in (1, 3):
        losses, values = run(f"meron_stage_{stage}", resume=tmp_path / "fabric.pt")
        assert losses == plain[0] and distance(values, plain[1]) == 0


def test_fabric_sets_up_two_models(tmp_path: Path) -> None:
    fabric = fabric_of("meron_stage_2")
    teacher, student = layers(), layers()
    teacher = fabric.setup(teacher)
    student, optimizer = fabric.setup(student, torch.optim.SGD(student.parameters(), lr=0.1))
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(RANK))
    with torch.no_grad():
        wanted = teacher(x) + 1
    first = mse(student(x), wanted)
    fabric.backward(first)
    optimizer.step()
    assert mse(student(x), wanted) < first
    state = {"teacher": teacher, "student": student}
    with pytest.raises(ValueError, match="several models"):
        fabric.save(tmp_path / "two", state)
    fabric.strategy.teardown()


def test_fabric_steps_several_optimizers() -> None:
    """In f32 and under a fixed loss scale. A dynamic scale changes between their steps."""

    def trained(strategy: Any, precision: Any) -> dict[str, torch.Tensor]:
        fabric = fabric_of(strategy, precision)
        model = layers()
        halves = (model[0], model[2:])
        made = [torch.optim.SGD(half.parameters(), lr=0.1) for half in halves]
        model, *optimizers = fabric.setup(model, *made)
        for x, y in fabric.setup_dataloaders(loader()):
            fabric.backward(mse(model(x).squeeze(1), y))
            for optimizer in optimizers:
                optimizer.step()
            for optimizer in optimizers:
                optimizer.zero_grad()
        values = {name: value.float().clone() for name, value in model.state_dict().items()}
        fabric.strategy.teardown()
        return values

    plain = trained("meron_stage_2", None)
    assert distance(trained("ddp", None), plain) == 0
    fixed = trained(MeronFabricStrategy(stage=2, loss_scale=16.0), "16-true")
    assert distance(fixed, plain) < 1e-2
    with pytest.raises(meron.ArgumentError, match="loss_scale"):
        trained("meron_stage_2", "16-true")
    counted = {"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 2}
    counted = MeronFabricStrategy(config=counted)
    with pytest.raises(meron.ArgumentError, match="gradient_accumulation_steps"):
        trained(counted, None)


def test_fabric_resolves_the_config() -> None:
    fabric = fabric_of(MeronFabricStrategy(stage=1), "bf16-true")
    config = fabric.strategy.config
    assert config["bf16"] == {"enabled": True} and config["train_micro_batch_size_per_gpu"] == 1
    fabric.setup(layers())
    fabric.strategy.teardown()


def test_fabric_rejects_misuse(tmp_path: Path) -> None:
    run("meron_stage_3", steps=3, save=tmp_path / "fabric")
    fabric = fabric_of("meron_stage_1")
    with pytest.raises(RuntimeError, match="set up"):
        fabric.strategy.backward(torch.ones(()), None)
    with pytest.raises(ValueError, match="Could not find a model"):
        fabric.save(tmp_path / "x", {"a": 1})
    with pytest.raises(ValueError, match="with at least a model"):
        fabric.load(tmp_path / "fabric", {})
    with pytest.raises(FileNotFoundError, match="nothing"):
        fabric.load(tmp_path / "nothing", {"a": 1})
    with pytest.raises(NotImplementedError, match="set up together"):
        fabric.strategy.setup_optimizer(None)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        MeronFabricStrategy(config="/none.json")
    model = fabric.setup(layers())
    state = {"model": model, "absent": 1}
    with pytest.raises(KeyError, match="'absent'"):
        fabric.load(tmp_path / "fabric", state)
    fabric.save(tmp_path / "raw", {"model": model})
    with pytest.raises(ValueError, match="load_raw"):
        fabric.load_raw(tmp_path / "raw", model)
    save = fabric.strategy.save_checkpoint
    with pytest.raises(TypeError, match="filter"):
        save(tmp_path / "x", {}, filter={})
    with pytest.raises(TypeError, match="storage_options"):
        save(tmp_path / "x", {}, storage_options={})
    fabric.strategy.teardown()
