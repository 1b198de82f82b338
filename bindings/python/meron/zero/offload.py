# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's offload and aio blocks as the tiers of a plan. Pure data.

State lies in host memory in any case, so `cpu` asks for nothing more; `nvme` moves the optimizer's
states to a drive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

import meron.torch as mt
from meron import errors

if TYPE_CHECKING:
    from meron.zero.config import Block

DEVICES = ("none", "cpu", "nvme")
# Elements of states that are moved together at most. DeepSpeed's default of 1e9 is a bound on what
# is in memory at a time; here a small piece is enough to keep a drive busy.
MOST_SUB_GROUP = 8 << 20
PAGE = 4096


@dataclass
class Offload:
    """Where optimizer states lie, and how the drive is used."""

    nvme_path: str | None = None  # None: in memory
    fraction: float = 1.0
    buffers: int | None = None
    sub_group: int | None = None
    aio: dict[str, int] = field(default_factory=dict)  # keys of the plan's `nvme`
    told: list[str] = field(default_factory=list, compare=False)  # what became of which key

    def check_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """UnsupportedError for one whose states torch keeps, where they are to lie on nvme."""
        if self.nvme_path is None or isinstance(optimizer, mt.AdamW):
            return
        raise errors.UnsupportedError(
            f"offload_optimizer.device is nvme, and the states of {type(optimizer).__name__} are "
            "torch's own, in memory",
            subject="zero_optimization.offload_optimizer.device",
            advice="Name AdamW in the config's optimizer block, or make a meron.torch.AdamW: its "
            "states are the engine's.",
        )

    def add_to(self, table: dict[str, Any]) -> None:
        """Sets the tier in a plan's table."""
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
        table["nvme"] = {"path": self.nvme_path, **self.aio}


def device_of(block: Block) -> str:
    device = block.table.get("device")
    if device is None:
        return "none"
    if device not in DEVICES:
        raise block.wrong("device", "none, cpu or nvme")
    return str(device)


def take_offload(zero: Block, top: Block) -> Offload:
    """The tiers that a config asks for.

    ArgumentError for keys that contradict each other, or a path that is missing; UnsupportedError
    for parameters on nvme.
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
    if device_of(param) == "nvme":
        raise errors.UnsupportedError(
            f"Meron does not have yet: {param.path}.device = 'nvme'",
            subject=f"{param.path}.device",
            advice="Leave parameters in host memory, and offload the optimizer.",
        )
    optimizer = zero.block("offload_optimizer")
    aio = top.block("aio")
    device = device_of(optimizer)
    if device == "nvme":
        take_optimizer(offload, optimizer, zero)
        take_aio(offload, aio)
    elif aio.table:
        offload.told.append("aio: nothing is on nvme")
    return offload


def take_optimizer(offload: Offload, block: Block, zero: Block) -> None:
    path = block.table.get("nvme_path")
    if not isinstance(path, str) or not path:
        raise errors.argument(
            f"{block.path}.device is nvme, and nvme_path names no folder",
            subject=f"{block.path}.nvme_path",
            advice="Give a folder on the drive.",
        )
    offload.nvme_path = path
    if (zero.whole("stage", 0, 0, 3) or 0) < 1:
        raise errors.argument(
            f"{block.path}.device is nvme at stage 0",
            subject=f"{block.path}.device",
            advice="Take stage 1, 2 or 3: each rank then offloads its own part.",
        )
    offload.fraction = block.number("ratio", 1.0)
    if not 0 < offload.fraction <= 1:
        raise block.wrong("ratio", "above 0 and at most 1")
    offload.buffers = block.whole("buffer_count", None, 2, 1024)
    size = zero.whole("sub_group_size", None, 1)
    if size is not None:
        fits = min(-(-size // PAGE) * PAGE, MOST_SUB_GROUP)
        offload.sub_group = fits
        if fits != size:
            offload.told.append(f"sub_group_size {size}: {fits} elements are moved together")
    for key in ("pipeline_read", "pipeline_write"):
        if block.table.get(key) is False:
            offload.told.append(f"{key}: reading, updating and writing overlap at all times")


def take_aio(offload: Offload, block: Block) -> None:
    names = {"block_size": "block", "queue_depth": "depth"}
    for key, name in names.items():
        value = block.whole(key, None, 1)
        if value is None:
            continue
        fits = -(-value // PAGE) * PAGE if name == "block" else value
        offload.aio[name] = fits
        offload.told.append(f"aio.{key} {value}: nvme.{name} {fits}")
    threads = [
        value
        for key in ("intra_op_parallelism", "thread_count")
        if (value := block.whole(key, None, 1, 64)) is not None
    ]
    if len(set(threads)) > 1:
        raise errors.argument(
            "aio.intra_op_parallelism and aio.thread_count are two names of one key",
            subject="aio.thread_count",
            advice="Remove one of them.",
        )
    if threads:
        offload.aio["threads"] = threads[0]
        offload.told.append(f"aio threads {threads[0]}: where the kernel has no io_uring")
    for key in ("single_submit", "overlap_events"):
        if block.table.get(key) is not None:
            offload.told.append(f"aio.{key}: requests gather and overlap at all times")
