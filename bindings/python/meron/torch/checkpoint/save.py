# SPDX-License-Identifier: Apache-2.0
"""save(): a training run as a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Union

import torch

import meron
from meron import errors
from meron._call_names import calling
from meron._values import SaveProgress
from meron.checkpoint import CheckpointTensor
from meron.torch.checkpoint import packing
from meron.torch.checkpoint import rng as random_states
from meron.torch.checkpoint.agreement import from_rank, require_same, together
from meron.torch.checkpoint.document import OWN_KEY, VERSION
from meron.torch.checkpoint.files import saved_tensor
from meron.torch.checkpoint.names import Models, Names
from meron.torch.checkpoint.shard_states import (
    engines_among,
    groups_of,
    masters_of,
    number_kinds,
    optimizers_in,
    prefixes_of,
    share_of,
    states_of,
)
from meron.torch.optim.engine import EngineOptimizer
from meron.torch.sharding import Sharding

Optimizers = Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]


class SaveHandle:
    """A save that was begun. Releasing it does not stop the save."""

    def __init__(self, sharding: Sharding, future: meron.Future) -> None:
        self._sharding = sharding
        self._future = future

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the checkpoint exists. False if `timeout` seconds passed first.

        Raises, on all ranks, the failure of any: NoSpaceError, InputOutputError, GroupError. The
        checkpoints that were there stay.
        """
        with calling("mt.save"):
            return self._future.wait(timeout)

    def wait_copied(self, timeout: float | None = None) -> bool:
        """Waits until everything is copied, so that states may change. Optimizers of meron.torch
        wait by themselves."""
        return self._sharding.context.wait_copied(timeout)

    def done(self) -> bool:
        """True once the checkpoint exists; never blocks. Raises as `wait`."""
        with calling("mt.save"):
            return self._future.done()

    @property
    def progress(self) -> SaveProgress:
        """How far it is, in bytes of this rank; of a later save, if one has begun."""
        return self._sharding.context.save_progress()


@calling("mt.save")
def save(
    folder: str | os.PathLike[str],
    name: str,
    model: Models,
    optimizer: Optimizers | None = None,
    *,
    step: int = 0,
    extra: Mapping[str, Any] | None = None,
    scheduler: Any = None,
    scaler: Any = None,
    tensors: Mapping[str, torch.Tensor] | None = None,
    rng: bool = True,
    keep: int = 0,
    overwrite: bool = False,
    values_only: bool = False,
    skip_frozen: bool = False,
    per_node: bool = False,
    background: bool = False,
) -> SaveHandle:
    """Saves a sharded model and its training state as checkpoint `name`. Collective.

    Each rank writes its own part; any number of ranks, under any plan, loads it with `load`. It
    exists whole or not at all (docs/checkpoint-format.md). Tensors have their names in
    state_dict(); tied ones are saved once. Buffers and params in no unit are rank 0's. Within an
    accumulation it has what the last step left: gradients are not saved, and stay as they are.

        mt.save("runs/gpt", f"step-{step}", model, optimizer, step=step, scheduler=scheduler)

    Args:
        folder: of checkpoints, which all ranks see; made if it is not there.
        name: of this one: one component of a path.
        model: sharded by meron.torch.shard; or several models of one context, a dict by name. Of a
            context's other models nothing is saved.
        optimizer: whose states and param groups are saved: of meron.torch, or one that
            shard_optimizer has taken; or a list of them. Without one there are values only, and f32
            masters that no optimizer of meron.torch has.
        step: the caller's count; the newest checkpoint has the highest.
        extra: the caller's own state, as JSON has it (rank 0's is kept), such as the data position.
        scheduler, scaler: objects whose state_dict() is saved: a learning rate scheduler or a list
            of them, and a GradScaler.
        tensors: the caller's own by name, of rank 0.
        rng: save the state of torch's random numbers of each rank.
        keep: so many complete checkpoints stay in the folder; 0: all.
        overwrite: replace a checkpoint of that name.
        values_only: no masters, states and groups of optimizers.
        skip_frozen: leave frozen params out.
        per_node: each node has a folder of its own, such as one on a local disk; ranks of a node
            give the same.
        background: return when the save has begun. Forward and backward may run, and a step waits
            until its states are copied. Until `wait_copied`, tensors of the caller must not change.
            Nor must `state` of a torch optimizer: set_full_optimizer_state waits for the copy.

    Returns:
        A handle of the save, which has ended unless `background`.

    Blocks on the drive and on all ranks; with `background` only until the save before has ended.

    Raises, on all ranks: ArgumentError and UnsupportedError (they name something that a checkpoint
    cannot hold), DuplicateError (the name is taken), StateError (a param is in use),
    NoSpaceError, InputOutputError, GroupError. Existing checkpoints stay, and training can
    continue.
    """
    names = Names(model)
    sharding = names.sharding
    context = sharding.context
    share = share_of(sharding)
    given: list[CheckpointTensor] = []
    engines: list[EngineOptimizer] = []
    document: dict[str, Any] = {}
    own_folder = ""
    with together(context):
        own_folder = os.fsdecode(folder)
        sharding.finish_step()  # of a rank that was interrupted in it, before the ranks exchange
    first_folder, first_name = from_rank(context, f"{own_folder}\0{name}").split("\0", 1)
    with together(context):
        if not per_node:
            require_same(context, first_folder, own_folder, "folder", "Give all ranks the same.")
        require_same(context, first_name, name, "name", "Give all ranks the same.")
        optimizers = [] if values_only else optimizers_in(optimizer)
        engines = engines_among(optimizers)
        check_in_use(names)
        check_values(names)
        given += others_of(names, skip_frozen)
        if not values_only:
            given += masters_of(names, share)
            for each, prefix in zip(optimizers, prefixes_of(optimizers, names)):
                if not isinstance(each, EngineOptimizer):
                    given += states_of(each, names, share, prefix)
        given += extra_tensors(context, tensors or {})
        if rng:
            given += random_states.states(context.rank)
        document = document_of(names, optimizers, extra, scheduler, scaler, skip_frozen)
    waits = any(tensor.kind not in ("values", "extra") for tensor in given)
    units = names.units()
    sharding.drop(units)
    future = context.save_begin(
        folder,
        name,
        [each.engine for each in engines],
        step=step,
        extra=document,
        tensors=given,
        keep=keep,
        overwrite=overwrite,
        values_only=values_only,
        skip_frozen=skip_frozen,
        per_node=per_node,
        mapping=names.mapping(units),
        units=[unit.unit for unit in units],
    )
    sharding.copying = waits
    sharding.hold(units)
    handle = SaveHandle(sharding, future)
    if not background:
        handle.wait()
    return handle


