# SPDX-License-Identifier: Apache-2.0
"""The plans that are compared, and how many micro-batches a step of each has."""

from __future__ import annotations

from typing import Any, NamedTuple

WORLD, SHARD, NODE = "replica x shard", "shard", {"shard": "node"}
INT4 = {"kind": "int4", "feedback": True}


class Arm(NamedTuple):
    plan: Any
    micro_batches: int
    base: str  # what its step rate is compared with
    predicted: str  # its name in what `meron plan --cluster` prints
    goal: float | None = None


def over_world(name: str, codec: str) -> dict[str, Any]:
    """zero3 on a mesh: what it moves is zero3's, but each pair of replicas sums once."""
    return {
        "name": name,
        "mesh": NODE,
        "param": {"sharding": WORLD},
        "gradient": {"sharding": WORLD, "codec": codec},
        "optimizer": {"sharding": WORLD},
    }


# Parameters and gradients stay on a node until the accumulation ends; then both are encoded.
BOTH = {
    "name": "both",
    "mesh": NODE,
    "param": {"sharding": SHARD, "codec": "int8"},
    "gradient": {"sharding": SHARD, "codec": INT4},
    "optimizer": {"sharding": WORLD},
}
# The same with the optimizer on each node whole: twice its memory here, no parameters to send.
MICS_INT4 = {"preset": "mics(node)", "name": "mics int4", "gradient": {"codec": INT4}}

ARMS = {
    "zero3": Arm("zero3", 1, "zero3", "zero3"),
    "zero3 by node": Arm(over_world("zero3 by node", "none"), 1, "zero3", "zero3 by nodes"),
    "zero3 by node bf16": Arm(
        over_world("zero3 by node bf16", "bf16"), 1, "zero3", "zero3 by nodes + bf16 sums"
    ),
    "hpz": Arm("hpz(node)", 1, "zero3", "hpz"),
    "zeropp": Arm("zeropp(node)", 1, "zero3", "zeropp", 2.5),
    "zero3 x 4": Arm("zero3", 4, "zero3 x 4", "zero3"),
    "zeropp x 4": Arm("zeropp(node)", 4, "zero3 x 4", "zeropp"),
    "mics x 4": Arm("mics(node)", 4, "zero3 x 4", "mics(2)", 3.0),
    "both x 4": Arm(BOTH, 4, "zero3 x 4", "mics + optimizer over all + int8/int4", 5.0),
    "mics int4 x 4": Arm(MICS_INT4, 4, "zero3 x 4", "mics + int4 gradients"),
}
