# SPDX-License-Identifier: Apache-2.0
"""The params and buffers of a module by the names of its state dict, as places to write to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import torch

import meron
from meron.torch.sharding import sharding_with, unit_of
from meron.torch.torch_internals import EXTRA_STATE, own_buffers, own_params, unsaved_buffers
from meron.torch.unit import ShardedUnit
from meron.zero import comm
from meron.zero.scattering import Entry, Table

Place = tuple[ShardedUnit, int]


@dataclasses.dataclass
class Target:
    owner: torch.nn.Module
    key: str  # its name there
    tensor: torch.Tensor
    place: Place | None  # where it is sharded

    @property
    def identity(self) -> object:
        """Equal for names of one tensor."""
        return self.place or id(self.tensor)

    @property
    def empty(self) -> bool:
        """True if it is still on the device meta."""
        if self.place is not None:
            return self.place[1] in self.place[0].unmade
        return self.tensor.is_meta


def targets_of(module: torch.nn.Module) -> dict[str, Target]:
    found = {}
    for path, part in module.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        saved = {k: b for k, b in own_buffers(part).items() if k not in unsaved_buffers(part)}
        for key, tensor in [*dict.items(own_params(part)), *saved.items()]:
            if tensor is not None:
                found[prefix + key] = Target(part, key, tensor, unit_of(tensor))
    return found


def extra_states_of(module: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Modules with an extra state, by its name."""
    plain = torch.nn.Module.get_extra_state
    return {
        f"{path}.{EXTRA_STATE}" if path else EXTRA_STATE: part
        for path, part in module.named_modules(remove_duplicate=False)
        if type(part).get_extra_state is not plain
    }


def context_of(places: Iterable[Place | None]) -> meron.Context:
    """The context of sharded params; of all ranks, where there are none."""
    context = next((place[0].sharding.context for place in places if place is not None), None)
    return comm.any_world() if context is None else context


def compare(
    module: torch.nn.Module, targets: dict[str, Target], table: Table, assign: bool
) -> tuple[list[str], list[str], list[str]]:
    """(missing, unexpected, what is wrong in any case) of rank 0's state dict. Local.

    A name of a tied param is not missing if another one of it is there.
    """
    there = {targets[name].identity for name in table.entries if name in targets}
    given = {*table.entries, *table.objects}
    extra = extra_states_of(module)
    missing = [name for name, target in targets.items() if target.identity not in there]
    missing += [name for name in extra if name not in given]
    unexpected = [name for name in sorted(given) if name not in targets and name not in extra]
    wrong = [table.wrong] if table.wrong else []
    for name, entry in table.entries.items():
        target = targets.get(name)
        if target is None:
            continue
        if tuple(target.tensor.shape) != entry.shape:
            wrong.append(f"'{name}' has shape {entry.shape}, not {tuple(target.tensor.shape)}")
        if target.empty and target.place is None and not assign:
            wrong.append(f"'{name}' is on the device meta: pass assign=True")
        if target.place is not None and target.place[0].uses:
            wrong.append(f"'{name}' is gathered: load outside of forwards and GatheredParameters")
        if target.place is not None and entry.dtype.is_complex:
            wrong.append(f"'{name}' is of {entry.dtype}")
    wrong += [f"'{name}' is no tensor" for name in table.objects if name in targets]
    wrong += [
        f"'{name}' is on the device meta, and the state dict has no values for it"
        for name in missing
        if name in targets and targets[name].empty
    ]
    for path, part in module.named_modules():
        for key in unsaved_buffers(part):
            buffer = own_buffers(part).get(key)
            if buffer is not None and buffer.is_meta:
                name = f"{path}.{key}" if path else key
                wrong.append(
                    f"the buffer '{name}' is on the device meta, and not saved: build it on the CPU"
                )
    return missing, unexpected, wrong


def loaded_names(targets: dict[str, Target], table: Table) -> list[str]:
    """Those of a state dict's tensors that a module takes, each once, unit by unit: of names of one
    tensor the last, as of torch."""
    names = {targets[name].identity: name for name in table.entries if name in targets}
    return sorted(names.values(), key=lambda name: unit_number(targets[name]))


def unit_number(target: Target) -> tuple[str, int]:
    if target.place is None:
        return ("", -1)
    unit = target.place[0]
    return (unit.sharding.context.plan.json(), unit.index)


def write_targets(targets: dict[str, Target], values: Iterator[tuple[Entry, torch.Tensor]]) -> None:
    """Writes full values, equal on all ranks, that arrive unit by unit. Collective."""
    unit: ShardedUnit | None = None
    own: dict[int, torch.Tensor] = {}
    for entry, value in values:
        target = targets[entry.name]
        if target.place is None:
            write_plain(targets, target, value)
            continue
        if unit is not None and unit is not target.place[0]:
            write_unit(unit, own)
            own = {}
        unit = target.place[0]
        own[target.place[1]] = value
    if unit is not None:
        write_unit(unit, own)


def write_unit(unit: ShardedUnit, values: dict[int, torch.Tensor]) -> None:
    sharding_with(unit).write(unit, values)
    for i in values:
        unit.unmade.pop(i, None)


def write_plain(targets: dict[str, Target], target: Target, value: torch.Tensor) -> None:
    tensor = target.tensor
    if not tensor.is_meta:
        with torch.no_grad():
            tensor.copy_(value)
        return
    fresh = value.to(tensor.dtype, copy=True)
    if isinstance(tensor, torch.nn.Parameter):
        fresh = torch.nn.Parameter(fresh, tensor.requires_grad)
    for other in targets.values():  # which may be tied to it
        if other.tensor is tensor:
            if isinstance(fresh, torch.nn.Parameter):
                own_params(other.owner)[other.key] = fresh
            else:
                own_buffers(other.owner)[other.key] = fresh