def check_values(names: Names) -> None:
    for unit in names.units():
        unit.require_values()


def check_in_use(names: Names) -> None:
    for unit in names.units():
        if unit.uses:
            raise errors.StateError(
                f"unit '{unit.name}' is in use on this rank",
                subject=unit.name,
                advice="Save and load outside of forwards, and leave GatheredParameters, or call "
                "reshard, before.",
            )


def others_of(names: Names, skip_frozen: bool) -> list[CheckpointTensor]:
    """Buffers and params in no unit: copies, as a forward may change them. Rank 0's."""
    if names.sharding.context.rank != 0:
        return []
    found = []
    for name, tensor in names.others.items():
        if tensor.is_meta:
            raise errors.StateError(f"{name} is on the device meta: it has no values", subject=name)
        if skip_frozen and isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad:
            continue
        found.append(saved_tensor(name, tensor.detach().to("cpu", copy=True), kind="values"))
    return found


def extra_tensors(
    context: meron.Context, tensors: Mapping[str, torch.Tensor]
) -> list[CheckpointTensor]:
    if context.rank != 0:
        return []
    return [saved_tensor(name, tensor.detach().cpu()) for name, tensor in tensors.items()]


def document_of(
    names: Names,
    optimizers: list[torch.optim.Optimizer],
    extra: Mapping[str, Any] | None,
    scheduler: Any,
    scaler: Any,
    skip_frozen: bool,
) -> dict[str, Any]:
    """The checkpoint's `extra`: the caller's, and under OWN_KEY what `load` needs."""
    own: dict[str, Any] = {
        "version": VERSION,
        "optimizers": [
            {
                "class": type(each).__name__,
                "engine": isinstance(each, EngineOptimizer),
                "groups": groups_of(each, names),
                "numbers": number_kinds(each, prefix),
                **({"prefix": prefix} if prefix else {}),
            }
            for each, prefix in zip(optimizers, prefixes_of(optimizers, names))
        ],
        "aliases": names.aliases,
        "skip_frozen": skip_frozen,
    }
    if scheduler is not None:
        own["schedulers"] = [
            packing.dumps(each.state_dict(), f"the state of {type(each).__name__}")
            for each in as_list(scheduler)
        ]
    if scaler is not None:
        own["scaler"] = packing.dumps(scaler.state_dict(), "the state of the scaler")
    if names.extra_states:
        own["extra_states"] = {
            key: packing.dumps(part.get_extra_state(), key)
            for key, part in names.extra_states.items()
        }
    given = dict(extra or {})
    if OWN_KEY in given:
        raise errors.argument(f"extra has the key {OWN_KEY!r}, which is taken", subject="extra")
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise errors.argument(
            f"extra holds what JSON cannot: {error}",
            subject="extra",
            advice="Pass numbers, texts, lists and dicts; tensors by `tensors`.",
        ) from error
    return {**given, OWN_KEY: own}


def as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
