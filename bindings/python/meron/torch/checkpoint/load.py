# SPDX-License-Identifier: Apache-2.0
"""load(): a training run continues from a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from meron import errors
from meron._call_names import calling
from meron.checkpoint import Checkpoint
from meron.torch.checkpoint import packing
from meron.torch.checkpoint import rng as random_states
from meron.torch.checkpoint.agreement import LoadError, together
from meron.torch.checkpoint.compare import Differences, compare_values, source_of
from meron.torch.checkpoint.deferred import fill_buffers, refuse_meta_buffers
from meron.torch.checkpoint.document import OWN_KEY, check_state, document_in, give_state
from meron.torch.checkpoint.names import Models, Names, Place
from meron.torch.checkpoint.nodes import open_on_nodes
from meron.torch.checkpoint.reading import Reader, open_together
from meron.torch.checkpoint.restore import Plan, plan_of, read_states, set_groups, set_states
from meron.torch.checkpoint.save import Optimizers, as_list, check_in_use
from meron.torch.checkpoint.shard_states import engines_among, optimizers_in
from meron.torch.optim.engine import EngineOptimizer
from meron.torch.optim.replacement import trained_by
from meron.torch.torch_internals import own_buffers
from meron.torch.unit import ShardedUnit

LEFT_ALONE = "(not loaded) "  # begins a name that no file has


@dataclass
class Loaded:
    """Result of a load.

    Attributes:
        path:       the checkpoint's directory.
        step:       as it was given to the save.
        world:      ranks that saved it.
        extra:      the caller's own state, as it was given to the save.
        missing:    names that the checkpoint lacks, and that stayed as they were.
        unexpected: names that the model does not have.
        tensors:    the caller's own, by name.
        rng:        True if torch's random numbers continue; False if other ranks saved them.
    """

    path: str
    step: int
    world: int
    extra: dict[str, Any]
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    rng: bool = False


@dataclass
class Found:
    """All that is read or decided before anything changes."""

    differences: Differences
    plans: list[Plan] = field(default_factory=list)
    schedulers: list[tuple[Any, Any]] = field(default_factory=list)  # an object, its state
    sources: dict[str, str] = field(default_factory=dict)  # of params and others, by name
    native: bool = False
    others: dict[str, torch.Tensor] = field(default_factory=dict)
    masters: list[tuple[Place, torch.Tensor]] = field(default_factory=list)
    extra_states: list[tuple[Any, Any]] = field(default_factory=list)  # a module, its state
    random: dict[str, torch.Tensor] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)  # of the caller's


@calling("mt.load")
def load(
    folder: str | os.PathLike[str],
    name: str | None,
    model: Models,
    optimizer: Optimizers | None = None,
    *,
    strict: bool = True,
    values_only: bool = False,
    scheduler: Any = None,
    scaler: Any = None,
    rng: bool = True,
    rank0_only: bool = False,
    per_node: bool = False,
) -> Loaded:
    """Loads what `save` saved, at any number of ranks and under any plan. Collective.

    Values, masters, states of optimizers, step counts, options of param groups, buffers. Another
    optimizer of the same rule takes the states too: the engine's those of torch's, and torch's
    those of the engine's. Before anything changes all ranks have compared names, shapes and groups.

        loaded = mt.load("runs/gpt", None, model, optimizer, scheduler=scheduler)
        first = loaded.step + 1

    Args:
        folder: of checkpoints, or one of them. Checkpoints of other languages and imported ones
            load too.
        name: None for the newest complete one.
        model, optimizer, scheduler, scaler: as they were given to `save`: sharded, and made alike;
            an optimizer need not have taken a step.
        strict: False leaves alone what the other side lacks. But states of optimizers that the
            checkpoint lacks begin anew.
        values_only: params and buffers; f32 masters follow, optimizers keep their states.
        rng: restore the state of torch's random numbers, if as many ranks saved it.
        rank0_only: only rank 0 sees the files, and sends the others their parts.
        per_node: each node has a folder of its own. A rank of each reads the node's files for all;
            there may be other nodes than at the save.

    Gradients are dropped. Blocks on the drive and on all ranks.

    Raises, on all ranks, before anything has changed: NotFoundError, CorruptError, VersionError,
    LoadError (an ArgumentError; it lists what is missing, unexpected and of another shape, the same
    on all ranks), StateError (a param is in use). Later: CorruptError that names tensor, file and
    offset, GroupError.
    """
    return load_unless_given(
        None,
        folder,
        name,
        model,
        optimizer,
        strict=strict,
        values_only=values_only,
        scheduler=scheduler,
        scaler=scaler,
        rng=rng,
        rank0_only=rank0_only,
        per_node=per_node,
    )


def load_unless_given(
    given: Callable[[str], bool] | None,
    folder: str | os.PathLike[str],
    name: str | None,
    model: Models,
    optimizer: Optimizers | None = None,
    *,
    strict: bool = True,
    values_only: bool = False,
    scheduler: Any = None,
    scaler: Any = None,
    rng: bool = True,
    rank0_only: bool = False,
    per_node: bool = False,
) -> Loaded:
    """As `load`. Also if strict, values of those names for which `given` is true may be missing or
    unexpected: the caller sets them afterwards."""
    names = Names(model)
    sharding = names.sharding
    context = sharding.context
    with together(context):
        sharding.finish_step()
        check_in_use(names)
        refuse_meta_buffers(names)
        optimizers = [] if values_only else optimizers_in(optimizer)
        if rank0_only and per_node:
            raise errors.argument(
                "rank0_only and per_node exclude each other",
                subject="per_node",
                advice="Say where the files are: with rank 0, or on each node.",
            )
    reader: Reader
    chosen: str | None
    if per_node:
        reader, chosen = open_on_nodes(context, folder, name)
        checkpoint = reader.checkpoint
    else:
        checkpoint, chosen = open_together(context, folder, name, rank0_only)
        reader = Reader(context, checkpoint, rank0_only)
    found = Found(Differences())
    with together(context):
        own = document_in(checkpoint)
        found = compare(names, checkpoint, own, optimizers, strict, given)
        found.schedulers = schedulers_of(own, scheduler, scaler)
        found.extra_states = [
            (part, packing.loads(own["extra_states"][key], f"the extra state of {key}"))
            for key, part in names.extra_states.items()
            if key in own.get("extra_states", {})
        ]
        wrong = found.differences.text(strict)
        if wrong:
            raise LoadError(
                f"the checkpoint does not fit the model: {wrong}",
                subject=str(checkpoint.path),
                advice="Load it into the model and the optimizers that it is of, with "
                "values_only=True, or with strict=False."
                if strict
                else "Load it into a model of these shapes.",
            )
    if reader.collective:
        read(found, names, reader, rng)
    else:
        with together(context):
            read(found, names, reader, rng)
    with together(context):
        random_states.check(found.random)
    apply(found, names, folder, chosen, rank0_only, per_node)
    for part, state in found.extra_states:
        part.set_extra_state(state)
    with together(context):
        for target, state in found.schedulers:
            give_state(target, state)
    random_states.restore(found.random)
    return Loaded(
        path=str(checkpoint.path),
        step=checkpoint.step,
        world=checkpoint.world,
        extra={key: value for key, value in checkpoint.extra.items() if key != OWN_KEY},
        missing=found.differences.missing,
        unexpected=found.differences.unexpected,
        tensors=found.tensors,
        rng=bool(found.random),
    )


# ---- Before anything changes --------------------------------------------------------------------


def compare(
    names: Names,
    checkpoint: Checkpoint,
    own: dict[str, Any],
    optimizers: list[torch.optim.Optimizer],
    strict: bool,
    given: Callable[[str], bool] | None,
) -> Found:
    """Local, and the same on all ranks."""
    found = Found(compare_values(names, checkpoint, own, given))
    saved = own.get("optimizers")
    if optimizers and saved and len(saved) != len(optimizers):
        raise errors.argument(
            f"the checkpoint has {len(saved)} optimizers, {len(optimizers)} were given",
            subject="optimizer",
            advice="Give those that were given to save, or load with values_only.",
        )
    found.plans = [
        plan_of(number, each, names, checkpoint, own, strict, found.differences)
        for number, each in enumerate(optimizers)
    ]
    for name in (*names.params, *names.others):
        source = source_of(names, checkpoint, name)
        if source is not None:
            found.sources[name] = source
    engines = [plan for plan in found.plans if isinstance(plan.optimizer, EngineOptimizer)]
    found.native = (
        bool(engines)
        and all(plan.native for plan in engines)
        and len(engines) == len(checkpoint.manifest["optimizers"])
        and set(trainers(names)) == {plan.optimizer for plan in engines}
    )
    for plan in engines:
        plan.native = found.native
    return found


def trainers(names: Names) -> list[EngineOptimizer]:
    """The engine's optimizers of all units of the model, as far as there are any."""
    found = dict.fromkeys(trained_by(unit) for unit in names.units())
    return [each for each in found if each is not None]


