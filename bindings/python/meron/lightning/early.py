# SPDX-License-Identifier: Apache-2.0
"""A model before its session: sharded early, anew where an earlier run's sharding does not fit, and
left free for another try if its setup fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

import meron.zero
from meron import errors
from meron.lightning.session import session_of
from meron.lightning.settings import without_optimizer
from meron.torch.checkpoint.agreement import together
from meron.torch.optim.replacement import trained_by
from meron.torch.sharding import sharding_with
from meron.zero.config import Config, parse
from meron.zero.owner import engine_of
from meron.zero.rehearsal import check_names
from meron.zero.revert import revert
from meron.zero.succession import misfit_of
from meron.zero.tiers import plan_for
from meron.zero.units import units_of


def check_config(config: Mapping[str, Any]) -> Config:
    """Raises, before anything is sharded, for what a config has that is unknown. Local."""
    parsed = parse(dict(config))
    check_names(parsed)
    return parsed


def shard_early(
    model: torch.nn.Module,
    config: Mapping[str, Any],
    device: torch.device,
    remote_device: str | None = None,
    *,
    trains: bool = True,
) -> None:
    """Shards what is not sharded yet, before optimizers are made. Collective.

    So `configure_optimizers` may make optimizers of meron.torch, which need sharded params. A model
    that an earlier run sharded is sharded again if the stage or the dtype differs, or if params
    that were frozen then are trained now.

    Args:
        trains: False for an evaluation: the optimizers of an earlier run stay, unless the model is
            sharded again.

    Raises StateError: the model has an engine, or was sharded otherwise by meron.torch.shard.
    """
    check_free(model)
    if trains:
        release_previous(model)
    units = units_of(model)
    for sharding in {sharding_with(unit): None for unit in units}:
        # Gradients of a failed run, even if its session no longer exists on this rank.
        sharding.reducer.discard([unit for unit in units if unit.sharding is sharding])
    parsed = parse(dict(config))
    place = "" if device.type == "cpu" else str(device)
    plans = [parsed.plan(), plan_for(parsed, place), plan_for(parsed, place, True)]
    misfit = next(filter(None, (misfit_of(unit, parsed, plans, device) for unit in units)), None)
    if misfit is not None:
        if not all(hasattr(param, "ds_id") for unit in units for param in unit.params):
            raise errors.StateError(
                f"{type(model).__name__} is sharded already, and {misfit}: the strategy asks for "
                f"stage {parsed.stage}",
                operation="setup",
                advice="Leave meron.torch.shard out: the strategy shards the module. Or choose the "
                "strategy of the same stage.",
            )
        release_previous(model)
        revert(model)
    meron.zero.Init(
        module=model,
        remote_device=remote_device,
        config_dict_or_path=without_optimizer(config),
        device=device,
    )


def check_free(model: torch.nn.Module) -> None:
    """StateError for a model that another strategy, which is not torn down, has in use."""
    if engine_of(model) is None and all(engine_of(each) is None for each in model.parameters()):
        return
    raise errors.StateError(
        f"{type(model).__name__}, or a part of it, is in use by another Trainer, Fabric or engine",
        operation="setup",
        advice="Let its run end (Trainer), call fabric.strategy.teardown(), or engine.destroy(), "
        "before.",
    )


@contextlib.contextmanager
def setting_up(model: torch.nn.Module) -> Iterator[None]:
    """If the block raises, ends the engine's optimizers that it has made, so that another setup can
    follow: a unit has one optimizer at a time. Local."""
    before = engine_optimizers(model)
    try:
        yield
    except BaseException:
        for optimizer in engine_optimizers(model):
            if not any(optimizer is each for each in before):
                optimizer.release()
        raise


def engine_optimizers(model: torch.nn.Module) -> list[Any]:
    """The engine's optimizers of a model's units that were not released."""
    found: dict[int, Any] = {}
    for unit in units_of(model):
        optimizer = trained_by(unit)
        if optimizer is not None:
            found[id(optimizer)] = optimizer
    return list(found.values())


def agreed(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """Around code of the caller's: if it raises on one rank, it raises on all. Collective."""
    units = units_of(model)
    return together(units[0].sharding.context) if units else contextlib.nullcontext()


def release_previous(model: torch.nn.Module) -> None:
    """Ends the engine's optimizers of a model's earlier sessions: a unit has one at a time. Those
    that the caller made stay. Local."""
    previous = session_of(model)
    if previous is not None and previous.closed:
        previous.release()
    for optimizer in engine_optimizers(model):
        made_for = getattr(optimizer, "_meron_session", None)
        session = made_for() if made_for is not None else None
        if made_for is not None and (session is None or session.closed):
            optimizer.release()
