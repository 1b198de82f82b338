# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's config classes: its field names and defaults, with the ranges of the table.

    from meron.zero.config.classes import DeepSpeedConfig, DeepSpeedZeroConfig

    DeepSpeedZeroConfig(stage=3, stage3_prefetch_bucket_size="auto").prefetch_bucket_size

The classes of blocks are pydantic's, which is imported when the first of them is used; without it
that raises ImportError. `parse` needs neither them nor pydantic.
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from meron import errors
from meron.zero.config.check import check_keys
from meron.zero.config.enums import *  # noqa: F403
from meron.zero.config.enums import OffloadDeviceEnum, ZeroStageEnum
from meron.zero.config.parse import policy
from meron.zero.config.read import Source, read
from meron.zero.config.table import BY_PATH, KEYS, Feature, Key, Kind
from meron.zero.config.table.kinds import FilePath, Flag, Number, Table, Text, Whole
from meron.zero.config.table.monitors import NAMES as MONITORS

logger = logging.getLogger("meron.zero")

# Classes of blocks, by the paths of these.
MODELS = {
    "DeepSpeedZeroConfig": "zero_optimization",
    "DeepSpeedZeroOffloadParamConfig": "zero_optimization.offload_param",
    "DeepSpeedZeroOffloadOptimizerConfig": "zero_optimization.offload_optimizer",
    "DeepSpeedZeroLeafModuleConfig": "zero_optimization.leaf_module",
    "DeepSpeedFP16Config": "fp16",
    "DeepSpeedBF16Config": "bf16",
    "DeepSpeedAIOConfig": "aio",
    "TensorBoardConfig": "tensorboard",
    "WandbConfig": "wandb",
    "CSVConfig": "csv_monitor",
    "CometConfig": "comet",
}
NAMES = {path: name for name, path in MODELS.items()}
# Fields that a class computes, rather than takes.
COMPUTED = {"zero_optimization.offload_optimizer": ("pipeline",)}
ALWAYS = ("leaf_module",)  # blocks that are there also where a config does not have them
NUMBERS = ("loss_scale", "loss_scale_window", "min_loss_scale")
OLD_SWITCHES = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}


# `except DeepSpeedConfigError` catches ArgumentError, ParseError and UnsupportedError.
DeepSpeedConfigError = errors.CallError


def __getattr__(name: str) -> Any:
    if name in MODELS:
        return model(name)
    if name == "DeepSpeedConfigModel":
        return base()
    if name == "DeepSpeedMonitorConfig":
        return monitor_config()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def pydantic() -> Any:
    try:
        return importlib.import_module("pydantic")
    except ImportError as error:
        raise ImportError(
            "DeepSpeed's config classes need the package pydantic, version 2: pip install "
            "pydantic. meron.zero.config.parse reads a config without it."
        ) from error


@functools.cache
def base() -> Any:
    """DeepSpeedConfigModel: refuses unknown fields, and leaves out values that are "auto"."""
    library = pydantic()

    class DeepSpeedConfigModel(library.BaseModel):  # type: ignore[misc,name-defined]
        """A block of a config. strict: values that are "auto" are not left out."""

        model_config = library.ConfigDict(
            validate_default=True,
            validate_assignment=True,
            use_enum_values=True,
            populate_by_name=True,
            extra="forbid",
            arbitrary_types_allowed=True,
            protected_namespaces=(),
        )

        def __init__(self, strict: bool = False, **data: Any) -> None:
            if not strict:
                data = {
                    key: value
                    for key, value in data.items()
                    if not (isinstance(value, str) and value == "auto")
                }
            super().__init__(**data)
            move_deprecated(self)

    return DeepSpeedConfigModel


