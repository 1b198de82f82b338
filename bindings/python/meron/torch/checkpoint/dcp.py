# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint over Meron's own ranks, without a process group.

torch's planner and storage do the work. dcp.save uses collectives of torch.distributed to gather
the plans of all ranks, make them into one, and scatter it. Here the engine's are used.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

import meron
from meron import errors
from meron.torch import registry
from meron.torch.checkpoint.agreement import together
from meron.torch.checkpoint.exchange import object_from, objects_at_rank0
from meron.torch.checkpoint.names import Models, Names
from meron.torch.flat_shard import FlatShard, filled_by_load


class SaveToDcp:
    """A save by dcp_save that was begun. All ranks must call `wait`: without, no rank can load
    it."""

    def __init__(self, context: meron.Context, write: Callable[[], Any], finish: Any) -> None:
        self._context = context
        self._finish = finish
        self._results: Any = None
        self._error: Exception | None = None
        self._ended = False
        self.metadata: Any = None  # torch's, once it has ended
        self._thread = threading.Thread(target=self._run, args=(write,), name="meron dcp_save")
        self._thread.start()

    def _run(self, write: Callable[[], Any]) -> None:
        try:
            self._results = write()
        except Exception as error:
            self._error = error

    def wait(self) -> Any:
        """Waits until all ranks have written, and completes the checkpoint. Collective; blocks on
        this rank's drive and on peers. Returns torch's Metadata.

        Raises, on all ranks, what any of them raised: the checkpoint is not complete.
        """
        if self._ended:
            return self.metadata
        self._thread.join()
        with together(self._context):
            if self._error is not None:
                raise self._error
        results = objects_at_rank0(self._context, self._results)
        with together(self._context):
            self.metadata = self._finish(results)
        self._ended = True
        return self.metadata


def dcp_save(
    state_dict: Mapping[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_writer: Any = None,
    planner: Any = None,
    model: Models | None = None,
    background: bool = False,
) -> Any:
    """torch.distributed.checkpoint.save without a process group: each rank writes its own ranges
    of the sharded tensors, and one rank what all have. Collective; blocks on peers and drives.

        state = {"model": get_model_state_dict(model)}
        dcp_save(state, checkpoint_id="runs/gpt/step-100")

    Any process that has torch loads what it writes: `dcp.load` into unsharded tensors, DTensors, or
    a state dict of Meron at another number of ranks. With a process group of all ranks (gloo)
    `dcp.save` and `dcp.async_save` of torch do the same.

    Args:
        state_dict: as dcp.save takes it, with the same keys on all ranks; objects with state_dict()
            and load_state_dict() are asked for theirs.
        checkpoint_id: a directory that all ranks see.
        storage_writer, planner: as dcp.save takes them; by default a FileSystemWriter, and
            torch's DefaultSavePlanner.
        model: whose ranks save; needed where state_dict has no sharded tensor.
        background: return a SaveToDcp as soon as the ranks have agreed. All call its wait().
            Tensors that are not sharded are copied; the sharded ones must not be changed before.

    Returns:
        torch's Metadata, or the handle.

    Raises, on all ranks: StateError (a param has no values yet), ArgumentError (no ranks to be
    found in it), and what torch's planner and writer raise, where they did: on the other ranks an
    ArgumentError that names that rank. The checkpoint is not complete then: it has no `.metadata`,
    or that of the one that was there.
    """
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    own = plain_of(state_dict)
    context = context_of(own, model)
    first = context.rank == 0
    plan: Any = None
    writer: Any = None
    chosen = planner or DefaultSavePlanner()
    with together(context):
        writer = storage_of(storage_writer, checkpoint_id, reader=False)
        if background:
            own = copied(own)
        registry.thread.saves_dcp = True
        try:
            chosen.set_up_planner(own, writer.storage_meta(), first)
            set_up(writer.set_up_storage_writer, first, context.rank)
            plan = writer.prepare_local_plan(chosen.create_local_plan())
        finally:
            registry.thread.saves_dcp = False
    plans = objects_at_rank0(context, plan)
    metadata: Any = None
    with together(context):
        if first:
            plans, metadata = chosen.create_global_plan(plans)
            plans = writer.prepare_global_plan(plans)
    plan = object_from(context, 0, plans)[context.rank]
    metadata = object_from(context, 0, metadata)

    def write() -> Any:
        written = writer.write_data(chosen.finish_plan(plan), chosen)
        written.wait()
        return written.value()

    def finish(results: Any) -> Any:
        if first:
            writer.finish(metadata=metadata, results=results)
        return metadata

    handle = SaveToDcp(context, write, finish)
    return handle if background else handle.wait()


def dcp_load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_reader: Any = None,
    planner: Any = None,
    model: Models | None = None,
) -> None:
    """torch.distributed.checkpoint.load without a process group, in place: each rank reads its own
    ranges. Collective; blocks on peers and drives.

        state = {"model": get_model_state_dict(model)}
        dcp_load(state, checkpoint_id="runs/gpt/step-100")
        set_model_state_dict(model, state["model"])

    Loads what dcp_save, or torch's dcp.save of DTensors or unsharded tensors, has written, at any
    number of ranks. `dcp.load` of torch does the same; but an error on one rank is only its own
    there.

    Args:
        state_dict: as dcp.load takes it: tensors that receive the values, by key.
        checkpoint_id, storage_reader, planner, model: as of dcp_save.

    Raises, on all ranks: what torch's planner and reader raise (RuntimeError for a key that the
    checkpoint lacks, ValueError for another size), where they did: on the other ranks an
    ArgumentError that names that rank. Tensors of state_dict may have changed then; the model has
    not.
    """
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

    own = plain_of(state_dict)
    context = context_of(own, model)
    chosen = planner or DefaultLoadPlanner()
    plan: Any = None
    reader: Any = None
    with filled_by_load():
        with together(context):
            reader = storage_of(storage_reader, checkpoint_id, reader=True)
            metadata = reader.read_metadata()
            chosen.set_up_planner(own, metadata, context.rank == 0)
            set_up(reader.set_up_storage_reader, metadata, context.rank == 0, context.rank)
            plan = reader.prepare_local_plan(chosen.create_local_plan())
        plans = objects_at_rank0(context, plan)
        with together(context):
            if context.rank == 0:
                plans = reader.prepare_global_plan(chosen.create_global_plan(plans))
        plan = object_from(context, 0, plans)[context.rank]
        with together(context):
            reader.read_data(chosen.finish_plan(plan), chosen).wait()
    for key, value in state_dict.items():
        if is_stateful(value):
            value.load_state_dict(own[key])
        else:
            state_dict[key] = own[key]


