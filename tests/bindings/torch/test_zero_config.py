# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's config: its translation, and the options that raise."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import meron
from meron.zero.config import Config, parse
from meron.zero.config.model import Activations, Reports
from meron.zero.config.precision import Autocast
from meron.zero.config.table import SECTIONS, Feature, Use


def test_a_config_becomes_a_plan_and_limits() -> None:
    config = parse(
        {
            "zero_optimization": {
                "stage": 3,
                "stage3_prefetch_bucket_size": 5e7,
                "stage3_max_live_parameters": 10,
                "stage3_max_reuse_distance": 11,
                "stage3_param_persistence_threshold": 12,
                "stage3_model_persistence_threshold": sys.maxsize,
                "overlap_comm": True,
                "offload_param": {"device": "none"},
                "offload_optimizer": None,
                "zero_hpz_partition_size": 1,
                "mics_shard_size": -1,
            },
            "communication_data_type": "fp32",
            "bf16": {"enabled": True},
            "gradient_clipping": 1,
        }
    )
    assert config.limits == {
        "prefetch_elements": 50_000_000,
        "max_live_elements": 10,
        "max_reuse_elements": 11,
        "persist_elements": 12,
        "persist_total_elements": 2**64 - 1,
    }
    table = json.loads(config.plan().json())
    assert table["name"] == "zero3" and table["gradient"]["dtype"] == "f32"
    assert config.dtype == torch.bfloat16 and config.check_overflow and config.clipping == 1.0


@pytest.mark.parametrize("stage", range(4))
def test_stages_are_presets(stage: int) -> None:
    plan = parse({"zero_optimization": {"stage": stage}}).plan()
    assert plan == meron.Plan.preset(f"zero{stage}")


@pytest.mark.parametrize(
    ("stage", "block", "asked", "accumulated", "written", "idle"),
    [
        (1, {}, None, None, "auto", []),
        (1, {"bf16": {"enabled": True}}, None, None, "auto", []),
        (0, {"bf16": {"enabled": True}}, None, None, "f32", []),
        (0, {"fp16": {"enabled": True}}, None, None, "auto", []),
        (1, {"bf16": {"enabled": True}}, None, "fp32", "f32", []),
        (1, {"bf16": {"enabled": True}}, None, "bf16", "bf16", []),
        (1, {"fp16": {"enabled": True}}, "fp32", None, "f32", []),
        (1, {"fp16": {"enabled": True}}, "fp16", None, "auto", []),
        (1, {"fp16": {"enabled": True}}, "fp16", "fp16", "f16", []),
        (1, {"fp16": {"enabled": True}}, "bf16", None, "f32", ["communication_data_type"]),
        (1, {}, "bf16", None, "f32", ["communication_data_type"]),
        (1, {}, "bf16", "bf16", "bf16", []),
        (0, {}, "bf16", "fp32", "f32", ["communication_data_type"]),
        (1, {}, "fp32", "bf16", "f32", ["data_types.grad_accum_dtype"]),
        (2, {}, "bf16", "fp32", "bf16", []),
        (3, {"bf16": {"enabled": True}}, None, "fp32", "auto", []),
    ],
)
def test_what_gradients_are_written_in(
    stage: int,
    block: dict[str, Any],
    asked: str | None,
    accumulated: str | None,
    written: str,
    idle: list[str],
) -> None:
    config = parse(
        {
            "zero_optimization": {"stage": stage},
            "communication_data_type": asked,
            "data_types": {"grad_accum_dtype": accumulated},
            **block,
        }
    )
    assert json.loads(config.plan().json())["gradient"]["dtype"] == written
    assert config.without_effect == idle


def test_defaults() -> None:
    assert parse({}) == Config()
    assert parse({"gradient_clipping": "auto", "fp16": {"enabled": "auto"}}) == Config()
    assert parse({"zero_optimization": True}).stage == 1


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"zero_optimization": {"stage": 2}}')
    assert parse(path).stage == parse(str(path)).stage == 2
    path.write_text('{"zero_optimization": {"stage": 2}, "zero_optimization": {}}')
    with pytest.raises(meron.ParseError, match="occurs twice"):
        parse(path)
    path.write_text("{")
    with pytest.raises(meron.ParseError, match=r"config\.json"):
        parse(path)
    with pytest.raises(meron.ArgumentError, match="no config file"):
        parse(tmp_path / "other.json")