def schedulers_of(own: dict[str, Any], scheduler: Any, scaler: Any) -> list[tuple[Any, Any]]:
    given, saved = as_list(scheduler), own.get("schedulers", [])
    if given and len(given) != len(saved):
        raise errors.argument(
            f"the checkpoint has the state of {len(saved)} schedulers, {len(given)} were given",
            subject="scheduler",
            advice="Give those that were given to save, or none.",
        )
    found = [
        (each, packing.loads(text, f"the state of {type(each).__name__}"))
        for each, text in zip(given, saved)
    ]
    if scaler is not None:
        if "scaler" not in own:
            raise errors.argument("the checkpoint has no state of a scaler", subject="scaler")
        found.append((scaler, packing.loads(own["scaler"], "the state of the scaler")))
    for each, state in found:
        check_state(each, state)
    return found


def read(found: Found, names: Names, reader: Reader, with_random: bool) -> None:
    """Reads the tensors that Python reads itself, into new ones."""
    checkpoint, context = reader.checkpoint, reader.context
    for name in names.others:
        if name in found.sources:
            found.others[name] = reader.whole(found.sources[name])
    for unit in names.units():
        for i in sorted(unit.masters) if trained_by(unit) is None else ():
            name = names.of_place.get((unit, i), "")
            if name not in found.sources:
                continue
            exact = source_of(names, checkpoint, name, "master")
            kind = "values" if exact is None else "master"
            source = exact or found.sources[name]
            found.masters.append(((unit, i), reader.part(source, kind, unit.shard_range(i))))
    for plan in found.plans:
        read_states(plan, names, reader)
    for kind, name in checkpoint.tensors:
        if kind == "extra" and not name.startswith(f"{OWN_KEY}."):
            found.tensors[name] = reader.whole(name, kind)
    if with_random and checkpoint.world == context.world_size:
        found.random = random_states.read(reader, context.rank)


