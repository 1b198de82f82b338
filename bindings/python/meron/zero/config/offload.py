# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's offload and aio blocks as the tiers of a plan. Pure data.

A config's plan holds state in host memory, so `cpu` changes no entry. `nvme` moves the optimizer's
states, or the params, to a drive.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import meron.torch as mt
from meron import errors
from meron._files import open_regular

if TYPE_CHECKING:
    from meron.zero.config.block import Block

# Elements of states that are moved together at most. DeepSpeed's default of 1e9 is a bound on what
# is in memory at a time; here a small piece is enough to keep a drive busy.
MOST_SUB_GROUP = 8 << 20
PAGE = 4096
MEASURED = "meron-nvme.json"  # as `meron io-bench DIR --save` names it, in DIR
RATES = ("read", "write", "both", "update")
DEFAULT_PARAM_BUFFERS = 5  # as the plan has it


@dataclass
class Offload:
    """Where optimizer states and params lie, and how the drive is used."""

    param: str = field(default="none", compare=False)  # or "cpu" or "nvme", as the config has it
    optimizer: str = field(default="none", compare=False)
    nvme_path: str | None = None  # of the states; None: in memory
    param_path: str | None = None  # of the params
    # A folder that the config names, for engine.offload_states if nothing is on a drive.
    spare_path: str | None = field(default=None, compare=False)
    resident: int = 0  # elements of params that stay in memory on each rank
    param_buffers: int | None = None
    buffer_elements: int | None = None  # of each, as the config has it
    fraction: float | str = 1.0  # "auto": by `rates`
    rates: dict[str, int] | None = None
    buffers: int | None = None
    sub_group: int | None = None
    aio: dict[str, int] = field(default_factory=dict)  # keys of the plan's `nvme`
    told: list[str] = field(default_factory=list, compare=False)  # what became of which key

    def check_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """UnsupportedError for one whose states torch keeps, where they are to lie on nvme."""
        if isinstance(optimizer, mt.EngineOptimizer):
            return
        if self.param_path is not None:
            raise errors.UnsupportedError(
                f"offload_param.device is nvme, and {type(optimizer).__name__} holds the values "
                "that it updates in memory",
                subject="zero_optimization.offload_param.device",
                advice="Name the optimizer in the config's optimizer block, or make one of "
                "meron.torch.",
            )
        if self.nvme_path is None:
            return
        raise errors.UnsupportedError(
            f"offload_optimizer.device is nvme, and the states of {type(optimizer).__name__} are "
            "torch's own, in memory",
            subject="zero_optimization.offload_optimizer.device",
            advice="Name Adam, AdamW, Adagrad, Lion or SGD in the config's optimizer block, with "
            "all trainable params, or make one of meron.torch: its states are the engine's.",
        )

    def check_units(self, units: dict[str, int], ranks: int) -> None:
        """ArgumentError where a unit does not fit a buffer. `units`: their elements, by name."""
        if self.buffer_elements is None or not units:
            return
        name = max(units, key=lambda each: units[each])
        needed = -(-units[name] // ranks)
        if needed > self.buffer_elements:
            raise errors.argument(
                f"offload_param.buffer_size is {self.buffer_elements}, and of {name} each of "
                f"{ranks} ranks has {needed} elements",
                subject="zero_optimization.offload_param.buffer_size",
                advice=f"Give at least {needed}, or leave it out: Meron sizes its own buffers.",
            )

    def limit(self, limits: dict[str, int], ranks: int) -> dict[str, int]:
        """Limits of a schedule by which what is gathered ahead or kept fits the buffers."""
        if self.buffer_elements is None:
            return limits
        most = self.buffer_elements * (self.param_buffers or DEFAULT_PARAM_BUFFERS) * ranks
        return {**limits, "max_live_elements": min(most, limits.get("max_live_elements", most))}

    def folders(self) -> set[str]:
        """The folders on drives that the config names."""
        return {path for path in (self.nvme_path, self.param_path) if path is not None}

    def folder(self) -> str | None:
        """For states that leave memory for a phase; None is that of the plan, if it has one."""
        on_drive = self.nvme_path is not None or self.param_path is not None
        return None if on_drive else self.spare_path

    def add_to(self, table: dict[str, Any]) -> None:
        """Sets the tiers in a plan's table."""
        path = self.nvme_path or self.param_path
        if path is None:
            return
        table["nvme"] = {"path": path, **self.aio}
        if self.rates is not None:
            table["nvme"]["rates"] = self.rates
        if self.param_path is not None:
            row = table.setdefault("param", {})
            row["tier"] = "nvme"
            row["resident"] = self.resident
            if self.param_buffers is not None:
                row["buffers"] = self.param_buffers
        if self.nvme_path is None:
            return
        row = table.setdefault("optimizer", {})
        row["tier"] = "nvme"
        if self.fraction != 1.0:
            row["fraction"] = self.fraction
        if self.buffers is not None:
            row["buffers"] = self.buffers
        if self.sub_group is not None:
            row["sub_group"] = self.sub_group


def take_offload(zero: Block, top: Block) -> Offload:
    """The tiers that a config asks for.

    ArgumentError for keys that contradict each other, or a path that is missing.
    """
    offload = Offload()
    for old, new in (("cpu_offload", "offload_optimizer"), ("cpu_offload_param", "offload_param")):
        if zero.table.get(old) is not None and zero.table.get(new) is not None:
            raise errors.argument(
                f"{zero.path}.{old} and {zero.path}.{new} are both given",
                subject=f"{zero.path}.{old}",
                advice=f"Remove {old}: it is the old name of {new} with device cpu.",
            )
    param = zero.block("offload_param")
    offload.param = str(param.get("device"))
    if zero.get("cpu_offload_param"):
        offload.param = "cpu"
    if offload.param == "nvme":
        take_param(offload, param, zero)
    optimizer = zero.block("offload_optimizer")
    aio = top.block("aio")
    offload.optimizer = str(optimizer.get("device"))
    if zero.get("cpu_offload"):
        offload.optimizer = "cpu"
    if offload.optimizer == "nvme":
        take_optimizer(offload, optimizer, zero)
    offload.spare_path = optimizer.get("nvme_path") or param.get("nvme_path")
    if None not in (offload.nvme_path, offload.param_path) and (
        offload.nvme_path != offload.param_path
    ):
        raise errors.argument(
            f"{param.path}.nvme_path is {offload.param_path!r}, and {optimizer.path}.nvme_path "
            f"{offload.nvme_path!r}",
            subject=f"{param.path}.nvme_path",
            advice="Name one folder: each rank has one file for all that it keeps on nvme.",
        )
    if offload.nvme_path is not None or offload.param_path is not None:
        take_aio(offload, aio)
    elif aio.table:
        offload.told.append("aio: nothing is on nvme")
    return offload


def require_stage(block: Block, zero: Block, least: int, stages: str, why: str) -> None:
    """ArgumentError for nvme at a stage at which ranks have no shards of these values."""
    if zero.get("stage") < least:
        raise errors.argument(
            f"{block.path}.device is nvme {why}",
            subject=f"{block.path}.device",
            advice=f"Take stage {stages}: each rank then offloads its shard.",
        )


def folder_of(block: Block) -> str:
    path = block.get("nvme_path")
    if not path:
        raise errors.argument(
            f"{block.path}.device is nvme, and nvme_path names no folder",
            subject=f"{block.path}.nvme_path",
            advice="Give a folder on the drive.",
        )
    return str(path)


def take_param(offload: Offload, block: Block, zero: Block) -> None:
    offload.param_path = folder_of(block)
    why = "below stage 3, and params are unsharded on every rank"
    require_stage(block, zero, 3, "3", why)
    offload.resident = block.get("max_in_cpu")
    offload.param_buffers = block.get("buffer_count")
    offload.buffer_elements = block.get("buffer_size")
    if offload.param_buffers is not None:
        offload.told.append(
            f"offload_param.buffer_count {offload.param_buffers}: so many units of changed params "
            "are in memory at most"
        )


def take_optimizer(offload: Offload, block: Block, zero: Block) -> None:
    offload.nvme_path = folder_of(block)
    require_stage(block, zero, 1, "1, 2 or 3", "at stage 0")
    ratio = block.get("ratio")
    if ratio == "auto":
        take_measured(offload, offload.nvme_path)
    else:
        offload.fraction = ratio
    offload.buffers = block.get("buffer_count")
    size = zero.get("sub_group_size")
    if size is not None:
        fits = min(-(-size // PAGE) * PAGE, MOST_SUB_GROUP)
        offload.sub_group = fits
        if fits != size:
            offload.told.append(f"sub_group_size {size}: {fits} elements are moved together")
    for key in ("pipeline_read", "pipeline_write"):
        if block.table.get(key) is False:
            offload.told.append(f"{key}: reading, updating and writing overlap at all times")


def take_measured(offload: Offload, folder: str) -> None:
    """Reads the best settings and the rates that `meron io-bench FOLDER --save` measured."""
    path = Path(folder) / MEASURED
    try:
        with open_regular(path) as file:
            nvme = json.loads(file.read())["nvme"]
        offload.rates = {key: int(nvme["rates"][key]) for key in RATES}
        offload.aio = {key: int(nvme[key]) for key in ("block", "depth", "threads")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.argument(
            f'offload_optimizer.ratio is "auto", and {path} does not tell how fast the drive is '
            f"({error})",
            subject="zero_optimization.offload_optimizer.ratio",
            advice=f"Run `meron io-bench {folder} --save`, or give a number.",
        ) from None
    offload.fraction = "auto"
    offload.told.append(f"ratio auto: by the rates in {path}")


def take_aio(offload: Offload, block: Block) -> None:
    names = {"block_size": "block", "queue_depth": "depth"}
    for key, name in names.items():
        value = block.get(key)
        if value is None:
            continue
        fits = -(-value // PAGE) * PAGE if name == "block" else value
        offload.aio[name] = fits
        offload.told.append(f"aio.{key} {value}: nvme.{name} {fits}")
    threads = block.get("intra_op_parallelism")
    if threads is not None:
        offload.aio["threads"] = threads
        offload.told.append(f"aio threads {threads}: where the kernel has no io_uring")
    for key in ("single_submit", "overlap_events"):
        if block.table.get(key) is not None:
            offload.told.append(f"aio.{key}: requests gather and overlap at all times")
