# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
"""Structs that the library fills, and the names of enums' values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The operation that combines values.
ReduceOp = Literal["sum", "mean", "max", "min"]
REDUCE_OPS: dict[str, int] = {"sum": 0, "mean": 1, "max": 2, "min": 3}

# Encoding of numbers that are sent between replicas; docs/plan.md has the details.
Codec = Literal["none", "bf16", "int8", "int4"]
CODECS: dict[str, int] = {"none": 0, "bf16": 1, "int8": 2, "int4": 3}

# State of a unit on this rank.
UnitState = Literal["partitioned", "gathering", "available", "updating"]
UNIT_STATES: dict[str, int] = {"partitioned": 0, "gathering": 1, "available": 2, "updating": 3}

# A state of an optimizer.
OptimizerState = Literal["master", "exp_avg", "exp_avg_sq"]
OPTIMIZER_STATES: dict[str, int] = {"master": 0, "exp_avg": 1, "exp_avg_sq": 2}

# The interface that moves the bytes.
IoBackend = Literal["auto", "io_uring", "threads"]
IO_BACKENDS: dict[str, int] = {"auto": 0, "io_uring": 1, "threads": 2}


@dataclass(frozen=True)
class Counted:
    """Counters since the context was opened, and the memory in use now, in bytes."""

    # shards of peers read in place, or fetched by devices
    gather_mapped_bytes: int
    # parts of peers copied
    gather_copied_bytes: int
    # gradients read from peers
    reduce_bytes: int
    # read from peers by broadcast and all-reduce
    collective_bytes: int
    # collectives begun
    operations: int
    # nanoseconds spent waiting for peers
    wait_ns: int
    # of values, held now
    param_bytes: int
    # of gradients, counted from the creation of a unit on
    gradient_bytes: int
    # of optimizer states, held now
    optimizer_bytes: int
    # of staging buffers, held now
    staging_bytes: int
    # of the control data that keeps the ranks in step, held now
    control_bytes: int
    # maximum of param + gradient + optimizer + staging
    peak_bytes: int
    # bytes of pages in this rank's arena
    arena_pages_bytes: int
    # gathered from ranks that share no memory, as on the wire
    inter_node_gather_bytes: int
    # reduced from such ranks, likewise
    inter_node_reduce_bytes: int
    # read from this rank's file on tier nvme
    nvme_read_bytes: int
    # written to it
    nvme_written_bytes: int
    # of that file, in use now
    nvme_bytes: int
    # copied from the host to this rank's device
    device_up_bytes: int
    # copied from it to the host
    device_down_bytes: int
    # on the device at all times: entries of tier device
    device_bytes: int


@dataclass(frozen=True)
class Prediction:
    """The plan's predictions for this rank and its current units, in bytes."""

    # of values, held
    param_bytes: int
    # of gradients, held
    gradient_bytes: int
    # of optimizer states, held
    optimizer_bytes: int
    # maximum held at once on this rank
    peak_bytes: int
    # as in meron_stats, per optimizer step; so are those below
    gather_mapped_bytes: int
    # parts of peers copied
    gather_copied_bytes: int
    # gradients read from peers
    reduce_bytes: int
    # of values, from the first gather to the update (of frozen ones permanently): in addition
    # to param_bytes, within the peak
    secondary_partition_bytes: int
    # gathered from ranks that share no memory, as on the wire
    inter_node_gather_bytes: int
    # reduced from such ranks, likewise
    inter_node_reduce_bytes: int
    # read from this rank's file on tier nvme
    nvme_read_bytes: int
    # written to it
    nvme_written_bytes: int
    # in use there, at all times
    nvme_bytes: int
    # on the device at all times, if ranks exchange on their devices
    device_bytes: int


@dataclass(frozen=True)
class ScheduleInfo:
    """Information about a schedule."""

    # units that are entered now
    entered: int
    # of the schedule
    units: int
    # started so far
    passes: int
    # units entered so far
    uses: int
    # uses whose unit was full already
    ready: int
    # uses with a prefetched gather
    ahead: int
    # uses that differ from the recorded order
    deviations: int
    # of the units that are full or gathering now
    live_elements: int
    # maximum of live_elements
    peak_live_elements: int
    # nanoseconds that uses have waited
    wait_ns: int


@dataclass(frozen=True)
class SaveProgress:
    """Progress of a save."""

    # true while a save is pending
    saving: bool
    # bytes that this rank writes; 0: not known yet, or no save
    total: int
    # of these, copied from the units
    copied: int
    # of these, written to files
    written: int