def move_deprecated(block: Any) -> None:
    """Gives the value of a field whose `json_schema_extra` says "deprecated" to its "new_param", as
    "new_param_fn" makes it. Raises AssertionError, as DeepSpeed, if both are given."""
    for name, field in type(block).model_fields.items():
        extra = field.json_schema_extra
        if not isinstance(extra, Mapping) or not extra.get("deprecated"):
            continue
        new = extra.get("new_param")
        if name not in block.model_fields_set or not new:
            continue
        *places, last = new.split(".")
        target = functools.reduce(getattr, places, block)
        if last in target.model_fields_set:
            raise AssertionError(f"{name} is the old name of {new}: give one of them")
        value = getattr(block, name)
        logger.warning("%s is the old name of %s", name, new)
        setattr(target, last, extra.get("new_param_fn", unchanged)(value))


@functools.cache
def model(name: str) -> Any:
    """The class of a block."""
    library = pydantic()
    path = MODELS[name]
    fields: dict[str, Any] = {}
    for key in BY_PATH[path].keys:
        if key.name not in COMPUTED.get(path, ()):
            short = key.name.removeprefix("stage3_")
            alias = key.name if short != key.name and short in key.also else None
            fields[short if alias else key.name] = field_of(path, key, alias)
    checks = {
        "old_names": library.model_validator(mode="before")(old_names),
        "consistent": library.model_validator(mode="after")(CHECKS.get(path, unchanged)),
    }
    made = library.create_model(name, __base__=base(), __validators__=checks, **fields)
    made.__doc__ = f"{BY_PATH[path].title}: the block {path} of a config."
    made.__module__ = __name__
    return made


@functools.cache
def monitor_config() -> Any:
    """DeepSpeedMonitorConfig: the blocks of all monitors. `enabled` is true if one is on."""
    library = pydantic()
    blocks = {
        name: (model(NAMES[name]), library.Field(default_factory=model(NAMES[name])))
        for name in MONITORS
    }
    made = library.create_model("DeepSpeedMonitorConfig", __base__=base(), **blocks)
    made.enabled = property(lambda self: any(getattr(self, name).enabled for name in MONITORS))
    made.__module__ = __name__
    return made


def get_monitor_config(param_dict: Mapping[str, Any]) -> Any:
    """The blocks of the monitors of a whole config."""
    return monitor_config()(**{name: param_dict.get(name) or {} for name in MONITORS})


def field_of(path: str, key: Key, alias: str | None) -> tuple[Any, Any]:
    """The annotation of a field, and its default."""
    library = pydantic()
    kind = key.wide or key.kind
    inner = NAMES.get(f"{path}.{key.name}")
    limits: dict[str, Any] = {}
    if inner is not None:
        annotation: Any = model(inner)
    elif key.name == "stage":
        annotation = ZeroStageEnum
    elif key.name == "device":
        annotation = OffloadDeviceEnum
    elif isinstance(kind, Whole):
        annotation, limits = int, {"ge": kind.low, "le": kind.high}
    elif isinstance(kind, Number):
        annotation, limits = float, {"gt" if kind.over else "ge": kind.low, "allow_inf_nan": False}
        if kind.high != math.inf:
            limits["lt" if kind.under else "le"] = kind.high
    elif isinstance(kind, Flag) or kind.name == "bool":
        annotation = bool
    elif isinstance(kind, FilePath):
        annotation = Path
    elif isinstance(kind, Text):
        annotation = str
    elif isinstance(kind, (Table, Feature)):
        annotation = dict
    else:
        annotation = validated(kind.take)
    if key.name in NUMBERS:
        annotation = importlib.import_module("typing").Annotated[
            annotation, library.BeforeValidator(no_flag)
        ]
    if key.name in ALWAYS:
        return annotation, library.Field(default_factory=annotation)
    if key.nullable or key.default is None:
        annotation = Optional[annotation]
    if isinstance(key.default, list):
        return annotation, library.Field(default_factory=functools.partial(list, key.default))
    return annotation, library.Field(key.default, alias=alias, **limits)


def validated(take: Any) -> Any:
    """An annotation by which a value is what `take` returns."""
    typing = importlib.import_module("typing")
    return typing.Annotated[Any, pydantic().BeforeValidator(lambda value: take(value))]