def test_a_config_may_come_through_a_pipe_that_delivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meron._files.PIPE_PATIENCE", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TimeoutError, match="nothing came through this pipe"):
        parse(pipe)
    monkeypatch.setattr("meron._files.PIPE_PATIENCE", 5)
    writer = os.open(pipe, os.O_RDWR)  # as `--deepspeed_config <(program)` does
    os.write(writer, b'{"zero_optimization": {"stage": 2}}')
    thread = threading.Timer(0.2, os.close, (writer,))
    thread.start()
    assert parse(pipe).stage == 2
    thread.join()


def test_a_text_that_is_cut_or_nested_too_deep_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hjson:
        @staticmethod
        def loads(text: str, **_: Any) -> Any:
            raise (IndexError if "/*" in text else RecursionError)  # as the package does

    monkeypatch.setitem(sys.modules, "hjson", Hjson)
    path = tmp_path / "config.json"
    for text, words in (
        ('{"a": /*', r"config\.json: the text ends too early"),
        ("[" * 100_000, r"config\.json is nested too deep"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, r"config\.json is nested too deep"),
    ):
        path.write_text(text)
        with pytest.raises(meron.ParseError, match=words):
            parse(path)
    config: dict[str, Any] = {}
    for _ in range(100_000):
        config = {"a": config}
    with pytest.raises(meron.ParseError, match="the config is nested too deep"):
        parse(config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"train_batchsize": 1}, ["train_batchsize", "train_batch_size"]),
        (
            {"zero_optimization": {"stage3_max_live_parameter": 1, "sage": 3}},
            [
                "2 unknown",
                "stage3_max_live_parameter ",
                "stage3_max_live_parameters",
                "mean stage?",
            ],
        ),
        ({"stage": 3}, ["stage", "zero_optimization"]),
        ({"fp16": {"enable": True}}, ["fp16.enable", "enabled"]),
        ({"zero_optimization": {"offload_param": {"devise": 1}}}, ["offload_param.devise"]),
        ({"optimizer": {"typ": "Adam"}}, ["optimizer.typ", "type"]),
        ({"quite something else": 1}, ["quite something else"]),
    ],
)
def test_unknown_keys_are_listed_with_the_nearest(config: Any, words: list[str]) -> None:
    with pytest.raises(meron.ArgumentError) as info:
        parse(config)
    for word in words:
        assert word in str(info.value)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"zero_optimization": {"offload_optimizer": {"super_offload": True}}}, "super_offload"),
        ({"aio": {"use_gds": True}}, "aio.use_gds"),
        ({"zero_optimization": {"zenflow": {"topk_ratio": 0.1}}}, "zenflow"),
        ({"fp16": {"fp16_master_weights_and_grads": True}}, "fp16_master_weights_and_grads"),
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor_parallel"),
        ({"amp": {"enabled": True}}, "amp"),
        ({"autotuning": {"enabled": True}}, "autotuning"),
    ],
)
def test_what_is_not_there_is_named(config: Any, name: str) -> None:
    with pytest.raises(meron.UnsupportedError, match=name):
        parse(config)


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimization": {"offload_optimizer": {"device": "auto", "pin_memory": True}}},
        {"zero_optimization": {"offload_param": {"pin_memory": True}}},
        {"zero_optimization": {"offload_optimizer": {"device": "cpu"}, "sub_group_size": 1e9}},
        {"timers": {"throughput": {"enabled": False, "synchronized": True}}},
        {"compression_training": {"layer_reduction": {"enabled": False, "keep_number_layer": 5}}},
        {"wall_clock_breakdown": False, "autotuning": {"enabled": False, "fast": True}},
        {"bf16": None, "bfloat16": {"enabled": False}},
        {"flops_profiler": {"profile_step": 1, "module_depth": -1}, "amp": {"opt_level": "O1"}},
        {"flops_profiler": {"enabled": False}, "tensorboard": {"enabled": False, "job_name": "x"}},
        {"compile": {"deepcompile": False, "free_activation": True}, "comms_logger": {}},
        {"tensor_parallel": {"autotp_size": 1}, "sequence_parallel_size": 1},
        {"checkpoint": {"tag_validation": "warn", "load_universal": False, "writer": None}},
        {"zero_optimization": {"elastic_checkpoint": True, "zenflow": None}},
    ],
)
def test_blocks_that_are_off(config: Any) -> None:
    assert parse(config) == Config()


def test_features_that_change_no_result_are_warned_of() -> None:
    config = parse({"flops_profiler": {"enabled": True}, "comms_logger": {"enabled": 1}})
    assert [path for path, _ in config.warned] == ["flops_profiler", "comms_logger"]
    assert "torch.profiler" in config.warned[0][1]


