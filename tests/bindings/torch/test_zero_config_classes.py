# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's config classes: beside DeepSpeed's own where that is installed."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

import meron
import meron.zero
from meron.zero.config.table import BY_PATH, KEYS, Use

MODULES = {
    "DeepSpeedZeroConfig": "zero.config",
    "DeepSpeedZeroOffloadParamConfig": "zero.offload_config",
    "DeepSpeedZeroOffloadOptimizerConfig": "zero.offload_config",
    "DeepSpeedZeroLeafModuleConfig": "zero.leaf_module_config",
    "DeepSpeedFP16Config": "precision_config",
    "DeepSpeedBF16Config": "precision_config",
}


@pytest.fixture
def classes() -> Any:
    pytest.importorskip("pydantic", reason="config classes: pydantic is not installed")
    from meron.zero.config import classes

    return classes


def deepspeed(name: str) -> Any:
    return pytest.importorskip(f"deepspeed.runtime.{name}", reason="deepspeed is not installed")


@pytest.mark.parametrize("name", MODULES)
def test_fields_and_defaults_of_deepspeed(name: str, classes: Any) -> None:
    theirs = getattr(deepspeed(MODULES[name]), name)
    own = getattr(classes, name)
    expected, found = theirs(), own()
    for field in theirs.model_fields:
        if field.startswith("stage3_gather_fp16"):  # an old name, which is accepted
            continue
        value, wanted = getattr(found, field), getattr(expected, field)
        assert own.model_fields[field].alias == theirs.model_fields[field].alias, field
        if hasattr(wanted, "model_dump"):
            value, wanted = value.model_dump(), wanted.model_dump()
        assert value == wanted, field


def test_the_zero_config(classes: Any) -> None:
    zero = classes.DeepSpeedZeroConfig(
        stage=3,
        stage3_prefetch_bucket_size="auto",
        stage3_max_live_parameters=5e3,
        offload_optimizer={"device": "cpu", "pipeline_read": True},
        leaf_module={"classes": "Block"},
        stage3_gather_fp16_weights_on_model_save=True,
    )
    assert zero.stage == 3 == classes.ZeroStageEnum.weights and zero.overlap_comm is True
    assert zero.prefetch_bucket_size == 50_000_000 and zero.max_live_parameters == 5000
    assert zero.offload_optimizer.device == "cpu" and zero.offload_optimizer.pipeline is True
    assert zero.leaf_module.classes == ["Block"] and zero.gather_16bit_weights_on_model_save
    assert classes.DeepSpeedZeroConfig().overlap_comm is False
    old = classes.DeepSpeedZeroConfig(stage=2, cpu_offload=True)
    assert old.offload_optimizer.device == classes.OffloadDeviceEnum.cpu and old.cpu_offload is None
    enum = classes.DeepSpeedZeroOffloadParamConfig(device=classes.OffloadDeviceEnum.nvme)
    assert enum.device == "nvme"
    for wrong in (
        {"stage": 4},
        {"sage": 3},
        {"stage3_max_live_parameters": -1},
        {"stage": 3, "compute_grad_norm": False},
        {"stage": 2, "offload_optimizer": {"ratio": 0.5}},
        {"cpu_offload": True, "offload_optimizer": {"device": "cpu"}},
    ):
        with pytest.raises(ValueError, match="validation error"):
            classes.DeepSpeedZeroConfig(**wrong)
    for wrong in ({"enabled": True, "loss_scale_window": 0}, {"loss_scale": -1}, {"enable": True}):
        with pytest.raises(ValueError, match="validation error"):
            classes.DeepSpeedFP16Config(**wrong)
    assert classes.DeepSpeedFP16Config(loss_scale_window=0).loss_scale_window == 0


VALUES = [
    *(True, False, 0, 1, 2, 0.5, 1.0, 1e3, math.inf, math.nan),
    *("1", "1e3", "x", "true", "auto", []),
]
# A scale that would never fall, and one that no dtype has.
USELESS = (("hysteresis", 0), ("hysteresis", False), ("initial_scale_power", 1e3))


@pytest.mark.parametrize("name", MODULES)
def test_the_classes_accept_the_values_of_deepspeeds(name: str, classes: Any) -> None:
    theirs, own = getattr(deepspeed(MODULES[name]), name), getattr(classes, name)
    enabled = {"enabled": True}
    for base in ({}, enabled) if "enabled" in theirs.model_fields else ({},):
        for field, info in theirs.model_fields.items():
            for value in VALUES:
                data = {**base, info.alias or field: value}
                if (field, value) in USELESS:
                    continue
                found = [accepts(kind, data) for kind in (theirs, own)]
                assert found[0] == found[1], data