def no_flag(value: Any) -> Any:
    """Refuses true and false, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not a bool")
    return value


def old_names(data: Any) -> Any:
    """Fields by their old names become those of today."""
    if not isinstance(data, Mapping):
        return {} if data is None else data
    found = dict(data)
    for old, new in OLD_SWITCHES.items():
        if found.get(old) in (True, "true", "1"):
            if found.get(new) is not None:
                raise ValueError(f"{old} and {new} are both given: remove {old}, the old name")
            found[new] = {"device": "cpu"}
            found[old] = None
            logger.warning("%s is the old name of %s with device cpu", old, new)
    old, new = "stage3_gather_fp16_weights_on_model_save", "gather_16bit_weights_on_model_save"
    if old in found:
        found[new] = found.pop(old)
    return found


def unchanged(self: Any) -> Any:
    return self


def check_zero(self: Any) -> Any:
    if self.overlap_comm is None:
        self.__dict__["overlap_comm"] = self.stage == ZeroStageEnum.weights
    if not self.compute_grad_norm and self.stage not in (1, 2):
        raise ValueError("compute_grad_norm false is of the stages 1 and 2")
    offload = self.offload_optimizer
    if offload is not None and offload.ratio < 1.0 and self.stage != ZeroStageEnum.weights:
        raise ValueError("offload_optimizer.ratio below 1 is of stage 3")
    return self


def check_offload(self: Any) -> Any:
    self.__dict__["pipeline"] = self.pipeline_read or self.pipeline_write
    return self


def check_fp16(self: Any) -> Any:
    for name in ("loss_scale_window", "min_loss_scale"):
        if self.enabled and self.loss_scale == 0 and getattr(self, name) <= 0:
            raise ValueError(f"fp16.{name} must be above 0: the loss scale is dynamic")
    return self


CHECKS = {
    "zero_optimization": check_zero,
    "zero_optimization.offload_optimizer": check_offload,
    "fp16": check_fp16,
}


class DeepSpeedActivationCheckpointingConfig:
    """The block activation_checkpointing of a whole config, as attributes."""

    def __init__(self, param_dict: Mapping[str, Any]) -> None:
        block = param_dict.get("activation_checkpointing") or {}
        for key in BY_PATH["activation_checkpointing"].keys:
            setattr(self, key.name, block.get(key.name, key.default))


class DeepSpeedConfig:
    """A whole config as attributes, with DeepSpeed's names and defaults.

    Args:
        config: a dict, a file, or the base64 of its text.
        mpu: get_data_parallel_world_size() of it is the number of ranks; else all are.
        mesh_device: as in DeepSpeed; its dimension "data_parallel" counts.

    Raises the errors of `parse`; ArgumentError if batch sizes are missing or contradict each other;
    ImportError if pydantic is not installed.
    """

    def __init__(self, config: Source, mpu: Any = None, mesh_device: Any = None) -> None:
        table = read(config)
        check_keys(table, policy() == "warn")
        self._param_dict = dict(config) if isinstance(config, Mapping) else table
        self.global_rank, self.world_size = place_of(mpu, mesh_device)
        block = {name: table.get(name) or {} for name in BLOCKS}
        for name in ATTRIBUTES:
            key = KEYS[""][name]
            value = table.get(name)
            value = key.default if value is None else value
            setattr(self, name, None if value is None else key.kind.take(value))
        zero = table.get("zero_optimization")
        zero = {"stage": int(zero)} if isinstance(zero, bool) else zero or {}
        self.zero_config = model("DeepSpeedZeroConfig")(**zero)
        self.zero_optimization_stage = self.zero_config.stage
        self.zero_enabled = self.zero_optimization_stage > 0
        self.float16_config = model("DeepSpeedFP16Config")(**block["fp16"])
        bf16 = table.get("bf16") or table.get("bfloat16") or {}
        self.bfloat16_config = model("DeepSpeedBF16Config")(**bf16)
        if self.float16_config.enabled and self.bfloat16_config.enabled:
            raise errors.argument("fp16 and bf16 are both enabled", advice="Choose one.")
        self.monitor_config = get_monitor_config(table)
        self.activation_checkpointing_config = DeepSpeedActivationCheckpointingConfig(table)
        self.aio_config = {
            key.name: block["aio"].get(key.name, key.default) for key in BY_PATH["aio"].keys
        }
        for name in ("optimizer", "scheduler"):
            setattr(self, f"{name}_name", block[name].get("type"))
            setattr(self, f"{name}_params", block[name].get("params"))
        if str(self.optimizer_name).lower() in LOWER_CASE:  # type: ignore[has-type]
            self.optimizer_name = self.optimizer_name.lower()  # type: ignore[has-type]
        types = block["data_types"]
        self.grad_accum_dtype = types.get("grad_accum_dtype")
        self.param_dtype, self.buffer_dtype = types.get("param_dtype"), types.get("buffer_dtype")
        autocast = block["torch_autocast"]
        self.torch_autocast_enabled = autocast.get("enabled", False)
        dtype = autocast.get("dtype")
        kind = KEYS["torch_autocast"]["dtype"].kind
        self.torch_autocast_dtype = None if dtype is None else kind.take(dtype)
        self.torch_autocast_lower_precision_safe_modules = autocast.get(
            "lower_precision_safe_modules"
        )
        checkpoint = block["checkpoint"]
        mode = str(checkpoint.get("tag_validation", "Warn")).lower()
        self.checkpoint_tag_validation_enabled = mode != "ignore"
        self.checkpoint_tag_validation_fail = mode == "fail"
        self.load_universal_checkpoint = checkpoint.get("load_universal", False)
        self.use_node_local_storage = checkpoint.get("use_node_local_storage", False)
        self.checkpoint_config = checkpoint
        self._complete_batches()

    def _complete_batches(self) -> None:
        from meron.zero.config.model import Config

        sizes = Config(
            train_batch_size=self.train_batch_size,  # type: ignore[has-type]
            micro_batch_size=self.train_micro_batch_size_per_gpu,  # type: ignore[has-type]
            accumulation_steps=self.gradient_accumulation_steps,  # type: ignore[has-type]
        )
        if sizes.train_batch_size is None and sizes.micro_batch_size is None:
            raise errors.argument(
                "neither train_batch_size nor train_micro_batch_size_per_gpu is given",
                subject="train_batch_size",
                advice="Give one of them.",
            )
        sizes.resolve(self.world_size)
        self.train_batch_size = sizes.train_batch_size
        self.train_micro_batch_size_per_gpu = sizes.micro_batch_size
        self.gradient_accumulation_steps = sizes.accumulation_steps

    def print_user_config(self) -> None:
        """Logs the config as it was given."""
        logger.info("%s", json.dumps(self._param_dict, indent=2, sort_keys=True, default=str))

    def print(self, name: str) -> None:
        """Logs all attributes, and the config as it was given."""
        logger.info("%s:", name)
        for key in sorted(vars(self)):
            if key != "_param_dict":
                logger.info("  %s = %s", key, getattr(self, key))
        self.print_user_config()


# Blocks that DeepSpeedConfig reads key by key, and top-level keys that are attributes of it.
BLOCKS = (*("fp16", "aio", "optimizer", "scheduler", "data_types", "torch_autocast", "checkpoint"),)
# Optimizers whose names DeepSpeed turns to lower case.
LOWER_CASE = (
    *("adagrad", "adam", "adamw", "lamb", "lion", "muon"),
    *("muadam", "muadamw", "musgd"),
)
ATTRIBUTES = [
    key.name
    for key in BY_PATH[""].keys
    if not isinstance(key.kind, (Table, Feature)) and type(key.kind) is not Kind
]


def place_of(mpu: Any, mesh: Any) -> tuple[int, int]:
    """This process's rank, and how many ranks share the data; 0 and 1 before ranks have met."""
    from meron.zero import comm

    rank, size = (comm.get_rank(), comm.get_world_size()) if comm.is_initialized() else (0, 1)
    if mpu is not None and hasattr(mpu, "get_data_parallel_world_size"):
        size = int(mpu.get_data_parallel_world_size())
    elif mesh is not None:
        size = int(mesh.get_group(mesh_dim="data_parallel").size())
    return rank, size
