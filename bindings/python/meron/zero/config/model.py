# SPDX-License-Identifier: Apache-2.0
"""What a config says, as plain data: a plan, limits of the schedule, options of an engine."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch

import meron
from meron import errors
from meron.torch.tensors import dtype_name
from meron.zero.config.offload import Offload
from meron.zero.config.topology import Topology

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
