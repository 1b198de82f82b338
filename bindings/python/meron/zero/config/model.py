# SPDX-License-Identifier: Apache-2.0
"""A config as plain data: a plan, limits of the schedule, options of an engine."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

import meron
import meron.torch as mt
from meron import errors
from meron.torch.tensors import dtype_name
from meron.zero.config.block import Block, take
from meron.zero.config.offload import Offload
from meron.zero.config.precision import Autocast, Fp16
from meron.zero.config.table import BY_PATH, KEYS, KNOWN_MIXTURES
from meron.zero.config.topology import Topology


@dataclass
class LeafModules:
    """Modules that are gathered as one unit."""

    classes: list[str] = field(default_factory=lambda: list(KNOWN_MIXTURES))
    names: list[str] = field(default_factory=list)
    name_suffixes: list[str] = field(default_factory=list)
    granularity: int = 0  # params per module below which a module is a leaf; 0 is off


@dataclass
class Activations:
    """How activations are checkpointed, as meron.checkpointing.configure takes it."""

    partition_activations: bool = False
    cpu_checkpointing: bool = False
    contiguous_memory_optimization: bool = False
    number_checkpoints: int | None = None
    synchronize_checkpoint_boundary: bool = False
    profile: bool = False


@dataclass
class Reports:
    """What rank 0 prints.

    Attributes:
        every: steps between two reports; None and inf are none, and for breakdowns the default.
    """

    times: bool = False
    memory: bool = False
    every: float | None = None
    config: bool = False
    log_level: str | None = None


@dataclass
class Config:
    """The values of a config. Batch sizes that it leaves out are None until `resolve`."""

    stage: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    gradient_dtype: torch.dtype | None = None  # that they are written in; None: the plan's
    accumulation_dtype: torch.dtype | None = None  # that is asked for
    topology: Topology = field(default_factory=Topology)
    dtype: torch.dtype | None = None  # of params; None leaves them as they are
    buffer_dtype: torch.dtype | None = None
    fp16: Fp16 | None = None
    autocast: Autocast | None = None  # around the engine's forward
    bf16_values: bool = False  # optimizers update bf16 values in place: there are no f32 ones
    bf16_states: bool = False  # of optimizers
    sums: bool = False  # gradients are not divided by the number of ranks
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
    load_universal: bool = False  # the file latest_universal counts before latest
    write_model_states: bool = False  # a file of torch.save beside each checkpoint's own
    gather_weights: bool = True  # whether rank 0 may be given all weights, to save them
    activations: Activations | None = None  # None: the config does not have the block
    reports: Reports = field(default_factory=Reports)
    monitors: dict[str, dict[str, Any]] = field(default_factory=dict)  # values of those that are on
    table: dict[str, Any] = field(default_factory=dict, compare=False)  # the config as it was read
    unknown: list[str] = field(default_factory=list, compare=False)  # keys that are ignored
    warned: list[tuple[str, str]] = field(default_factory=list, compare=False)  # keys, with advice
    without_effect: list[str] = field(default_factory=list, compare=False)  # keys that it has
    told: list[str] = field(default_factory=list, compare=False)  # why rows are not on the device

    def value(self, path: str) -> Any:
        """The value of a key by its path, such as "fp16.auto_cast"; DeepSpeed's default if the
        config lacks it."""
        places, _, name = path.rpartition(".")
        block = Block("", self.table)
        for place in places.split(".") if places else ():
            inner = block.table.get(block.name_of(place))
            if not isinstance(inner, Mapping):
                return KEYS[places][name].default
            block = block.block(place)
        key = KEYS[places][name]
        found = block.name_of(name)
        value = block.table.get(found)
        return key.default if value is None else take(places, key, found, value, wide=True)

    def block_values(self, path: str) -> types.SimpleNamespace | None:
        """The values of a block, DeepSpeed's defaults included; None if the config lacks it."""
        block: Any = self.table
        for name in path.split("."):
            block = block.get(name) if isinstance(block, Mapping) else None
        if not isinstance(block, Mapping):
            return None
        names = [key.name for key in BY_PATH[path].keys]
        return types.SimpleNamespace(**{name: self.value(f"{path}.{name}") for name in names})

    def monitor_blocks(self) -> dict[str, types.SimpleNamespace]:
        """The blocks of the monitors that are on, as attributes."""
        return {name: types.SimpleNamespace(**block) for name, block in self.monitors.items()}

    def clip_as_deepspeed(self) -> None:
        """A config without `gradient_clipping` clips at DeepSpeed's default."""
        key = KEYS[""]["gradient_clipping"]
        if self.table.get(key.name) is None:
            self.clipping = key.default

    @property
    def given_clipping(self) -> float:
        """The clipping that the config itself has; 0 if it has none."""
        return self.clipping if self.table.get("gradient_clipping") is not None else 0.0

    @property
    def scaling(self) -> Fp16 | None:
        """The loss scale, of fp16 or of autocast in fp16."""
        return self.fp16 or (self.autocast.scaling if self.autocast is not None else None)

    @property
    def in_place(self) -> mt.InPlace | None:
        """How torch's optimizers update bf16 values themselves: to nearest, as DeepSpeed does. None
        if they update f32 ones."""
        if not self.bf16_values:
            return None
        states = torch.bfloat16 if self.bf16_states else torch.float32
        return mt.InPlace(states=states, values="nearest")

    def check_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """UnsupportedError for an optimizer whose states cannot be as the config has them."""
        self.offload.check_optimizer(optimizer)
        own = isinstance(optimizer, mt.EngineOptimizer)
        name = type(optimizer).__name__
        if own and self.bf16_values:
            raise errors.UnsupportedError(
                f"bf16.bf16_master_weights_and_grads is true, and meron.torch.{name} updates f32 "
                "values",
                subject="bf16.bf16_master_weights_and_grads",
                advice="Name the optimizer in the config, or pass one of torch.optim.",
            )
        if not own and self.bf16_states and not self.bf16_values:
            raise errors.UnsupportedError(
                f"bf16.bf16_optimizer_states is true, and the states of {name} are torch's own, in "
                "f32",
                subject="bf16.bf16_optimizer_states",
                advice="Name Adam, AdamW, Adagrad, Lion or SGD in the config's optimizer block, or "
                "set bf16.bf16_master_weights_and_grads too.",
            )

    def plan(self) -> meron.Plan:
        """The plan of the stage and its topology, on the host. ArgumentError for keys that
        contradict."""
        return meron.Plan.parse(self.plan_table())

    def plan_table(self) -> dict[str, Any]:
        """The same as a table of JSON."""
        table = self.topology.table(self.stage)
        table["name"] = json.loads(meron.Plan.parse(table).json())["name"]
        self.offload.add_to(table)
        if self.bf16_states and not self.bf16_values:
            table.setdefault("optimizer", {})["dtype"] = "bf16"
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

    @staticmethod
    def require_multiple(train: int, micro: int, world_size: int) -> None:
        """ArgumentError if a train batch is not a number of micro batches of all ranks."""
        if micro > 0 and (train < micro * world_size or train % (micro * world_size)):
            raise errors.argument(
                f"train_batch_size {train} is not a multiple of train_micro_batch_size_per_gpu "
                f"{micro} x {world_size} ranks = {micro * world_size}",
                subject="train_batch_size",
                advice="Leave one of the two out, or change it.",
            )

    def resolve(self, world_size: int) -> None:
        """Completes train batch = micro batch x accumulation steps x ranks from what is given.

        Raises ArgumentError when the three do not fit.
        """
        train, micro, steps = self.train_batch_size, self.micro_batch_size, self.accumulation_steps
        if steps is None:
            if train is not None and micro is not None:
                self.require_multiple(train, micro, world_size)
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