def test_monitors_have_their_defaults() -> None:
    config = parse(
        {
            "tensorboard": {"enabled": "true", "output_path": "logs"},
            "csv_monitor": {"enabled": False, "job_name": "x"},
            "comet": {"enabled": True, "samples_log_interval": "5"},
        }
    )
    assert list(config.monitors) == ["tensorboard", "comet"]
    assert config.monitors["tensorboard"]["job_name"] == "DeepSpeedJobName"
    assert config.monitors["comet"]["samples_log_interval"] == 5
    with pytest.raises(meron.ArgumentError, match=r"wandb\.team must be a text"):
        parse({"wandb": {"team": 3}})
    with pytest.raises(meron.ArgumentError, match=r"csv_monitor\.job_nam .*job_name"):
        parse({"csv_monitor": {"job_nam": "x"}})


def test_keys_of_checkpoints() -> None:
    config = parse({"checkpoint": {"load_universal": True, "write_model_states": True}})
    assert config.load_universal and config.write_model_states and config.without_effect == []
    with pytest.raises(meron.ArgumentError, match=r"checkpoint\.write_model_state"):
        parse({"checkpoint": {"write_model_state": True}})


def test_keys_without_effect_are_listed() -> None:
    config = parse(
        {
            "prescale_gradients": True,
            "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": "auto"},
        }
    )
    assert config.without_effect == ["prescale_gradients", "zero_optimization.overlap_comm"]


ACTIVATIONS = {"partition_activations": True, "number_checkpoints": 4, "profile": False}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"wall_clock_breakdown": True}, {"reports": Reports(times=True)}),
        ({"memory_breakdown": True}, {"reports": Reports(memory=True)}),
        (
            {"dump_state": True, "log_level": "INFO"},
            {"reports": Reports(False, False, None, True, "info")},
        ),
        ({"steps_per_print": math.inf}, {"reports": Reports(every=math.inf)}),
        ({"steps_per_print": 10}, {"reports": Reports(every=10)}),
        (
            {"activation_checkpointing": ACTIVATIONS},
            {"activations": Activations(True, number_checkpoints=4)},
        ),
        ({"activation_checkpointing": {}}, {"activations": Activations()}),
        ({"activation_checkpointing": False, "aio": False, "fp16": None}, {}),
        ({"gradient_allreduce_op": "SUM"}, {"sums": True}),
        (
            {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}},
            {"autocast": Autocast(torch.bfloat16)},
        ),
        ({"torch_autocast": {"dtype": "bfloat16"}}, {}),
    ],
)
def test_switches_that_never_end_a_run(config: Any, expected: Any) -> None:
    assert parse(config) == dataclasses.replace(Config(), **expected)


def nvme(aio: Any = None, stage: int = 3, **block: Any) -> Any:
    zero: dict[str, Any] = {"stage": stage, "offload_optimizer": {"device": "nvme", **block}}
    if "sub_group_size" in block:
        zero["sub_group_size"] = zero["offload_optimizer"].pop("sub_group_size")
    return {"zero_optimization": zero, "aio": aio or {}}


def test_an_optimizer_on_nvme() -> None:
    aio = {"block_size": 300000, "queue_depth": 8, "thread_count": 2, "overlap_events": False}
    given = nvme(aio, nvme_path="/local", buffer_count=5, ratio=0.5, sub_group_size=1e9)
    config = parse(given)
    table = json.loads(config.plan().json())
    assert table["optimizer"] == {
        "sharding": "shard",
        "tier": "nvme",
        "dtype": "f32",
        "fraction": 0.5,
        "sub_group": 8 << 20,
        "buffers": 5,
    }
    assert table["nvme"] == {"path": "/local", "block": 303104, "depth": 8, "threads": 2}
    told = "; ".join(config.offload.told)
    for words in ("sub_group_size 1000000000: 8388608", "aio.block_size 300000: nvme.block 303104"):
        assert words in told
    assert "overlap_events" in told


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (nvme(), "nvme_path names no folder"),
        (nvme(nvme_path="/local", stage=0), "stage 0"),
        (nvme(nvme_path="/local", ratio=0), "ratio"),
        (nvme(nvme_path="/local", buffer_count=1), "buffer_count"),
        (nvme({"threads": 1}, nvme_path="/local"), "aio.threads"),
        (
            nvme({"thread_count": 1, "intra_op_parallelism": 2}, nvme_path="/local"),
            "two names of one key",
        ),
        (
            {"zero_optimization": {"offload_optimizer": {"device": "disk"}}},
            '"none", "cpu" or "nvme"',
        ),
        (
            {"zero_optimization": {"cpu_offload": True, "offload_optimizer": {"device": "cpu"}}},
            "both given",
        ),
    ],
)
def test_offload_that_contradicts_itself(config: Any, words: str) -> None:
    with pytest.raises(meron.ArgumentError, match=words):
        parse(config)


