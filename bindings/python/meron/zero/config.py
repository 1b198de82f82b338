# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's JSON config as a plan, limits of the schedule and an engine's options. Pure data."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import torch

import meron
from meron import errors
from meron._files import read_text
from meron.torch.tensors import dtype_name
from meron.zero.keys import check_keys, without_auto
from meron.zero.offload import Offload, take_offload
from meron.zero.precision import take_gradient_dtypes
from meron.zero.topology import Topology

Source = Union[str, "os.PathLike[str]", "Mapping[str, Any]", None]

DTYPES = {
    "fp32": torch.float32,
    "float32": torch.float32,
    "fp16": torch.float16,
    "float16": torch.float16,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
}

# Keys of zero_optimization, by the limit of the schedule that they set.
LIMITS = {
    "prefetch_elements": "prefetch_bucket_size",
    "max_live_elements": "max_live_parameters",
    "max_reuse_elements": "max_reuse_distance",
    "persist_elements": "param_persistence_threshold",
    "persist_total_elements": "model_persistence_threshold",
}

FEEDBACK = (0.8, 1024)  # of zeropp_loco_param: err_beta, reset_T

# Whose experts are leaves unless the config names other classes.
KNOWN_MIXTURES = (
    "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
)


@dataclass
class Fp16:
    """The loss scale of fp16."""

    loss_scale: float = 0.0  # 0: dynamic
    initial_scale_power: int = 16
    loss_scale_window: int = 1000
    hysteresis: int = 2
    consecutive_hysteresis: bool = False
    min_loss_scale: float = 1.0
    auto_cast: bool = False


@dataclass
class LeafModules:
    """Which modules are gathered as one."""

    classes: list[str] = field(default_factory=lambda: list(KNOWN_MIXTURES))
    names: list[str] = field(default_factory=list)
    name_suffixes: list[str] = field(default_factory=list)
    granularity: int = 0  # params per module below which a module is a leaf; 0 is off


@dataclass
class Config:
    """What a config says. Batch sizes that it leaves out are None until `resolve`."""

    stage: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    gradient_dtype: torch.dtype | None = None  # that they are written in; None is the params'
    accumulation_dtype: torch.dtype | None = None  # that is asked for
    topology: Topology = field(default_factory=Topology)
    dtype: torch.dtype | None = None  # of params; None leaves them as they are
    buffer_dtype: torch.dtype | None = None
    fp16: Fp16 | None = None
    check_overflow: bool = False
    train_batch_size: int | None = None
    micro_batch_size: int | None = None
    accumulation_steps: int | None = None
    managed_accumulation: bool = True
    clipping: float = 0.0
    optimizer: tuple[str, dict[str, Any]] | None = None
    scheduler: tuple[str, dict[str, Any]] | None = None
    leaf: LeafModules = field(default_factory=LeafModules)
    override_apply: bool = True
    sanity_checks: bool = False
    offload: Offload = field(default_factory=Offload)
    drop_last: bool = False
    tag_validation: str = "warn"  # of a checkpoint's tag: "ignore", "warn" or "fail"
    node_local_checkpoints: bool = False  # each node saves on its own disk
    gather_weights: bool = True  # whether rank 0 may be given all weights, to save them
    without_effect: list[str] = field(default_factory=list, compare=False)  # keys that it has
    told: list[str] = field(default_factory=list, compare=False)  # why rows are not on the device

    def plan(self) -> meron.Plan:
        """The plan of the stage and its topology, on the host. ArgumentError for keys that
        contradict."""
        return meron.Plan.parse(self.table())

    def table(self) -> dict[str, Any]:
        """The same as a table of JSON."""
        table = self.topology.table(self.stage)
        table["name"] = json.loads(meron.Plan.parse(table).json())["name"]
        self.offload.add_to(table)
        if self.gradient_dtype is not None:
            name = dtype_name(self.gradient_dtype, "communication_data_type")
            table.setdefault("gradient", {})["dtype"] = name
        return table

    def param_ranks(self, world_size: int) -> int:
        """Over how many ranks the params of stage 3 are cut."""
        return self.topology.mics or world_size

    def limits_of(self, world_size: int) -> dict[str, int]:
        """The limits of the schedule."""
        return self.offload.limit(self.limits, self.param_ranks(world_size))

    def resolve(self, world_size: int) -> None:
        """Completes train batch = micro batch x accumulation steps x ranks from what is given.

        Raises ArgumentError when the three do not fit.
        """
        train, micro, steps = self.train_batch_size, self.micro_batch_size, self.accumulation_steps
        if steps is None:
            if train is not None and micro is not None:
                steps = train // (micro * world_size)
            else:
                steps = 1
        if micro is None and train is not None:
            micro = train // (steps * world_size)
        if train is None and micro is not None:
            train = micro * steps * world_size
        if train is not None and micro is not None and train != micro * steps * world_size:
            raise errors.argument(
                f"train_batch_size {train} is not train_micro_batch_size_per_gpu {micro} x "
                f"gradient_accumulation_steps {steps} x {world_size} ranks",
                subject="train_batch_size",
                advice="Leave one of the three out: it follows from the others.",
            )
        if steps < 1 or (micro is not None and micro < 1):
            raise errors.argument(
                f"train_batch_size {train} is too small for {world_size} ranks and {steps} "
                "accumulation steps",
                subject="train_batch_size",
            )
        self.train_batch_size, self.micro_batch_size = train, micro
        self.accumulation_steps = steps


