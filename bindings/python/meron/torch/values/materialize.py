# SPDX-License-Identifier: Apache-2.0
"""Gives models that were built on the device "meta" real values, one module at a time. Only the
shards are kept."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from meron import errors
from meron.torch.sharding import Sharding, unit_of
from meron.torch.torch_internals import RESET, own_buffers, own_params
from meron.torch.values.unwritten import check_written, share_buffers, unwritten

if TYPE_CHECKING:
    from meron.torch.unit import ShardedUnit


def defer(unit: ShardedUnit) -> None:
    """Keeps a new unit without values, but for f32 masters, which a load fills."""
    for i, dtype in unit.unmade.items():
        handle = unit.handles[i]
        if dtype.itemsize > 2 and handle.dtype_name != "f32" and not handle.frozen:
            unit.masters[i] = torch.zeros(len(unit.shard_range(i)), device="cpu")


def materialize(sharding: Sharding, module: torch.nn.Module, unit: ShardedUnit, seed: int) -> None:
    """Gives the params of a new unit below `module` the values of reset_parameters. Collective.

    The random numbers of a module depend on the seed and its name only, so neither on the number of
    ranks nor on the order. At most the unit is whole at a time. Buffers that are on meta become
    real where a reset_parameters is there to fill them, with the values of rank 0.

    Raises StateError naming what reset_parameters did not fill. ArgumentError naming modules with
    params or buffers on meta but no reset_parameters, or with some of their params on meta.
    """
    values: dict[int, torch.Tensor] = {}
    written: dict[str, torch.Tensor] = {}
    filled: list[tuple[torch.nn.Module, list[str]]] = []
    for path, part in module.named_modules():
        places = [unit_of(param) for param in own_params(part).values() if param is not None]
        own = [place[1] for place in places if place is not None and place[0] is unit]
        mine = [i for i in own if i in unit.unmade]
        missing = [
            name
            for name, buffer in own_buffers(part).items()
            if buffer is not None and buffer.is_meta
        ]
        if not mine and not missing:
            continue
        reset = next((getattr(part, name) for name in RESET if hasattr(part, name)), None)
        name = f"{unit.name}.{path}" if path else unit.name
        if 0 < len(mine) < len(own):
            raise errors.argument(
                f"{name} ({type(part).__name__}) is on the device meta in part",
                subject=name,
                advice="Build all of a module's own params on meta, or none.",
            )
        if reset is None:
            raise errors.argument(
                f"{name} ({type(part).__name__}) is on the device meta and has no reset_parameters",
                subject=name,
                advice="Give the class a method reset_parameters() that fills its own params and "
                "buffers, or build it on the CPU.",
            )
        for buffer_name in missing:
            buffer = own_buffers(part)[buffer_name]
            assert buffer is not None
            own_buffers(part)[buffer_name] = unwritten(buffer.shape, buffer.dtype)
        # Until the module has filled them.
        unit.data.unguard()
        for i in mine:
            handle = unit.handles[i]
            unit.params[i].data = unwritten(handle.shape, unit.unmade[i])
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        try:
            with torch.device("cpu"), torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(int.from_bytes(digest[:7], "little"))
                reset()
            for i in mine:
                written[unit.handles[i].name] = values[i] = unit.params[i].data
        finally:
            unit.hide()
        for buffer_name in missing:
            buffer = own_buffers(part)[buffer_name]
            if buffer is not None:
                written[f"{name}.{buffer_name}"] = buffer
        filled.append((part, missing))
    check_written(sharding, written)
    for part, names in filled:
        share_buffers(sharding, part, names)
    sharding.write(unit, values)
    unit.unmade.clear()
