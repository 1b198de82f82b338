# SPDX-License-Identifier: Apache-2.0
"""FlatShard: this rank's range of a tensor, as torch.distributed.checkpoint saves and loads it.

DCP stores tensors as chunks, which are boxes. A contiguous range of a row-major tensor of n
dimensions is at most 2n - 1 boxes, each of them contiguous, so every chunk is a view of the range.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

import meron
from meron import errors
from meron.torch import registry
from meron.torch.tensors import CODES_OF_TORCH
from meron.torch.torch_internals import make_wrapper, no_torch_function, to_copy

aten = torch.ops.aten
Box = tuple[tuple[int, ...], tuple[int, ...]]  # offsets, sizes


def number_of(context: meron.Context) -> int:
    numbers = registry.numbers
    if context not in numbers:
        numbers[context] = next(registry.next_number)
        registry.numbered[numbers[context]] = context
    return numbers[context]


def boxes_of(own: range, shape: tuple[int, ...]) -> Iterator[Box]:
    """The boxes that make up elements `own` of a row-major tensor, in their order in memory."""
    if not shape:
        if len(own):
            yield (), ()
        return
    inner = math.prod(shape[1:])
    if not len(own):
        return
    first, last = own.start // inner, -(-own.stop // inner)  # rows that have any of it
    if last - first == 1 and len(own) < inner:
        yield from in_row(first, range(own.start - first * inner, own.stop - first * inner), shape)
        return
    full_first, full_last = -(-own.start // inner), own.stop // inner  # rows that have all
    if first < full_first:
        yield from in_row(first, range(own.start - first * inner, inner), shape)
    if full_first < full_last:
        offsets = (full_first, *(0 for _ in shape[1:]))
        yield offsets, (full_last - full_first, *shape[1:])
    if full_last < last:
        yield from in_row(full_last, range(own.stop - full_last * inner), shape)


def in_row(row: int, own: range, shape: tuple[int, ...]) -> Iterator[Box]:
    for offsets, sizes in boxes_of(own, shape[1:]):
        yield (row, *offsets), (1, *sizes)


class FlatShard(torch.Tensor):
    """One rank's range of a sharded tensor: the whole's shape and dtype, the range's values.

    `dcp.save`, `dcp.async_save` and `dcp.load` write and read the range. `to_local()` is its
    values, flat and in place. It can be copied, detached and converted; other operations raise
    UnsupportedError, because no rank has all values.

    Attributes:
        begin: the first element of the range, in the row-major order of the whole.
        ranks: how many ranks share the tensor.
    """

    _local: torch.Tensor
    begin: int
    ranks: int
    _context: int
    _empty: bool

    @staticmethod
    def __new__(
        cls,
        local: torch.Tensor,
        begin: int,
        shape: tuple[int, ...],
        ranks: int,
        context: int = 0,
        empty: bool = False,
    ) -> FlatShard:
        made: FlatShard = make_wrapper(
            cls, shape, dtype=local.dtype, device=local.device, requires_grad=False
        )
        made._local = local
        made.begin = begin
        made.ranks = ranks
        made._context = context
        made._empty = empty  # of a param that has no values yet (init="defer")
        return made

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __repr__(self, **_options: Any) -> str:  # type: ignore[override]
        return (
            f"FlatShard({tuple(self.shape)}, {self.dtype}, elements {self.begin} to "
            f"{self.begin + self._local.numel()} of {self.numel()}, {self._local})"
        )

    def to_local(self) -> torch.Tensor:
        """This rank's values, flat: a view, so that writes count. Local."""
        return self._local

    @property
    def context(self) -> meron.Context | None:
        """The context whose ranks share the tensor; None where it is closed or in another
        process."""
        return registry.numbered.get(self._context)

    def spread(self) -> torch.Tensor:
        """A full tensor that only has values in this rank's range: the engine reads no others. The
        rest of a large one is memory that was never touched."""
        dtype = self.dtype if self.dtype in CODES_OF_TORCH else torch.float32
        whole = torch.empty(self.numel(), dtype=dtype, device="cpu")
        whole[self.begin : self.begin + self._local.numel()] = self._local
        return whole.view(self.shape)

    def own(self) -> range:
        return range(self.begin, self.begin + self._local.numel())

    def require_values(self, name: str) -> None:
        """StateError for a param that was sharded with init="defer" and not loaded yet."""
        if self._empty:
            raise errors.StateError(
                f"{name} has no values yet: it was sharded with init='defer'",
                subject=name,
                advice="Load them into the state dict first, as by dcp.load.",
            )

    def like(self, local: torch.Tensor) -> FlatShard:
        return FlatShard(
            local, self.begin, tuple(self.shape), self.ranks, self._context, self._empty
        )

    # ---- What torch does with it ---------------------------------------------------------------

    __torch_function__ = no_torch_function

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = function.overloadpacket
        first = args[0] if args else None
        if isinstance(first, FlatShard):
            if packet in SAME_RANGE:
                return first.like(function(first._local, *args[1:], **kwargs))
            if packet is aten.new_empty and tuple(args[1]) == tuple(first.shape):
                return first.like(torch.empty_like(first._local, **without_layout(kwargs)))
            if packet is aten.copy_:
                first._local.copy_(first.range_of(args[1]))
                first._empty = isinstance(args[1], FlatShard) and args[1]._empty
                return first
            if packet is aten.equal and isinstance(args[1], FlatShard):
                same = first.own() == args[1].own() and first.shape == args[1].shape
                return same and torch.equal(first._local, args[1]._local)
        raise errors.UnsupportedError(
            f"{packet.__name__} of a sharded tensor of shape "
            f"{tuple(next(s for s in args_in(args, kwargs) if isinstance(s, FlatShard)).shape)}: "
            "this rank has only a range of its elements",
            operation=packet.__name__,
            advice="Use to_local() for the range, or get the state dict with "
            "StateDictOptions(full_state_dict=True).",
        )

    def range_of(self, value: torch.Tensor) -> torch.Tensor:
        """The values of this range of a tensor that is whole, or that is sharded alike."""
        if isinstance(value, FlatShard):
            if value.shape != self.shape or value.own() != self.own():
                raise errors.argument(
                    f"{value!r} is sharded otherwise than {self!r}",
                    advice="Save it with torch.distributed.checkpoint, and load that.",
                )
            return value._local
        if value.shape != self.shape:
            raise errors.argument(
                f"a tensor of shape {tuple(value.shape)} does not fit a sharded one of "
                f"{tuple(self.shape)}"
            )
        return value.reshape(-1)[self.begin : self.begin + self._local.numel()]

    # ---- torch.distributed._checkpointable -----------------------------------------------------

    def boxes(self) -> list[Box]:
        if self.numel() == 0:  # one that all ranks have, so that files name the tensor
            return [(tuple(0 for _ in self.shape), tuple(self.shape))]
        return list(boxes_of(self.own(), tuple(self.shape)))

    def __create_write_items__(self, fqn: str, _object: object) -> list[Any]:
        from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
        from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

        self.refuse_alone(fqn)
        self.require_values(fqn)
        # Replicas offer equal chunks; DCP's planner keeps one of them.
        return [
            WriteItem(
                index=MetadataIndex(fqn, chunk.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=chunk,
                    properties=TensorProperties.create_from_tensor(self._local),
                    size=self.size(),
                ),
            )
            for chunk in self.chunks()
        ]

    def refuse_alone(self, fqn: str) -> None:
        """StateError where ranks would each write a checkpoint of their own in one place."""
        if self.ranks == 1 or registry.thread.saves_dcp:
            return
        known = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 0
        if known < self.ranks:
            raise errors.StateError(
                f"{fqn} is sharded over {self.ranks} ranks, and torch.distributed "
                + (f"has {known}" if known else "is not initialized")
                + ": each rank would write a checkpoint of its own",
                subject=fqn,
                advice="Call meron.torch.checkpoint.dcp_save in place of dcp.save, or "
                'torch.distributed.init_process_group("gloo") on all ranks before.',
            )

    def chunks(self) -> list[Any]:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        return [
            ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
            for offsets, sizes in self.boxes()
        ]

    def __create_chunk_list__(self) -> list[Any]:
        planned = registry.thread.planned_by_load
        if planned is None:  # by a loader of somebody else's, which fills them
            self._empty = False
        else:
            planned.append(self)
        return self.chunks()

    def __get_tensor_shard__(self, index: Any) -> torch.Tensor:
        begin = 0
        for offsets, sizes in self.boxes():
            if tuple(index.offset) == offsets:
                return self._local[begin : begin + math.prod(sizes)].view(sizes)
            begin += math.prod(sizes)
        raise errors.argument(
            f"{index.fqn}: no chunk at {tuple(index.offset)} is on this rank", subject=index.fqn
        )


@contextlib.contextmanager
def filled_by_load() -> Iterator[None]:
    """For a load of DCP: the shards that it plans to fill have values when it has succeeded."""
    outer = registry.thread.planned_by_load
    planned: list[FlatShard] = []
    registry.thread.planned_by_load = planned
    try:
        yield
    finally:
        registry.thread.planned_by_load = outer
    for shard in planned:
        shard._empty = False


# Functions that do the same to a range of a tensor as to all of it.
SAME_RANGE = {
    aten.detach,
    aten.alias,
    aten.clone,
    to_copy,
    aten.empty_like,
    aten.zeros_like,
    aten.lift_fresh,
}


def without_layout(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: kwargs[key] for key in ("dtype", "device") if kwargs.get(key) is not None}


def args_in(args: Any, kwargs: Any) -> Iterator[Any]:
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)):
            yield from args_in(value, {})
        else:
            yield value