def read(source: Source) -> dict[str, Any]:
    """A config as a dict, from a dict or a JSON file, without values that are "auto"."""
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return dict(without_auto(source))
    try:
        text = read_text(source)
    except FileNotFoundError:
        raise errors.argument(f"there is no config file {os.fspath(source)!r}") from None
    try:
        table = json.loads(text, object_pairs_hook=unique_keys)
    except ValueError as error:
        raise errors.ParseError(
            f"{os.fspath(source)}: {error}", subject=os.fspath(source)
        ) from None
    if not isinstance(table, dict):
        raise errors.ParseError(f"{os.fspath(source)} holds no JSON object")
    return dict(without_auto(table))


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {key!r} occurs twice")
        table[key] = value
    return table


def parse(source: Source) -> Config:
    """A config from a dict or the path of a JSON file.

    Raises ArgumentError for unknown keys (all of them, with the nearest known ones) and for values
    of a wrong type or range, UnsupportedError for keys that switch on what Meron does not have.
    """
    table = read(source)
    config = Config(without_effect=check_keys(table))
    top = Block("", table)
    take_zero(config, table.get("zero_optimization"), top)
    take_dtypes(config, table)
    config.train_batch_size = top.whole("train_batch_size", None, 1)
    config.micro_batch_size = top.whole("train_micro_batch_size_per_gpu", None, 1)
    config.accumulation_steps = top.whole("gradient_accumulation_steps", None, 1)
    config.managed_accumulation = top.flag("managed_gradient_accumulation", True)
    config.clipping = top.number("gradient_clipping", 0.0)
    config.drop_last = top.flag("dataloader_drop_last", False)
    config.tag_validation = take_tag_validation(top.block("checkpoint"))
    config.node_local_checkpoints = top.block("checkpoint").flag("use_node_local_storage", False)
    take_gradient_dtypes(config, top)
    config.optimizer = take_kind(top.block("optimizer"))
    config.scheduler = take_kind(top.block("scheduler"))
    return config


def take_tag_validation(block: Block) -> str:
    value = block.table.get("tag_validation", "Warn")
    if not isinstance(value, str) or value.lower() not in ("ignore", "warn", "fail"):
        raise block.wrong("tag_validation", '"Ignore", "Warn" or "Fail"')
    return value.lower()


def take_kind(block: Block) -> tuple[str, dict[str, Any]] | None:
    """What a block of `type` and `params` names."""
    kind, params = block.table.get("type"), block.block("params").table
    if isinstance(kind, str):
        return kind, dict(params)
    if kind is not None or params:
        raise errors.argument(
            f"{block.path}.type must be a name, not {kind!r}",
            subject=f"{block.path}.type",
            advice="Give it, or leave params out too.",
        )
    return None


def take_zero(config: Config, table: Any, top: Block) -> None:
    if table is None:
        return
    if isinstance(table, bool):
        config.stage = int(table)  # the oldest form
        return
    zero = Block("zero_optimization", table)
    config.stage = zero.whole("stage", 0, 0, 3) or 0
    for limit, key in LIMITS.items():
        value = zero.whole(zero.one_of(f"stage3_{key}", key), None, 0)
        if value is not None:
            # DeepSpeed's "no limit".
            config.limits[limit] = 2**64 - 1 if value >= sys.maxsize else value
    config.topology = take_topology(zero)
    config.topology.check(config.stage)
    config.offload = take_offload(zero, top)
    leaf = zero.block("leaf_module")
    config.leaf = LeafModules(
        leaf.words("classes") if leaf.table.get("classes") is not None else list(KNOWN_MIXTURES),
        leaf.words("names"),
        leaf.words("name_suffixes"),
        zero.whole("stage3_module_granularity_threshold", 0, 0) or 0,
    )
    gather = "gather_16bit_weights_on_model_save"
    config.gather_weights = zero.flag(zero.one_of(f"stage3_{gather}", gather), True)
    config.override_apply = zero.flag("override_module_apply", True)
    config.sanity_checks = zero.flag("enable_sanity_checks", False)


