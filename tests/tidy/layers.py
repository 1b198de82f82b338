# SPDX-License-Identifier: Apache-2.0
"""The layers of impl/ as data. Importing this module has no side effect."""

from __future__ import annotations

# From the bottom up. A folder may include itself and every folder of the rows above its own.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("os",),
    ("memory", "topology", "plan", "io"),
    ("transport", "checkpoint"),
    ("rendezvous", "call_log"),
    ("collective",),
    ("device",),
    ("quant",),
    ("rank", "place"),
    ("shard", "offload"),
    ("unit",),
    ("values", "gradient"),
    ("schedule", "optim"),
    ("state",),
    ("saving",),
    ("engine",),
)

# One noun phrase per layer, and one for capi/, for the table in CONTRIBUTING.md.
DESCRIPTIONS: dict[str, str] = {
    "base": "results, element types, layout arithmetic",
    "os": "the only home of system calls",
    "memory": "arenas and the shared segment",
    "topology": "ranks and groups",
    "plan": "the plan table and its predictions",
    "io": "asynchronous storage",
    "transport": "how bytes move between ranks",
    "checkpoint": "the files of a checkpoint",
    "rendezvous": "how ranks find each other",
    "call_log": "the record of calls that keeps ranks in step",
    "collective": "collective operations on host memory",
    "device": "streams, events, memory and collectives of a device",
    "quant": "codecs of values in transit",
    "rank": "the objects that one rank shares",
    "place": "execution of arithmetic on the host or on a stream",
    "shard": "the memory of this rank's shards",
    "offload": "states on tier nvme",
    "unit": "parameters and units",
    "values": "gather and update",
    "gradient": "accumulation and reduction",
    "schedule": "the order of uses, which decides what begins ahead",
    "optim": "update rules on shards",
    "state": "states of units, read and written as named ranges",
    "saving": "the ranks' joint save and load",
    "engine": "the context, which owns all of these",
    "capi": "argument checks, calls of the engine, translation of errors",
}

# Lower layers that a layer must not include although the order of the rows permits it.
NOT_ALLOWED: dict[str, frozenset[str]] = {
    # The plan is pure: it computes and parses. It opens no file.
    "plan": frozenset({"os"}),
    # The `meron` command reads checkpoints too, and has no rank whose memory it could use.
    "checkpoint": frozenset({"memory", "topology"}),
    # Tests drive the schedule with a fake gatherer and a fake clock.
    "schedule": frozenset(
        {
            *("os", "memory", "topology", "plan", "io", "device", "quant", "place"),
            *("transport", "rendezvous", "call_log", "collective"),
            *("rank", "shard", "unit", "values", "gradient"),
        }
    ),
}

# The layers that each layer may include, itself among them.
ALLOWED: dict[str, frozenset[str]] = {
    layer: frozenset(
        {layer, *(below for lower in LAYERS[:index] for below in lower)}
        - NOT_ALLOWED.get(layer, frozenset())
    )
    for index, row in enumerate(LAYERS)
    for layer in row
}

# The layers that folders outside impl/ may include. The C interface calls one layer. The `meron`
# command starts processes, reads checkpoints as files, compares plans by the arithmetic of the
# engine, and measures a drive through the same I/O engine that programs use, so that it reports the
# rate that they see.
ALLOWED_OUTSIDE: dict[str, frozenset[str]] = {
    "capi": frozenset({"engine"}),
    "tools": frozenset({"base", "os", "io", "plan", "checkpoint"}),
}