def accepts(kind: Any, data: dict[str, Any]) -> bool:
    try:
        kind(**data)
    except (ValueError, TypeError, AssertionError):
        return False
    return True


def test_a_whole_config_as_attributes(classes: Any) -> None:
    table = {
        "train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "fp16": {"enabled": True, "loss_scale_window": 10},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": 2},
        "steps_per_print": math.inf,
        "torch_autocast": {"enabled": False, "dtype": "bf16"},
        "checkpoint": {"tag_validation": "Fail"},
        "activation_checkpointing": {"profile": True},
        "wall_clock_breakdown": False,
    }
    assert meron.zero.config.DeepSpeedConfig is classes.DeepSpeedConfig
    own = classes.DeepSpeedConfig(table)
    assert own.train_micro_batch_size_per_gpu == 4 and own.gradient_clipping == 1.0
    with pytest.raises(meron.ArgumentError, match="neither train_batch_size"):
        classes.DeepSpeedConfig({"zero_optimization": {"stage": 2}})
    with pytest.raises(meron.ArgumentError, match="train_batch_size 7"):
        classes.DeepSpeedConfig({**table, "train_batch_size": 7})
    with pytest.raises(meron.ArgumentError, match="unknown config key"):
        classes.DeepSpeedConfig({**table, "train_batch_sizes": 7})

    theirs = deepspeed("config").DeepSpeedConfig(table)
    same = [name for name in vars(own) if name not in ("_param_dict", "checkpoint_config")]
    assert len(same) > 45
    for name in same:
        value, wanted = getattr(own, name), getattr(theirs, name, getattr(own, name))
        if hasattr(wanted, "model_dump"):
            fields = set(type(wanted).model_fields) & set(type(value).model_fields)
            value, wanted = ({f: getattr(each, f) for f in fields} for each in (value, wanted))
            value.pop("leaf_module", None)
            wanted.pop("leaf_module", None)
        elif hasattr(wanted, "number_checkpoints"):
            value, wanted = vars(value), vars(wanted)
        assert value == wanted, name


def test_without_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    from meron.zero.config import classes

    classes.base.cache_clear()
    classes.model.cache_clear()
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ImportError, match="pip install pydantic"):
        classes.DeepSpeedZeroConfig  # noqa: B018
    assert not hasattr(meron.zero.config, "DeepSpeedZeroConfig")
    assert classes.OffloadDeviceEnum.cpu == "cpu"
    with pytest.raises(AttributeError, match="DeepSpeedMoEConfig"):
        classes.DeepSpeedMoEConfig  # noqa: B018


@pytest.mark.parametrize("name", MODULES)
def test_the_table_has_every_key_of_deepspeed(name: str) -> None:
    theirs = getattr(deepspeed(MODULES[name]), name)
    from meron.zero.config.classes import MODELS

    known = KEYS[MODELS[name]]
    for field, info in theirs.model_fields.items():
        assert (info.alias or field) in known, field


def test_the_table_has_every_key_of_deepspeeds_top_level() -> None:
    constants = deepspeed("constants")
    known = set(KEYS[""])
    for name in (
        "TRAIN_BATCH_SIZE",
        "STEPS_PER_PRINT",
        "DUMP_STATE",
        "LOG_LEVEL",
        "TORCH_AUTOCAST",
        "GRADIENT_ALLREDUCE_OP",
        "DISABLE_PYTHON_GC",
        "USE_DATA_BEFORE_EXPERT_PARALLEL",
        "VOCABULARY_SIZE",
        "DATALOADER_DROP_LAST",
        "MEMORY_BREAKDOWN",
        "DATA_TYPES",
    ):
        assert getattr(constants, name) in known, name
    assert all(key.use in Use for section in BY_PATH.values() for key in section.keys)


def test_a_deprecated_field_moves_to_the_one_that_replaces_it(classes: Any) -> None:
    pydantic = pytest.importorskip("pydantic")
    mark = {"deprecated": True, "new_param": "names", "new_param_fn": lambda name: [name]}
    made = pydantic.create_model(
        "Made",
        __base__=classes.DeepSpeedConfigModel,
        name=(str | None, pydantic.Field(None, json_schema_extra=mark)),
        names=(list[str] | None, None),
    )
    assert made(name="x").names == ["x"] and made().names is None
    assert made(names=["y"]).names == ["y"]
    with pytest.raises(AssertionError, match="name is the old name of names"):
        made(name="x", names=["y"])