# ---- What changes -------------------------------------------------------------------------------


def apply(
    found: Found,
    names: Names,
    folder: str | os.PathLike[str],
    chosen: str | None,
    rank0_only: bool,
    per_node: bool,
) -> None:
    """Collective."""
    sharding = names.sharding
    units = names.units()
    sharding.wait_copied()
    sharding.reducer.discard(units)
    sharding.reducer.drop_empty()  # of other models
    for plan in found.plans:
        set_groups(plan)
    optimizers = [plan.optimizer for plan in found.plans]
    engines = engines_among(optimizers) if found.native else trainers(names)
    touched = units_of(units, engines)
    mapping = {
        handle: found.sources.get(name, "") or LEFT_ALONE + handle
        for handle, name in names.mapping(touched).items()
    }
    sharding.drop(touched)
    with sharding.context.load(
        folder,
        chosen,
        [each.engine for each in engines],
        lenient=True,
        values_only=not found.native,
        rank0_only=rank0_only,
        per_node=per_node,
        mapping=mapping,
        claimed=[found.sources[name] for name in found.others],
        units=[unit.unit for unit in touched],
    ):
        pass
    for (unit, i), values in found.masters:
        unit.masters[i].copy_(values)
    for unit in units:
        if trained_by(unit) is not None:
            unit.masters.clear()
    for plan in found.plans:
        set_states(plan)
    with torch.no_grad():
        for name, value in found.others.items():
            put(names, name, value)
    for name in found.sources:
        if name in names.params:
            unit, i = names.params[name]
            unit.unmade.pop(i, None)
    fill_buffers(names)
    sharding.hold(touched)


def units_of(units: list[ShardedUnit], engines: Iterable[EngineOptimizer]) -> list[ShardedUnit]:
    """The units, and all that the optimizers train: the engine loads an optimizer as a whole."""
    trained = (unit for each in engines for unit in each.sharded)
    return sorted(dict.fromkeys([*units, *trained]), key=lambda unit: unit.index)


def put(names: Names, name: str, value: torch.Tensor) -> None:
    """Sets a buffer's or a plain param's values in place, so that all its holders see them."""
    tensor = names.others[name]
    if tensor.is_meta:
        part, own = names.owners[name]
        own_buffers(part)[own] = value.to(names.sharding.torch_device, tensor.dtype)
    else:
        tensor.data.copy_(value)
