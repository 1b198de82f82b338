# SPDX-License-Identifier: Apache-2.0
"""Names of DeepSpeed's engine and optimizer beside training, and what they return."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import meron
from meron import zero
from model import RANK, RANKS


def made(stage: int = 1, client: Any = None, model: Any = None, **options: Any) -> Any:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": stage},
        **options,
    }
    if client is None:
        settings.setdefault("optimizer", {"type": "Adam", "params": {"lr": 0.1}})
    model = torch.nn.Linear(2, 1, bias=False) if model is None else model
    return zero.initialize(model=model, config=settings, optimizer=client)[0]


def test_values_of_the_config_have_deepspeeds_defaults() -> None:
    engine = made(1)
    expected: dict[str, Any] = {
        "steps_per_print": None,
        "wall_clock_breakdown": False,
        "memory_breakdown": False,
        "dump_state": False,
        "log_level": None,
        "managed_gradient_accumulation": True,
        "optimizer_name": "adam",
        "optimizer_params": {"lr": 0.1},
        "scheduler_name": None,
        "scheduler_params": None,
        "get_mom": [(0.9, 0.999)],
        "get_type": [0.0],
        "zero_optimization_partition_gradients": False,
        "is_first_weights_partition_group": False,
        "zero_cpu_offload": False,
        "zero_use_cpu_optimizer": False,
        "zero_offload_optimizer": None,
        "zero_offload_param": None,
        "zero_compute_grad_norm": True,
        "zero_parameter_alignment": False,
        "zero_reduce_bucket_size": 500_000_000,
        "zero_prefetch_bucket_size": 50_000_000,
        "zero_overlap_comm": False,
        "postscale_gradients": True,
        "get_data_types": (torch.float32, torch.float32),
        "loss_scale": 0.0,
        "dynamic_loss_scale": True,
    }
    assert {name: getattr(engine, name)() for name in expected} == expected
    assert engine.communication_data_type == torch.float32
    assert not engine.has_moe_layers and not engine.pipeline_parallelism
    assert [call() for call in engine.get_batch_info()] == [2 * RANKS, 2, 1]
    assert engine.collect_python_gc() >= 0
    engine.destroy()


def test_values_of_the_config_are_its_own() -> None:
    engine = made(
        3,
        steps_per_print="5",
        wall_clock_breakdown=1,
        log_level="INFO",
        bf16={"enabled": True},
        optimizer={"type": "SGD", "params": {"lr": 0.1, "momentum": 0.5}},
        scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 3}},
        gradient_clipping=2.0,
        managed_gradient_accumulation=False,
        zero_optimization={"stage": 3, "offload_optimizer": {"device": "cpu"}},
    )
    assert engine.steps_per_print() == 5 and type(engine.steps_per_print()) is int
    assert engine.wall_clock_breakdown() and engine.log_level() == "INFO"
    assert (engine.optimizer_name(), engine.scheduler_name()) == ("sgd", "WarmupLR")
    assert engine.get_mom() == [0.5] and engine.zero_overlap_comm()
    assert engine.zero_offload_optimizer().device == "cpu"
    assert engine.zero_offload_optimizer().ratio == 1.0 and engine.zero_offload_param() is None
    assert engine.zero_cpu_offload() and engine.zero_optimization_partition_gradients()
    assert engine.communication_data_type == torch.bfloat16
    assert not engine.managed_gradient_accumulation()
    assert engine.optimizer.clip_grad == 2.0
    engine.destroy()
    engine = made(zero_optimization=True, communication_data_type="fp16")
    assert engine.communication_data_type == torch.float16
    assert engine.zero_reduce_bucket_size() == 500_000_000  # the block is a bool
    engine.destroy()


@pytest.mark.ranks(2)
@pytest.mark.parametrize("stage", range(4))
def test_the_optimizer_has_deepspeeds_attributes(stage: int) -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    for client in (None, torch.optim.SGD(model.parameters(), lr=0.1)):
        engine = made(stage, client, model)
        optimizer = engine.optimizer
        assert engine.optimizer_name() == ("adam" if client is None else "SGD")
        assert optimizer.bit16_groups == optimizer.fp16_groups
        assert [len(group) for group in optimizer.bit16_groups] == [1]
        assert engine.basic_optimizer is optimizer
        assert engine.client_optimizer is client
        assert optimizer.loss_scaler.cur_scale == 1.0 and not optimizer.dynamic_loss_scale
        before = zero.safe_get_full_fp32_param(model.weight)
        optimizer.refresh_fp32_params()
        engine.allreduce_gradients()
        assert torch.equal(zero.safe_get_full_fp32_param(model.weight), before)
        assert (engine.dp_world_size, engine.mp_world_size) == (RANKS, 1)
        engine.destroy()
        assert optimizer.loss_scaler.loss_scale == 1.0 and optimizer.clip_grad == 0.0


def test_the_optimizer_shows_the_loss_scale() -> None:
    engine = made(2, fp16={"enabled": True, "initial_scale_power": 5, "loss_scale_window": 7})
    view = engine.optimizer.loss_scaler
    assert (view.cur_scale, view.scale_window, view.min_loss_scale) == (32.0, 7, 1)
    assert (view.cur_hysteresis, view.delayed_shift, view.dynamic) == (2, 2, True)
    assert engine.optimizer.dynamic_loss_scale and engine.dynamic_loss_scale()
    assert engine.loss_scale() == 32.0
    engine.destroy()
    engine = made(2, fp16={"enabled": True, "loss_scale": 8})
    assert not engine.optimizer.loss_scaler.dynamic and not engine.dynamic_loss_scale()
    assert engine.loss_scale() == engine.optimizer.loss_scaler.loss_scale == 8.0
    engine.destroy()


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.arange(4))


@pytest.mark.ranks(1, 2)
def test_deepspeed_io_spreads_samples_over_the_ranks() -> None:
    engine = made()
    data: Dataset[Any] = TensorDataset(torch.arange(8))
    batches = [batch[0].tolist() for batch in engine.deepspeed_io(data, route="eval")]
    assert batches == ([[0, 2], [4, 6]] if RANKS == 2 and RANK == 0 else batches)
    assert sum(map(len, batches)) == 8 // RANKS
    loader = engine.deepspeed_io(data, batch_size=4, collate_fn=len)
    assert sorted(loader) == [4] * (2 // RANKS)
    assert [batch.tolist() for batch in engine.deepspeed_io(Stream())] == [[0, 1], [2, 3]]
    for wrong in (3, iter([1]), None):
        with pytest.raises(meron.ArgumentError, match=r"dataset is a .*: a torch Dataset"):
            engine.deepspeed_io(wrong)
    with pytest.raises(meron.ArgumentError, match="route is 'test'"):
        engine.deepspeed_io(data, route="test")
    engine.destroy()


@pytest.mark.ranks(1, 2)
def test_weights_are_loaded_and_saved_under_old_names(tmp_path: Path) -> None:
    for stage in (0, 3):
        engine = made(stage)
        state = {"weight": torch.full((1, 2), 5.0)}
        engine.load_module_state_dict({"module": state})
        assert torch.equal(zero.safe_get_full_fp32_param(engine.module.weight), state["weight"])
        assert engine.save_fp16_model(tmp_path, f"{stage}.bin")
        found = torch.load(tmp_path / f"{stage}.bin")
        assert torch.equal(found["weight"], state["weight"])
        seen: list[Any] = []

        def load(src: Any, dst: Any, seen: list[Any] = seen) -> None:
            seen.append((src, dst))

        engine.load_module_state_dict({"module": state}, custom_load_fn=load)
        assert seen[0][0] is state and seen[0][1] is engine.module
        for wrong in ({}, None, {"model": state}):
            with pytest.raises(meron.ArgumentError, match="no entry 'module'"):
                engine.load_module_state_dict(wrong)
        engine.destroy()
        with pytest.raises(meron.StateError, match="this engine was destroyed"):
            engine.load_module_state_dict({"module": state})


def test_model_parallel_ranks_are_those_of_the_mpu() -> None:
    engine = made()
    for kind in ("data", "tensor", "model", "pipeline", "sequence"):
        assert getattr(engine, f"get_{kind}_parallel_rank")() == 0
        assert getattr(engine, f"get_{kind}_parallel_world_size")() == 1
    engine.mpu = argparse.Namespace(
        get_model_parallel_world_size=lambda: 4, get_pipe_parallel_rank=lambda: 2
    )
    assert engine.mp_world_size == engine.get_tensor_parallel_world_size() == 4
    assert engine.get_pipeline_parallel_rank() == 2
    engine.destroy()


def test_two_backwards_before_a_step_name_the_boundary() -> None:
    for steps in (1, 2):
        engine = made(gradient_accumulation_steps=steps)
        engine.backward(engine(torch.ones(2, 2)).sum())
        words = r"set_gradient_accumulation_boundary\(True\) before the step"
        with pytest.raises(meron.StateError, match=words):
            engine.backward(engine(torch.ones(2, 2)).sum())
        engine.set_gradient_accumulation_boundary(True)
        engine.backward(engine(torch.ones(2, 2)).sum())
        engine.step()
        assert engine.was_step_applied()
        engine.destroy()