def test_old_names() -> None:
    assert parse({"bf16": None, "bfloat16": {"enabled": True}}).dtype == torch.bfloat16
    assert parse({"fp32_allreduce": True}).gradient_dtype == torch.float32
    zero = {"stage": 3, "prefetch_bucket_size": 7, "stage3_prefetch_bucket_size": None}
    assert parse({"zero_optimization": zero}).limits == {"prefetch_elements": 7}


def test_every_key_says_what_becomes_of_it() -> None:
    for section in SECTIONS:
        for key in section.keys:
            assert key.says and not key.says.endswith(" "), key.name
            lacking = key.use in (Use.REFUSED, Use.WARNED)
            assert lacking == isinstance(key.kind, Feature), key.name
            if isinstance(key.kind, Feature):
                assert key.kind.is_off(key.default) and not key.kind.is_off("on"), key.name
            elif key.default is not None:  # DeepSpeed's default is a value of the kind
                key.kind.take(key.default)
            if key.fallback is not key.default:
                assert key.why, key.name
    assert not Feature(off=(-1,)).is_off(True) and not Feature().is_off(0.5)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage"),
        ({"zero_optimization": {"stage": "four"}}, "zero_optimization.stage"),
        ({"zero_optimization": {"stage": "4"}}, "zero_optimization.stage"),
        ({"zero_optimization": {"reduce_bucket_size": "1.5"}}, "reduce_bucket_size"),
        ({"zero_optimization": {"stage": True}}, "zero_optimization.stage"),
        ({"zero_optimization": {"max_live_parameters": -1}}, "max_live_parameters"),
        ({"zero_optimization": [3]}, "zero_optimization"),
        ({"zero_optimization": {"leaf_module": {"classes": [3]}}}, "leaf_module.classes"),
        ({"gradient_clipping": -1}, "gradient_clipping"),
        ({"gradient_clipping": float("nan")}, "gradient_clipping"),
        ({"gradient_clipping": "nan"}, "gradient_clipping"),
        ({"gradient_clipping": "1_0"}, "gradient_clipping"),
        ({"gradient_clipping": True}, "gradient_clipping"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps"),
        ({"train_batch_size": 1.5}, "train_batch_size"),
        ({"bf16": {"enabled": 2}}, "bf16.enabled must be true or false"),
        ({"bf16": {"enabled": "maybe"}}, "bf16.enabled must be true or false"),
        ({"bf16": {"enabled": []}}, "bf16.enabled must be true or false"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "both enabled"),
        ({"fp16": {"enabled": True, "loss_scale_window": 0}}, "loss_scale_window"),
        ({"fp16": {"enabled": True, "min_loss_scale": 0}}, "min_loss_scale"),
        ({"fp16": {"enabled": True, "loss_scale_window": -1}}, "loss_scale_window"),
        ({"fp16": {"enabled": True, "hysteresis": 0}}, "hysteresis"),
        ({"communication_data_type": "fp64"}, "communication_data_type"),
        ({"bf16": {"enabled": True}, "bfloat16": {"enabled": True}}, "bf16 and bfloat16"),
        (
            {"zero_optimization": {"max_live_parameters": 1, "stage3_max_live_parameters": 2}},
            "stage3_max_live_parameters and zero_optimization.max_live_parameters",
        ),
        ({"fp32_allreduce": True, "communication_data_type": "bf16"}, "fp32_allreduce"),
        ({"optimizer": {"params": {"lr": 0.1}}}, "optimizer.type"),
        ({"scheduler": {"params": {"warmup_num_steps": 1}}}, "scheduler.type"),
        ({"scheduler": {"type": 3}}, "scheduler.type"),
        ({"fp16": {"enabled": True}, "data_types": {"param_dtype": "bf16"}}, "param_dtype"),
    ],
)
def test_wrong_values_are_named(config: Any, name: str) -> None:
    with pytest.raises(meron.ArgumentError, match=name):
        parse(config)


