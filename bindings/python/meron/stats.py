# SPDX-License-Identifier: Apache-2.0
"""The figures of a context: counted, and predicted by its plan."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stats:
    """What was counted since the context was opened, and the memory of this moment. Bytes."""

    gather_mapped_bytes: int  # parts of peers made visible in place
    gather_copied_bytes: int  # parts of peers copied
    reduce_bytes: int  # gradients read from peers
    collective_bytes: int  # read from peers by broadcast and all-reduce
    operations: int  # collectives begun
    wait_ns: int  # nanoseconds spent waiting for peers
    param_bytes: int  # held now, by kind: this and the four below
    gradient_bytes: int
    optimizer_bytes: int
    staging_bytes: int
    control_bytes: int
    peak_bytes: int  # most ever held of param + gradient + optimizer + staging
    arena_pages_bytes: int  # pages that the kernel has given to this rank's arena
    far_gather_bytes: int  # of the above, from ranks that share no memory with this one, as it came
    far_reduce_bytes: int  # on the wire: by gathers, and by reductions
    nvme_read_bytes: int  # from and to this rank's file on tier nvme
    nvme_written_bytes: int
    nvme_bytes: int  # of that file, in use now
    device_up_bytes: int  # copied from the host to this rank's device,
    device_down_bytes: int  # and from it to the host
    device_bytes: int  # on the device at all times: rows of tier device
    # Whole gradients of meron.torch in `param.grad`, of params that are sharded: now; and the most
    # so far of units whose gradients were complete. Zero where meron.torch is not used.
    caller_gradient_bytes: int = field(default=0, metadata={"of": "python"})
    caller_gradient_peak_bytes: int = field(default=0, metadata={"of": "python"})


@dataclass(frozen=True)
class Prediction:
    """What the plan predicts for this rank and the units made so far. Bytes."""

    param_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    peak_bytes: int
    gather_mapped_bytes: int  # per optimizer step, as are the two below
    gather_copied_bytes: int
    reduce_bytes: int
    second_copy_bytes: int  # from the first gather to the update; of frozen params for good
    far_gather_bytes: int  # per optimizer step, as `Stats` has them, down to nvme_written_bytes
    far_reduce_bytes: int
    nvme_read_bytes: int
    nvme_written_bytes: int
    nvme_bytes: int  # in use
    device_bytes: int  # at all times, where ranks exchange on their devices
