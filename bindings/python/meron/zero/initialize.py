# SPDX-License-Identifier: Apache-2.0
"""initialize: a model and a config become an engine."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch

import meron.torch as mt
from meron import checkpointing, errors
from meron._call_names import calling
from meron.torch.destroy import destroy_lost
from meron.torch.resolve.device import device_for, new_device
from meron.torch.sharding import Sharding, sharding_with, unit_of
from meron.torch.world import asked_plan
from meron.torch.wrap import convert_buffers
from meron.zero.config import Config, Source, parse
from meron.zero.copying import let_copy
from meron.zero.differences import differences
from meron.zero.dropin.version import PEER_VERSION
from meron.zero.engine import Engine
from meron.zero.engine_config import as_engine_config
from meron.zero.gathered import checked
from meron.zero.init import choose_group, refuse
from meron.zero.leaf import set_leaves_of_config
from meron.zero.optimizers import (
    Client,
    ParamGroups,
    check_trainable,
    make_optimizer,
    params_in,
)
from meron.zero.owner import had_engine
from meron.zero.rehearsal import (
    check_same_optimizer,
    cycles_momentum,
    has_scheduler,
    is_function,
    rehearse,
    require_optimizer,
)
from meron.zero.reports import announce
from meron.zero.schedulers import make_scheduler
from meron.zero.succession import (
    check_free,
    discard_gradients,
    revert_if_misfit,
    trained_beside,
)
from meron.zero.tiers import plan_for
from meron.zero.units import open_sharding, persistent_units, set_limits, shard_module, units_of
from meron.zero.zero_optimizer import adopt

logger = logging.getLogger("meron.zero")

# Methods of an mpu that knows a model-parallel group, over which activations are cut.
MODEL_PARALLEL = ("get_tensor_model_parallel_group", "get_model_parallel_group")


@calling("initialize")
def initialize(
    args: Any = None,
    model: torch.nn.Module | None = None,
    optimizer: Client = None,
    model_parameters: ParamGroups = None,
    training_data: Any = None,
    lr_scheduler: Any = None,
    distributed_port: int | None = None,
    mpu: Any = None,
    dist_init_required: bool | None = None,
    collate_fn: Any = None,
    config: Source = None,
    mesh_param: Any = None,
    config_params: Source = None,
    *,
    device: str | torch.device | None = None,
    deepspeed_defaults: bool = False,
) -> tuple[Engine, torch.optim.Optimizer | None, Any, Any]:
    """Shards a model by a config and returns what trains it. Collective.

    Args:
        args: an object whose `deepspeed_config` is the config, where `config` is not given.
        model: built before, also within zero.Init, also on the device "meta".
        optimizer: of torch, or a function of the params; it counts rather than the config's.
        model_parameters: params or param groups for the optimizer; default is all trainable ones.
        training_data: a dataset; its batches are spread over the ranks. (An IterableDataset must
            do so itself.)
        lr_scheduler: of torch, or a function of the optimizer; it counts rather than the config's.
        mpu: get_data_parallel_group() of it is the group to shard over; default is all ranks.
        config, config_params: a dict or the path of a JSON file; one of them.
        device: where the model computes, as meron.torch.shard has it; default is where its params
            are, and for a model on the device "meta" as for zero.Init. (DeepSpeed always takes its
            accelerator.)
        deepspeed_defaults: a config without `gradient_clipping` clips at 1.0, as DeepSpeed does;
            otherwise it does not clip. An optimizer of meron.torch that is passed keeps its
            `max_norm`.
        distributed_port, dist_init_required: without effect, as ranks find each other by
            `meron run`, torchrun, or an initialised torch.distributed.

    Returns:
        (engine, optimizer, dataloader, lr_scheduler); None for those that do not exist.

    Raises:
        ArgumentError: the model or the config is missing, there are two configs, a key is unknown,
        batch sizes contradict each other, or an `lr_scheduler` has no optimizer. UnsupportedError:
        a feature that Meron lacks, by name. StateError: a param of the model belongs to an engine
        of a larger model, or is in use.
        Errors of the config, and of the objects that are passed, are raised before the model is
        sharded. The model can then be passed again, with a corrected config of any stage.

    A model that has an engine gets another one, and the first one and its optimizer train no more:
    their calls raise StateError. If stage, dtype or device differ, the model is sharded anew, for
    which each rank holds all of it for a moment. Gradients that wait are dropped. An engine without
    an optimizer evaluates beside the one that trains the model, and changes nothing.
    """
    if not isinstance(model, torch.nn.Module):
        raise errors.argument("initialize needs a torch.nn.Module as model", subject="model")
    owners = check_free(model)
    refuse(mesh_param=mesh_param)
    model_parameters = listed(model_parameters)
    source = choose_config(args, config, config_params)
    chosen = parse(source)
    if deepspeed_defaults:
        chosen.clip_as_deepspeed()
    rehearse(model, chosen, optimizer, model_parameters, lr_scheduler)
    group = choose_group(None, None, mpu)
    trains = optimizer is not None or chosen.optimizer is not None
    if not trains and trained_beside(model, owners):
        return evaluate_beside(model, source, chosen, training_data, collate_fn, mpu)
    sharding = shard(model, chosen, group, device, optimizer, model_parameters, owners)
    check_trainable(model)
    configure_checkpointing(chosen, mpu)
    announce(chosen, sharding.context.rank)
    if sharding.context.rank == 0:
        report_choices(chosen)

    engine = Engine(model, as_engine_config(source, chosen), sharding, units_of(model))
    let_copy(model)
    try:
        for owner in owners:
            if not owner._destroyed:  # else its model was sharded anew
                owner.reload_states()
        equip(engine, optimizer, model_parameters, lr_scheduler)
        engine.mpu, engine.collate_fn, engine.training_data = mpu, collate_fn, training_data
        if training_data is not None:
            engine.training_dataloader = engine.deepspeed_io(training_data)
        sharding.persist(persistent_units(sharding, engine.units), engine.units)
    except BaseException:
        engine._release_model()
        for owner in owners:
            if not owner._destroyed:
                owner._own()
        raise
    for owner in owners:
        owner._give_way(engine.optimizer)
    return engine, engine.optimizer, engine.training_dataloader, engine.lr_scheduler


def evaluate_beside(
    model: torch.nn.Module, source: Source, config: Config, data: Any, collate_fn: Any, mpu: Any
) -> tuple[Engine, None, Any, None]:
    """An engine without an optimizer, of a model that another engine trains. Local."""
    units = units_of(model)
    sharding = sharding_with(units[0])
    config.resolve(sharding.context.world_size)
    engine = Engine(model, as_engine_config(source, config), sharding, units, owns=False)
    engine.mpu, engine.collate_fn, engine.training_data = mpu, collate_fn, data
    if data is not None:
        engine.training_dataloader = engine.deepspeed_io(data)
    return engine, None, engine.training_dataloader, None


def report_choices(config: Config) -> None:
    """Logs what became of a config, and each difference from DeepSpeed that it meets."""
    if config.without_effect:
        logger.info("keys of the config without effect: %s", ", ".join(config.without_effect))
    if config.told:
        logger.info("rows stay on the host: %s", "; ".join(config.told))
    if config.offload.told:
        logger.info("offload: %s", "; ".join(config.offload.told))
    for difference in differences(config):
        logger.info("other than DeepSpeed %s: %s", PEER_VERSION, difference)


def configure_checkpointing(config: Config, mpu: Any) -> None:
    """Passes the block activation_checkpointing on to meron.checkpointing. Local."""
    block = config.activations
    if block is None:
        return
    parallel = any(hasattr(mpu, name) for name in MODEL_PARALLEL)
    checkpointing.configure(
        mpu if parallel else None,
        partition_activations=block.partition_activations,
        contiguous_checkpointing=block.contiguous_memory_optimization,
        num_checkpoints=block.number_checkpoints,
        checkpoint_in_cpu=block.cpu_checkpointing,
        synchronize=block.synchronize_checkpoint_boundary,
        profile=block.profile,
    )


def equip(
    engine: Engine, optimizer: Client, model_parameters: ParamGroups, lr_scheduler: Any
) -> None:
    """Gives an engine its optimizer and scheduler. Collective."""
    model, chosen = engine.module, engine.config
    block = chosen.optimizer
    engine._owns_optimizer = optimizer is None
    engine.optimizer = make_optimizer(
        model,
        optimizer,
        block,
        model_parameters,
        chosen.clipping if optimizer is None else chosen.given_clipping,
        chosen.check_optimizer,
        cycles_momentum(chosen),
        chosen.in_place,
    )
    if engine.optimizer is not None:
        adopt(engine, engine.optimizer)
    if not has_scheduler(chosen, engine.optimizer, lr_scheduler):
        if chosen.scheduler is not None and engine.global_rank == 0:
            logger.info("the config's scheduler has no effect without an optimizer")
        return
    require_optimizer(engine.optimizer, lr_scheduler)
    assert engine.optimizer is not None
    if lr_scheduler is None:
        assert chosen.scheduler is not None
        engine.lr_scheduler = make_scheduler(engine.optimizer, *chosen.scheduler)
        return
    made = is_function(lr_scheduler)
    engine.lr_scheduler = lr_scheduler(engine.optimizer) if made else lr_scheduler
    check_same_optimizer(engine.lr_scheduler, engine.optimizer)


def choose_config(args: Any, config: Source, config_params: Source) -> Source:
    given = {
        "config": config,
        "config_params": config_params,
        "args.deepspeed_config": getattr(args, "deepspeed_config", None),
        "args.deepscale_config": getattr(args, "deepscale_config", None),  # its oldest name
    }
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        what = " and ".join(names) + " are given" if names else "no config is given"
        raise errors.argument(
            what,
            subject="config",
            advice="Pass initialize(config=...) a dict or a JSON file's path.",
        )
    return given[names[0]]


def listed(groups: ParamGroups) -> ParamGroups:
    """Params, or groups of them, that may be looked at more than once."""
    if groups is None:
        return None
    items: list[Any] = list(groups)
    for place, item in enumerate(items):
        if isinstance(item, dict) and isinstance(item.get("params"), Iterator):
            items[place] = {**item, "params": list(item["params"])}
    return items


def steps_on_host(model: torch.nn.Module, client: Client, groups: ParamGroups) -> bool:
    """True if an optimizer of torch will take the step: the caller's, or torch's rule in place of
    the engine's, if the config's optimizer does not train all params."""
    if client is not None:
        return not isinstance(client, mt.EngineOptimizer)
    if groups is None:
        return False
    chosen = {id(param) for param in params_in(list(groups))}
    return any(param.requires_grad and id(param) not in chosen for param in model.parameters())


def is_unbuilt(model: torch.nn.Module) -> bool:
    """True if all params are on the device "meta", so that no param names a device."""
    return all(param.is_meta and unit_of(param) is None for param in model.parameters())


def shard(
    model: torch.nn.Module,
    config: Config,
    group: Any,
    device: str | torch.device | None,
    client: Client = None,
    groups: ParamGroups = None,
    owners: Sequence[Engine] = (),
) -> Sharding:
    """Shards what zero.Init, or an earlier engine, did not, and completes the config's batch sizes.
    Collective. `owners` are engines that the model has."""
    set_leaves_of_config(model, config.leaf)
    chosen = device_for([model], new_device(device) if is_unbuilt(model) else device)
    on_host = steps_on_host(model, client, groups)
    plan = plan_for(config, chosen, on_host)
    plans = [plan, config.plan(), *([] if on_host else [plan_for(config, chosen)])]
    revert_if_misfit(model, owners, config, plans, chosen, client)
    places = [place for place in map(unit_of, model.parameters()) if place is not None]
    shardings = {sharding_with(place[0]) for place in places}
    if len(shardings) > 1:
        raise errors.StateError(
            f"parts of {type(model).__name__} were sharded by {len(shardings)} different plans or "
            "groups",
            advice="Give every zero.Init of a model the same config and group.",
        )
    if shardings:
        sharding = shardings.pop()
        known = asked_plan(sharding.context)
        # zero.Init knew no optimizer, or no devices that could be joined.
        if known not in (plan, config.plan(), plan_for(config, chosen)):
            raise errors.StateError(
                f"{type(model).__name__} was sharded by the plan {known.json()}, the config asks "
                f"for {plan.json()}",
                subject="zero_optimization.stage",
                advice="Give zero.Init the same config as initialize, or do without it below stage "
                "3 (zero.Init(enabled=False)).",
            )
    else:
        sharding = open_sharding(config, plan, group, chosen)
    config.resolve(sharding.context.world_size)  # before the model is changed
    destroy_lost(sharding)
    before = units_of(model)
    if any(map(had_engine, model.modules())):
        discard_gradients(sharding, before)
    set_limits(sharding, config.limits_of(sharding.context.world_size), before)
    name = sharding.unique(type(model).__name__)
    shard_module(sharding, model, name, dtype=config.dtype)
    elements = {u.name: sum(handle.size for handle in u.handles) for u in units_of(model)}
    config.offload.check_units(elements, config.param_ranks(sharding.context.world_size))
    if config.sanity_checks:
        checked.update(units_of(model))
    convert_buffers(model, config.dtype, config.buffer_dtype)
    return sharding
