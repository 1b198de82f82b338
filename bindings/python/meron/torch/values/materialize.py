# SPDX-License-Identifier: Apache-2.0
"""Models that were built on the device "meta": real values, one module at a time, of which only the
shards stay."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from meron import errors
from meron.torch.sharding import Sharding, unit_of
from meron.torch.torch_internals import RESET, own_buffers, own_params

if TYPE_CHECKING:
    from meron.torch.unit import ShardedUnit


def defer(unit: ShardedUnit) -> None:
    """Keeps a new unit without values, but for f32 masters, which a load fills."""
    for i, dtype in unit.unmade.items():
        handle = unit.handles[i]
        if dtype.itemsize > 2 and handle.dtype != "f32" and not handle.frozen:
            unit.masters[i] = torch.zeros(len(unit.owned(i)), device="cpu")


def materialize(sharding: Sharding, module: torch.nn.Module, unit: ShardedUnit, seed: int) -> None:
    """Gives the params of a new unit below `module` the values of reset_parameters. Collective.

    The random numbers of a module depend on the seed and its name only, so neither on the number of
    ranks nor on the order. At most the unit is whole at a time. Buffers that are on meta become
    real where a reset_parameters is there to fill them.

    Raises ArgumentError naming modules with params or buffers on meta but no reset_parameters, or
    with params of which only some are on meta.
    """
    values: dict[int, torch.Tensor] = {}
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
            own_buffers(part)[buffer_name] = torch.empty_like(buffer, device="cpu")
        # Until the module has filled them.
        unit.data.unguard()
        for i in mine:
            handle = unit.handles[i]
            unit.params[i].data = torch.empty(handle.shape, dtype=unit.unmade[i], device="cpu")
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        try:
            with torch.device("cpu"), torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(int.from_bytes(digest[:7], "little"))
                reset()
            for i in mine:
                values[i] = unit.params[i].data
        finally:
            unit.hide()
    sharding.write(unit, values)
    unit.unmade.clear()
