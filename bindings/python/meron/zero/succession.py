# SPDX-License-Identifier: Apache-2.0
"""A second engine of a model: it replaces the first, or evaluates beside the one that trains.

TRL evaluates a policy by an engine, then trains it by another; two Trainers may train one model in
turn. The first engine still runs forwards. Its methods that train or save raise StateError.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import cast

import numpy as np
import torch

import meron
from meron import errors
from meron.torch.data_parallel import refuse_wrapped, refuse_wrappers
from meron.torch.residency.devices import torch_device_of
from meron.torch.sharding import Sharding, sharding_with, unit_of
from meron.torch.tensors import DTYPES
from meron.torch.unit import TAKE_BACK, ShardedUnit
from meron.torch.world import asked_plan
from meron.zero.config import Config
from meron.zero.engine import Engine
from meron.zero.owner import Owner, had_engine, owners_of
from meron.zero.revert import revert
from meron.zero.units import units_of

logger = logging.getLogger("meron.zero")


def check_free(model: torch.nn.Module) -> list[Engine]:
    """The engines that an engine of a model would replace. Local.

    Raises StateError if one of them has params of other models, too, or the model is in a forward,
    gathered or wrapped by DistributedDataParallel; ArgumentError for a model without params.
    """
    if isinstance(model, Engine):
        raise errors.StateError(
            f"the {type(model.module).__name__} has an engine already, which was passed",
            operation="initialize",
            advice="Pass the model, engine.module: its new engine replaces this one.",
        )
    if next(model.parameters(), None) is None:
        raise errors.argument(f"{type(model).__name__} has no params", subject="model")
    refuse_wrappers(model)
    refuse_wrapped(type(model).__name__, model.parameters())
    owners = owners_of(model)
    if owners:
        check_idle(model)
    own = set(model.parameters())
    for other in owners:
        if own.issuperset(other.module.parameters()):
            continue
        name = next(name for name, p in model.named_parameters() if other in owners_of_param(p))
        raise errors.StateError(
            f"{name} of {type(model).__name__} belongs to the engine of a "
            f"{type(other.module).__name__}: two engines would divide and drop each other's "
            "gradients",
            subject=name,
            operation="initialize",
            advice="Put both models into one module with one engine, or call "
            "engine.destroy() before.",
        )
    return [cast(Engine, owner) for owner in owners]


def owners_of_param(param: torch.nn.Parameter) -> list[Owner]:
    return owners_of(torch.nn.ParameterList([param]))


def check_idle(model: torch.nn.Module) -> None:
    """StateError for a model in a forward or within GatheredParameters."""
    for unit in units_of(model):
        if sharding_with(unit).passes.active or unit.phase in TAKE_BACK:
            busy = "gathered" if unit.phase in TAKE_BACK else "in a forward"
            raise errors.StateError(
                f"{type(model).__name__} has an engine already, and '{unit.name}' is {busy}",
                operation="initialize",
                subject=unit.name,
                advice="Leave GatheredParameters, or end the forward, before.",
            )


def trained_beside(model: torch.nn.Module, owners: Sequence[Engine]) -> bool:
    """True if an engine trains the model, so that one without an optimizer only evaluates beside
    it. Collective."""
    if not any(map(had_engine, model.modules())):
        return False
    trains = any(owner.optimizer is not None for owner in owners)
    # The garbage collector may have released an unused engine on some ranks only.
    for sharding in {sharding_with(unit): None for unit in units_of(model)}:
        count = np.array([trains], np.float32)
        if sharding.context.world_size > 1:
            sharding.context.world.all_reduce(count)
        trains = bool(count[0] == sharding.context.world_size)
    return trains


def revert_if_misfit(
    model: torch.nn.Module,
    owners: Sequence[Engine],
    config: Config,
    plans: Collection[meron.Plan],
    device: str,
    client: object,
) -> None:
    """Undoes the sharding of a model whose earlier engine had another stage, dtype or device.
    Collective. The engines `owners` end then. Memory: the whole model on each rank.

    Raises StateError, before anything has changed, if `client` is an optimizer of the shards.
    """
    units = units_of(model)
    if not all(hasattr(param, "ds_id") for unit in units for param in unit.params):
        return  # meron.torch.shard was told how
    if not all(had_engine(part) for part in owners_in(model)):
        return  # zero.Init was told how
    own = torch_device_of(device)
    place = torch.device("cpu") if own is None else own.torch_device
    misfit = next(filter(None, (misfit_of(unit, config, plans, place) for unit in units)), None)
    if misfit is None:
        return
    if getattr(client, "_meron_shards", None) is not None or hasattr(client, "sharded"):
        raise errors.StateError(
            f"{type(client).__name__} steps shards of the last engine, which had {misfit}",
            operation="initialize",
            subject="optimizer",
            advice="Make a new optimizer of model.parameters(), or pass the config of that engine.",
        )
    if sharding_with(units[0]).context.rank == 0:
        logger.info("%s is sharded anew: it was %s", type(model).__name__, misfit)
    for owner in owners:
        owner.reload_states()
    revert(model, owners)
    for owner in owners:
        owner._give_way(None)


def owners_in(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The parts of a model that own sharded params themselves."""
    return [
        part
        for part in model.modules()
        if any(unit_of(param) is not None for param in part.parameters(recurse=False))
    ]


def misfit_of(
    unit: ShardedUnit, config: Config, plans: Collection[meron.Plan], device: torch.device
) -> str | None:
    """Why a unit that is there already does not fit a config with one of some plans; None if it
    does. Local."""
    sharding = unit.sharding
    if asked_plan(sharding.context) not in plans:
        return f"'{unit.name}' by the plan {asked_plan(sharding.context).json()}"
    if sharding.torch_device.type != device.type:
        return f"'{unit.name}' computes on {sharding.torch_device}"
    for i, handle in enumerate(unit.handles):
        if DTYPES[handle.dtype_name] is not (config.dtype or unit.built[i]):
            return f"'{handle.name}' in {handle.dtype_name}"
        if handle.frozen and unit.params[i].requires_grad:
            return f"'{handle.name}' was frozen then"
    return None


def discard_gradients(sharding: Sharding, units: list[ShardedUnit]) -> None:
    """Drops gradients that a replaced engine has left. Collective."""
    waiting = [unit.name for unit in units if sharding.reducer.has_any(unit)]
    if waiting:
        logger.warning(
            "initialize: gradients of the replaced engine that no step has used are dropped (%s%s)",
            ", ".join(waiting[:3]),
            f" and {len(waiting) - 3} others" if len(waiting) > 3 else "",
        )
    sharding.reducer.discard(units)