def take_topology(zero: Block) -> Topology:
    loco = zero.block("zeropp_loco_param")
    feedback = None
    if zero.table.get("zeropp_loco_param") is not None:
        beta = loco.number("err_beta", FEEDBACK[0])
        if beta >= 1:
            raise loco.wrong("err_beta", "a number of at least 0 and below 1")
        feedback = (beta, loco.whole("reset_T", FEEDBACK[1], 1, 2**30) or 0)
    return Topology(
        mics=max(zero.whole("mics_shard_size", -1, -1) or 0, 0),
        hpz=zero.whole("zero_hpz_partition_size", 1, 0) or 1,
        weights=zero.flag("zero_quantized_weights", False),
        frozen=zero.flag("zero_quantized_nontrainable_weights", False),
        gradients=zero.flag("zero_quantized_gradients", False),
        feedback=feedback,
    )


def take_dtypes(config: Config, table: dict[str, Any]) -> None:
    top = Block("", table)
    fp16 = top.block("fp16")
    bf16 = top.block(top.one_of("bf16", "bfloat16"))
    types = top.block("data_types")
    config.dtype = types.dtype("param_dtype")
    config.buffer_dtype = types.dtype("buffer_dtype")
    on = fp16.flag("enabled", False), bf16.flag("enabled", False)
    if all(on):
        raise errors.argument("fp16 and bf16 are both enabled", advice="Choose one.")
    if on[0]:
        config.dtype = torch.float16
        config.check_overflow = True
        config.fp16 = Fp16(
            loss_scale=fp16.number("loss_scale", 0.0),
            initial_scale_power=fp16.whole("initial_scale_power", 16, 0, 60) or 0,
            loss_scale_window=fp16.whole("loss_scale_window", 1000, 1) or 1,
            hysteresis=fp16.whole("hysteresis", 2, 1) or 1,
            consecutive_hysteresis=fp16.flag("consecutive_hysteresis", False),
            min_loss_scale=fp16.number("min_loss_scale", 1.0),
            auto_cast=fp16.flag("auto_cast", False),
        )
        if config.fp16.min_loss_scale <= 0:
            raise errors.argument("fp16.min_loss_scale must be above 0", "fp16.min_loss_scale")
    elif on[1]:
        config.dtype = torch.bfloat16
        config.check_overflow = bf16.flag("check_grad_overflow", True)
    asked = types.dtype("param_dtype")
    if any(on) and asked not in (None, config.dtype):
        raise errors.argument(
            f"data_types.param_dtype is {asked}, but {'fp16' if on[0] else 'bf16'} is enabled",
            subject="data_types.param_dtype",
            advice="Leave one of them out.",
        )


class Block:
    """A block of a config, whose values are checked as they are taken."""

    def __init__(self, path: str, table: Any) -> None:
        self.path = path
        if not isinstance(table, Mapping):
            raise errors.argument(f"{path} must be an object, not {table!r}", subject=path)
        self.table = table

    def wrong(self, key: str, wanted: str) -> errors.ArgumentError:
        full = f"{self.path}.{key}" if self.path else key
        return errors.argument(f"{full} must be {wanted}, not {self.table[key]!r}", subject=full)

    def one_of(self, name: str, old_name: str) -> str:
        """Which of two names of a key is there; ArgumentError for both."""
        if self.table.get(old_name) is None:
            return name
        if self.table.get(name) is not None:
            prefix = f"{self.path}." if self.path else ""
            raise errors.argument(
                f"{prefix}{name} and {prefix}{old_name} are two names of one key",
                subject=prefix + name,
                advice="Remove one of them.",
            )
        return old_name

    def block(self, key: str) -> Block:
        value = self.table.get(key)
        full = f"{self.path}.{key}" if self.path else key
        return Block(full, {} if value is None else value)

    def whole(self, key: str, default: int | None, low: int, high: int | None = None) -> int | None:
        """A whole number; 5e8 is one too."""
        value = self.table.get(key)
        if value is None:
            return default
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or value < low or (high and value > high):
            limits = f"from {low} to {high}" if high else f"of at least {low}"
            raise self.wrong(key, f"a whole number {limits}")
        return int(value)

    def number(self, key: str, default: float) -> float:
        """A finite number of at least 0."""
        value = self.table.get(key)
        if value is None:
            return default
        fine = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fine or not math.isfinite(value) or value < 0:
            raise self.wrong(key, "a number of at least 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.table.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def words(self, key: str) -> list[str]:
        value = self.table.get(key)
        if value is None:
            return []
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, (list, tuple)) or not all(isinstance(w, str) for w in words):
            raise self.wrong(key, "a list of names")
        return list(dict.fromkeys(words))

    def dtype(self, key: str) -> torch.dtype | None:
        value = self.table.get(key)
        if value is None or isinstance(value, torch.dtype):
            return value
        if value not in DTYPES:
            raise self.wrong(key, "fp32, fp16 or bf16")
        return DTYPES[value]
