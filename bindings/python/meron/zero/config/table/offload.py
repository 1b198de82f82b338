# SPDX-License-Identifier: Apache-2.0
"""The blocks of tiers: offload_param, offload_optimizer, aio."""

from __future__ import annotations

from typing import Any

from .kinds import Choice, Feature, FilePath, Flag, Kind, Number, Ratio, Whole
from .rows import Key, Section, idle, refused, works

OVERLAP = "reading, updating and writing overlap at all times"
NVME_PATH = works(
    "nvme_path", FilePath(), None, "the plan's `nvme.path`; made if it is absent", nullable=True
)
PIN_MEMORY = idle("pin_memory", Flag(), True, "memory is pinned within the system's limit")


def tier(says: str) -> Key:
    return works("device", Choice("none", "cpu", "nvme"), "none", says)


def buffers(name: str, kind: Kind, default: int, says: str) -> Key:
    """A size of buffers, which the plan chooses where it is not given."""
    why = "the plan sizes its own buffers"
    return works(name, kind, default, says, own=None, wide=Whole(), why=why)


def tuned(name: str, kind: Kind, default: int, says: str, **more: Any) -> Key:
    """A setting of reads and writes, which is measured where it is not given."""
    why = "the plan has its own, or the measured one"
    return works(name, kind, default, says, own=None, why=why, **more)


PARAM = (
    tier("the tier of parameters, at stage 3"),
    NVME_PATH,
    buffers("buffer_count", Whole(1, 1024), 5, "`buffers`: units in memory because they change"),
    buffers(
        "buffer_size", Whole(1), 100_000_000, "a bound: an error gives the size that is needed"
    ),
    works(
        "max_in_cpu",
        Whole(),
        10**9,
        "`resident`: elements that a rank keeps in memory",
        own=0,
        why="`nvme` means that memory is short",
    ),
    PIN_MEMORY,
)

OPTIMIZER = (
    tier("the tier of states, at stages 1 to 3"),
    NVME_PATH,
    buffers("buffer_count", Whole(2, 1024), 4, "`buffers`: pieces of states in memory"),
    works(
        "ratio",
        Ratio(),
        1.0,
        '`fraction` of the states on NVMe; "auto" derives it from the rates that '
        "`meron io-bench PATH --save` has measured",
        wide=Ratio(over=False),
    ),
    idle("pipeline_read", Flag(), False, OVERLAP),
    idle("pipeline_write", Flag(), False, OVERLAP),
    idle("pipeline", Flag(), False, OVERLAP),
    PIN_MEMORY,
    idle("fast_init", Flag(), False, "states are written once, at the start"),
    idle("cpuadam_cores_perc", Number(0, 1), 0.8, "threads are the context's"),
    refused(
        "super_offload",
        Feature("bool"),
        False,
        'Set `"device": "cpu"`: the step runs on the host.',
    ),
)

AIO = (
    tuned("block_size", Whole(1), 1048576, "`nvme.block`, in whole pages of 4096 bytes"),
    tuned("queue_depth", Whole(1), 8, "`nvme.depth`"),
    tuned(
        "intra_op_parallelism",
        Whole(1, 64),
        1,
        "`nvme.threads`, where the kernel refuses io_uring",
        also=("thread_count",),
    ),
    idle("single_submit", Flag(), False, "requests are submitted together at all times"),
    idle("overlap_events", Flag(), True, "requests overlap at all times"),
    refused(
        "use_gds",
        Feature("bool"),
        False,
        "Remove it: files are read by io_uring into pinned memory, and copied to the device.",
    ),
)

SECTIONS = (
    Section("zero_optimization.offload_param", "Offloaded parameters", PARAM),
    Section("zero_optimization.offload_optimizer", "Offloaded optimizer states", OPTIMIZER),
    Section("aio", "Files on NVMe", AIO, lenient=True),
)
