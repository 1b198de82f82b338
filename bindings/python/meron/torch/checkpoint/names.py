# SPDX-License-Identifier: Apache-2.0
"""Names of a model's tensors in files: their keys in its state_dict()."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Union

import torch

from meron import errors
from meron.torch.api import shardings_below
from meron.torch.sharding import Sharding, unit_of
from meron.torch.torch_internals import (
    EXTRA_STATE,
    WRAPPERS,
    own_buffers,
    own_params,
    unsaved_buffers,
)
from meron.torch.unit import ShardedUnit

Models = Union[torch.nn.Module, Mapping[str, torch.nn.Module]]
Place = tuple[ShardedUnit, int]


class Names:
    """The tensors of one or several models, which one context shards.

    Attributes:
        sharding: of all of them.
        params:   sharded params by name: unit, and index there.
        others:   by name what all ranks have: persistent buffers, and params in no unit.
        aliases:  other names of those: {name: the one that is used}.
        temporary: buffers that no state_dict has, by name.
        extra_states: modules with a get_extra_state of their own, by the name of that state.
    """

    def __init__(self, models: Models) -> None:
        roots = {"": models} if isinstance(models, torch.nn.Module) else dict(models)
        for key, model in roots.items():
            if not isinstance(key, str) or not isinstance(model, torch.nn.Module):
                raise errors.argument(
                    f"model has {key!r}: {type(model).__name__}, which is no module by its name",
                    subject="model",
                    advice="Give a torch.nn.Module, or a dict of them by name.",
                )
        self.roots = roots
        shardings = list(
            dict.fromkeys(s for model in roots.values() for s in shardings_below(model))
        )
        if not shardings:
            raise errors.argument("there is no model in `model`", subject="model")
        if len(shardings) > 1:
            raise errors.UnsupportedError(
                "the model is sharded by several plans or groups of ranks, and a checkpoint is of "
                "one",
                subject="model",
                advice="Save the parts that share a plan and group one by one.",
            )
        self.sharding: Sharding = shardings[0]
        self.params: dict[str, Place] = {}
        self.others: dict[str, torch.Tensor] = {}
        self.aliases: dict[str, str] = {}
        self.temporary: dict[str, tuple[torch.nn.Module, str]] = {}
        self.extra_states: dict[str, torch.nn.Module] = {}
        self.owners: dict[str, tuple[torch.nn.Module, str]] = {}  # of `others`
        self.of_place: dict[Place, str] = {}
        self.of_other: dict[int, str] = {}
        for key, model in roots.items():
            self._add(f"{key}." if key else "", model)

    def _add(self, base: str, model: torch.nn.Module) -> None:
        for prefix, part in modules_of(base, model):
            for name, param in own_params(part).items():
                place = None if param is None else unit_of(param)
                if place is not None:
                    first = self.of_place.setdefault(place, prefix + name)
                    self._note(prefix + name, first, self.params, place)
                elif param is not None:
                    self._add_other(prefix + name, param, part, name)
            for name, buffer in own_buffers(part).items():
                if buffer is None:
                    continue
                if name in unsaved_buffers(part):
                    self.temporary[prefix + name] = part, name
                else:
                    self._add_other(prefix + name, buffer, part, name)
            if type(part).get_extra_state is not torch.nn.Module.get_extra_state:
                self.extra_states[prefix + EXTRA_STATE] = part

    def _add_other(self, name: str, tensor: torch.Tensor, part: torch.nn.Module, own: str) -> None:
        if torch.nn.parameter.is_lazy(tensor):
            raise errors.argument(
                f"{name} is lazy: it has no shape yet",
                subject=name,
                advice="Run one forward before.",
            )
        first = self.of_other.setdefault(id(tensor), name)
        self._note(name, first, self.others, tensor)
        self.owners.setdefault(name, (part, own))

    def _note(self, name: str, first: str, table: dict[str, Any], value: Any) -> None:
        if name == first:
            table[name] = value
        else:
            self.aliases[name] = first

    def units(self) -> list[ShardedUnit]:
        found = dict.fromkeys(unit for unit, _ in self.params.values())
        return sorted(found, key=lambda unit: unit.index)

    def mapping(self, units: Iterable[ShardedUnit]) -> dict[str, str]:
        """The engine's names of the units' params to those in files; "" for other models'."""
        return {
            handle.name: self.of_place.get((unit, i), "")
            for unit in units
            for i, handle in enumerate(unit.handles)
        }

    def all_names(self, name: str) -> list[str]:
        """All that a tensor is called, the one that is used first."""
        return [name, *(alias for alias, first in self.aliases.items() if first == name)]

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """Of a param of the model, in a unit or not."""
        place = unit_of(tensor)
        return self.of_other.get(id(tensor)) if place is None else self.of_place.get(place)


def modules_of(base: str, model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """All modules below, with what their tensors' names begin with; shared ones at each place."""
    for path, part in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for wrapper in WRAPPERS:
            prefix = prefix.replace(wrapper, "")
        yield base + prefix, part
