# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's config as others write it: libraries, and files with comments."""

from __future__ import annotations

import base64
import copy
import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import meron
import meron.zero
from meron.zero.config import parse


def test_calls_as_written_for_deepspeed() -> None:
    """accelerate's config with what it could not fill in, and TRL's keys for a reference model."""
    config = parse(
        {
            "train_batch_size": "auto",
            "steps_per_print": math.inf,
            "gradient_clipping": 1.0,
            "fp16": {"enabled": False},
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}},
            "zero_optimization": {
                "stage": 3,
                "offload_optimizer": {"device": "none", "nvme_path": None},
                "offload_param": {"device": "cpu", "nvme_path": None},
                "reduce_bucket_size": 5,
                "stage3_prefetch_bucket_size": "auto",
            },
            "zero_optimization.reduce_bucket_size": 64,
            "zero_optimization.stage3_param_persistence_threshold": 80,
            "zero_optimization.stage3_prefetch_bucket_size": 0.9 * 64 * 7,
        }
    )
    assert config.limits == {"prefetch_elements": 403, "persist_elements": 80}
    assert config.clipping == 1.0 and config.optimizer == ("AdamW", {"betas": [0.9, 0.95]})
    assert config.train_batch_size is None and config.dtype == torch.bfloat16
    assert config.table["zero_optimization"]["reduce_bucket_size"] == 5  # the block's own counts
    assert parse({"zero_optimization.stage": 2}).stage == 2
    with pytest.raises(meron.ArgumentError, match=r"zero_optimization\.stag"):
        parse({"zero_optimization.stag": 2})


# As the guides of transformers and accelerate have it: everything that can be "auto" is.
EVERYTHING_AUTO: dict[str, Any] = {
    "fp16": {
        "enabled": "auto",
        "loss_scale": 0,
        "loss_scale_window": 1000,
        "initial_scale_power": 16,
        "hysteresis": 2,
        "min_loss_scale": 1,
    },
    "bf16": {"enabled": "auto"},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
    },
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
        },
    },
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": True,
    },
    "activation_checkpointing": {"partition_activations": False, "profile": False},
    "flops_profiler": {"enabled": False, "profile_step": 1, "module_depth": -1, "top_modules": 1},
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": False,
}


def test_auto_that_is_not_filled_in() -> None:
    config = parse(EVERYTHING_AUTO)
    assert config.limits == {"max_live_elements": 10**9, "max_reuse_elements": 10**9}
    assert (config.train_batch_size, config.accumulation_steps, config.clipping) == (None, None, 0)
    assert config.dtype is None and config.fp16 is None
    assert config.optimizer == ("AdamW", {}) and config.scheduler == ("WarmupDecayLR", {})


def test_auto_that_trainer_fills_in() -> None:
    for package in ("transformers", "accelerate", "deepspeed"):
        pytest.importorskip(package, reason=f"what Trainer fills in: {package} is not installed")
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    arguments = types.SimpleNamespace(
        world_size=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=3,
        max_grad_norm=0.7,
        learning_rate=2e-4,
        adam_beta1=0.8,
        adam_beta2=0.95,
        adam_epsilon=1e-7,
        weight_decay=0.01,
        save_on_each_node=True,
        fp16=False,
        fp16_full_eval=False,
        bf16=True,
        bf16_full_eval=False,
        get_warmup_steps=lambda _steps: 0,
    )
    model = types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=64))
    hf = HfTrainerDeepSpeedConfig(copy.deepcopy(EVERYTHING_AUTO))
    hf.trainer_config_process(arguments)
    hf.trainer_config_finalize(arguments, model, 50)
    config = parse(hf.config)
    config.resolve(2)
    assert (config.train_batch_size, config.micro_batch_size, config.accumulation_steps) == (
        24,
        4,
        3,
    )
    assert config.clipping == 0.7 and config.dtype is torch.bfloat16
    assert config.node_local_checkpoints and config.check_overflow
    assert config.limits["prefetch_elements"] == 3686 and config.limits["persist_elements"] == 640
    assert config.optimizer == (
        "AdamW",
        {"lr": 2e-4, "betas": [0.8, 0.95], "eps": 1e-7, "weight_decay": 0.01},
    )
    assert config.scheduler is not None
    assert (
        config.scheduler[1]["warmup_num_steps"] == 1
        and config.scheduler[1]["total_num_steps"] == 50
    )