TEXTS: dict[str, Any] = {
    "train_batch_size": "8",
    "train_micro_batch_size_per_gpu": 2.0,
    "gradient_clipping": "1e-1",
    "wall_clock_breakdown": 1,
    "dump_state": "False",
    "steps_per_print": "inf",
    "zero_optimization": {
        "stage": "2",
        "overlap_comm": "true",
        "contiguous_gradients": 0,
        "reduce_bucket_size": "5e8",
        "stage3_prefetch_bucket_size": "5e7",
        "mics_shard_size": "-1",
        "offload_optimizer": {"device": "none", "pin_memory": "yes", "ratio": "0.5"},
    },
    "fp16": {"enabled": "true", "loss_scale": "0", "initial_scale_power": "8"},
    "bf16": {"enabled": "off"},
    "optimizer": {
        "type": "Adam",
        "params": {"lr": "1e-3", "betas": ["0.9", 0.95], "adam_w_mode": "false"},
    },
    "scheduler": {
        "type": "WarmupLR",
        "params": {"warmup_num_steps": "100", "warmup_type": "linear"},
    },
}


def test_numbers_and_switches_may_be_texts() -> None:
    config = parse(TEXTS)
    assert (config.train_batch_size, config.micro_batch_size, config.clipping) == (8, 2, 0.1)
    assert config.reports == Reports(times=True, every=math.inf)
    assert config.stage == 2 and config.limits == {"prefetch_elements": 50_000_000}
    assert config.fp16 is not None and config.fp16.initial_scale_power == 8
    assert config.fp16.loss_scale == 0 and config.dtype == torch.float16
    params = {"lr": 1e-3, "betas": [0.9, 0.95], "adam_w_mode": False}
    assert config.optimizer == ("Adam", params)
    assert config.scheduler == ("WarmupLR", {"warmup_num_steps": 100, "warmup_type": "linear"})
    assert type(config.scheduler[1]["warmup_num_steps"]) is int
    assert config.table == TEXTS  # as it was given


@pytest.mark.parametrize("value", ["false", 0, "0", "no", "OFF", 0.0])
def test_a_feature_is_off_by_any_spelling_of_false(value: Any) -> None:
    parse({"amp": {"enabled": value}, "compile": {"deepcompile": value}})
    parse({"fp16": {"fp16_master_weights_and_grads": value}, "aio": {"use_gds": value}})
    parse({"tensor_parallel": {"autotp_size": "1"}, "sequence_parallel_size": "1"})
    for wrong in ("true", 1, "1", True):
        with pytest.raises(meron.UnsupportedError, match=r"amp"):
            parse({"amp": {"enabled": wrong}})
        with pytest.raises(meron.UnsupportedError, match=r"use_gds"):
            parse({"aio": {"use_gds": wrong}})


@pytest.mark.parametrize(
    "block",
    [{"enabled": False}, {"enabled": True, "loss_scale": 128}, {"enabled": "0"}],
)
def test_a_dynamic_scale_that_is_not_used_may_have_any_number(block: Any) -> None:
    unused = {"loss_scale_window": -1, "min_loss_scale": 0, "hysteresis": 0}
    config = parse({"fp16": {**block, **unused}})
    assert (config.fp16.loss_scale if config.fp16 else None) == block.get("loss_scale")


@pytest.mark.parametrize(
    ("train", "micro", "steps", "expected"),
    [
        (None, None, None, (None, None, 1)),
        (None, None, 3, (None, None, 3)),
        (None, 2, None, (8, 2, 1)),
        (None, 2, 3, (24, 2, 3)),
        (16, None, None, (16, 4, 1)),
        (16, None, 2, (16, 2, 2)),
        (16, 2, None, (16, 2, 2)),
        (16, 2, 2, (16, 2, 2)),
    ],
)
def test_batch_sizes_follow_from_each_other(
    train: int | None, micro: int | None, steps: int | None, expected: Any
) -> None:
    config = Config(train_batch_size=train, micro_batch_size=micro, accumulation_steps=steps)
    config.resolve(4)
    assert (config.train_batch_size, config.micro_batch_size, config.accumulation_steps) == expected


@pytest.mark.parametrize(
    ("train", "micro", "steps"), [(17, None, None), (16, 3, None), (16, 2, 3), (2, 1, None)]
)
def test_batch_sizes_that_do_not_fit(
    train: int | None, micro: int | None, steps: int | None
) -> None:
    config = Config(train_batch_size=train, micro_batch_size=micro, accumulation_steps=steps)
    with pytest.raises(meron.ArgumentError, match="train_batch_size"):
        config.resolve(4)
