# SPDX-License-Identifier: Apache-2.0
"""Reports the params that were written to in use, by the pages that copy_on_write.py finds."""

from __future__ import annotations

from collections.abc import Iterable

from meron import errors
from meron.torch.guard import WRITE
from meron.torch.residency.copy_on_write import CopyOnWrite
from meron.torch.unit import ShardedUnit


def refuse_written(copies: CopyOnWrite, units: Iterable[ShardedUnit]) -> None:
    """StateError that names the params that were written to in use; the writes are undone."""
    ranges = copies.written()
    if not ranges:
        return
    names = [
        handle.name
        for unit in units
        for begin, whole, handle in zip(unit.addresses, unit.wholes, unit.handles)
        if any(begin < last and first < begin + whole.nbytes for first, last in ranges)
    ]
    if names:
        more = f" and {len(names) - 3} others" if len(names) > 3 else ""
        shown = ", ".join(f"'{name}'" for name in names[:3])
        raise errors.StateError(
            f"{shown}{more}: written to while in use, on this rank alone. The write is "
            "undone; what was computed since is not: call zero_grad",
            subject=names[0],
            advice=WRITE,
        )