def test_unknown_keys_that_deepspeed_ignores(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = {"my_key": 1, "aio": {"queue_depths": 1}, "zero_optimization": {"stage": 2}}
    with pytest.raises(meron.ArgumentError, match="2 unknown config keys: my_key"):
        parse(foreign)
    config = parse(foreign, unknown="warn")
    assert config.stage == 2
    assert config.unknown == ["my_key", "aio.queue_depths (did you mean queue_depth?)"]
    # In these blocks DeepSpeed refuses them too.
    for wrong in ({"zero_optimization": {"sage": 1}}, {"fp16": {"enable": True}}):
        with pytest.raises(meron.ArgumentError, match="1 unknown config key:"):
            parse({**foreign, **wrong}, unknown="warn")
    with pytest.raises(meron.ArgumentError, match='"raise" and "warn"'):
        parse({}, unknown="ignore")
    # Where the name deepspeed is Meron's, scripts and libraries of others pass keys of their own.
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    with pytest.raises(meron.ArgumentError, match="my_key"):
        parse(foreign)
    sys.modules["deepspeed"].DeepSpeedEngine = meron.zero.Engine  # type: ignore[attr-defined]
    assert parse(foreign).stage == 2
    with pytest.raises(meron.ArgumentError, match="my_key"):
        parse(foreign, unknown="raise")


def test_a_config_with_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text("{\n  # stages\n  zero_optimization: {stage: 2}\n}")
    monkeypatch.setitem(sys.modules, "hjson", None)
    with pytest.raises(meron.ParseError, match="pip install hjson"):
        parse(path)
    path.write_text('{"zero_optimization": {"stage": 1}, "steps_per_print": Infinity}')
    assert parse(path).stage == 1  # JSON needs nothing


def test_a_config_in_hjson(tmp_path: Path) -> None:
    pytest.importorskip("hjson", reason="JSON with comments: hjson is not installed")
    path = tmp_path / "config.json"
    path.write_text("{\n  # stages\n  zero_optimization: {stage: 2}\n}")
    assert parse(path).stage == 2
    path.write_text("{\n  # stages\n  zero_optimization: {stage: 2}\n  zero_optimization: {}\n}")
    with pytest.raises(meron.ParseError, match="occurs twice"):
        parse(path)


def test_a_config_in_base64() -> None:
    text = base64.urlsafe_b64encode(b'{"zero_optimization": {"stage": 2}, "train_batch_size": 8}')
    assert parse(text.decode()).stage == 2
    long = base64.urlsafe_b64encode(b'{"train_batch_size": ' + b" " * 5000 + b"8}")
    assert parse(long.decode()).train_batch_size == 8


@pytest.mark.parametrize("source", [5, ["config.json"], object()])
def test_a_config_that_is_neither_dict_nor_path(source: Any) -> None:
    with pytest.raises(meron.ArgumentError, match="dict, or the path"):
        parse(source)


def test_batch_sizes_that_do_not_fit_leave_the_model_as_it_is() -> None:
    """A second initialize may choose another stage."""
    model = torch.nn.Linear(2, 2)
    sizes = {"train_batch_size": 3, "train_micro_batch_size_per_gpu": 2}
    with pytest.raises(meron.ArgumentError, match="train_batch_size 3"):
        meron.zero.initialize(model=model, config={**sizes, "zero_optimization": {"stage": 3}})
    assert not hasattr(model.weight, "ds_id")
    sizes["train_batch_size"] = 4
    engine, *_ = meron.zero.initialize(
        model=model, config={**sizes, "zero_optimization": {"stage": 2}}
    )
    assert engine.gradient_accumulation_steps() == 2
    engine.destroy()