# ---- Helpers ------------------------------------------------------------------------------------


def set_up(function: Callable[..., None], *args: Any) -> None:
    """Calls with the rank by name, as torch has since 2.7, or without it."""
    *rest, rank = args
    if "kwargs" in inspect.signature(function).parameters:
        function(*rest, rank=rank, use_collectives=True)
    else:
        function(*rest)


def storage_of(given: Any, checkpoint_id: Any, reader: bool) -> Any:
    from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

    if given is None and not checkpoint_id:
        raise errors.argument(
            "there is neither a checkpoint_id nor a storage", subject="checkpoint_id"
        )
    if given is None:
        given = (FileSystemReader if reader else FileSystemWriter)(checkpoint_id)
    if checkpoint_id is not None:
        given.reset(checkpoint_id)
    return given


def is_stateful(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(
        getattr(value, "load_state_dict", None)
    )


def plain_of(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """With the state dicts of objects that have one."""
    return {
        key: value.state_dict() if is_stateful(value) else value
        for key, value in state_dict.items()
    }


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def copied(value: Any) -> Any:
    """With copies of tensors that are not sharded: they may be the model's own."""
    if isinstance(value, FlatShard):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    return value


def context_of(state_dict: dict[str, Any], model: Models | None) -> meron.Context:
    """The context of a state dict. ArgumentError if the dict does not determine it."""
    if model is not None:
        return Names(model).sharding.context
    shards = [each for each in tensors_in(state_dict) if isinstance(each, FlatShard)]
    found = list(dict.fromkeys(each.context for each in shards))
    if len(found) != 1 or found[0] is None:
        wrong = "no sharded tensor" if not found else "tensors of several contexts, or a closed one"
        raise errors.argument(
            f"the state dict has {wrong}: it does not say which ranks save or load it",
            subject="state_dict",
            advice="Pass model=.",
        )
    return found[0]
