#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One tensor, cut over all ranks: gathered, changed by its owners, gathered again.

    meron run -n 3 -- python3 gather.py

Exit code 0 when every rank saw what it should.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import meron

ROWS, COLUMNS = 8, 1000


def share_rows(context: meron.Context, rows: NDArray[Any]) -> None:
    """rows[r] goes from rank r to all others."""
    for rank in range(context.world_size):
        context.world.broadcast(rows[rank], root=rank)


def write_own_part(context: meron.Context, unit: meron.Unit, shift: float) -> None:
    """Each rank writes the part that it owns, in place: element i becomes i + shift."""
    (table,) = unit.params
    with context.update([unit]) as update:  # no rank reads the old values any more
        part = update.view(table)
        part[:] = np.asarray(table.shard_range) + shift


def gather_and_compare(
    unit: meron.Unit, parts: NDArray[np.uint64], shift: float, seen: NDArray[np.float32]
) -> int:
    """Gathers the tensor and compares it with what the owners wrote: i + shift * (rank + 1).

    `seen` receives the first element of each rank's part. Returns how many elements are wrong.
    """
    (table,) = unit.params
    expected = np.arange(ROWS * COLUMNS, dtype=np.float32)
    with unit.gather() as full:
        values = full[table].reshape(-1)  # the peers' own memory: nothing was copied
        for rank, (offset, count) in enumerate(parts.tolist()):
            expected[offset : offset + count] += shift * (rank + 1)
            seen[rank] = values[offset] if count else 0
        return int(np.count_nonzero(values != expected))


def print_seen(title: str, parts: NDArray[np.uint64], seen: NDArray[np.float32]) -> None:
    owners = np.flatnonzero(parts[:, 1])
    print(f"\n{title}\n  element " + "".join(f"{parts[owner, 0]:9}" for owner in owners))
    for rank, row in enumerate(seen):
        print(f"  rank {rank:<3}" + "".join(f"{row[owner]:9.0f}" for owner in owners))


def main() -> int:
    with meron.open() as context:  # plan zero3: parameters are cut too
        rank, ranks = context.rank, context.world_size

        # A param says what a tensor is; a unit gives it memory, on each rank its part.
        table = context.param("table", (ROWS, COLUMNS), "f32")
        unit = context.unit("table", [table])

        parts = np.zeros((ranks, 2), np.uint64)
        parts[rank] = table.shard_range.start, len(table.shard_range)
        share_rows(context, parts)
        if rank == 0:
            print(f"A tensor of {ROWS} x {COLUMNS} over {ranks} rank{'' if ranks == 1 else 's'}.")
            for owner, (offset, count) in enumerate(parts):
                print(f"  rank {owner} owns {count:5} elements, from {offset}")

        seen = np.zeros((ranks, ranks), np.float32)  # a row per rank
        write_own_part(context, unit, 0)
        wrong = gather_and_compare(unit, parts, 0, seen[rank])
        share_rows(context, seen)
        if rank == 0:
            print_seen("Gathered, every rank sees all parts:", parts, seen)

        write_own_part(context, unit, 10000 * (rank + 1))
        wrong += gather_and_compare(unit, parts, 10000, seen[rank])
        share_rows(context, seen)
        if rank == 0:
            title = "Each rank has added 10000 x (rank + 1) to its part. Gathered again:"
            print_seen(title, parts, seen)

        if wrong:
            print(f"gather: rank {rank}: {wrong} elements are wrong", file=sys.stderr)
        context.world.barrier()  # no rank closes while others still read its memory
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
