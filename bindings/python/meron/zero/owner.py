# SPDX-License-Identifier: Apache-2.0
"""The engine that a model, and each of its modules and params, belongs to."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Protocol

import torch

from meron import errors
from meron.torch.unit import ShardedUnit

ENGINE_MARK = "_meron_engine"  # the attribute that refers to the engine


class Owner(Protocol):
    """The part of an Engine that code uses which only has a module or a param."""

    module: torch.nn.Module
    optimizer: torch.optim.Optimizer | None
    units: list[ShardedUnit]

    def is_gradient_accumulation_boundary(self) -> bool: ...


def engine_of(thing: torch.nn.Module | torch.Tensor) -> Owner | None:
    """The engine that a module or a param of a model belongs to."""
    reference = thing.__dict__.get(ENGINE_MARK)
    engine: Owner | None = reference() if reference is not None else None
    return engine


def had_engine(module: torch.nn.Module) -> bool:
    """True if a module belongs to an engine, or did so: also of one that exists no more."""
    return ENGINE_MARK in module.__dict__


def owners_of(model: torch.nn.Module) -> list[Owner]:
    """The engines that a model, or a param of it, belongs to."""
    things: list[torch.nn.Module | torch.Tensor] = [model, *model.parameters()]
    found = {id(engine): engine for engine in map(engine_of, things) if engine is not None}
    return list(found.values())


def own(engine: Owner, units: Iterable[ShardedUnit]) -> None:
    """Makes an engine the one of its model, and of the params of units."""
    for part in engine.module.modules():
        part.__dict__[ENGINE_MARK] = weakref.ref(engine)
    for unit in units:
        for param in unit.params:
            param.__dict__[ENGINE_MARK] = weakref.ref(engine)


def disown(engine: Owner, units: Iterable[ShardedUnit]) -> None:
    """Undoes `own`, except where another engine has become the owner."""
    for part in engine.module.modules():
        if engine_of(part) is engine:
            part.__dict__[ENGINE_MARK] = no_engine
    for unit in units:
        for param in unit.params:
            if engine_of(param) is engine:
                del param.__dict__[ENGINE_MARK]


def no_engine() -> None:
    """In place of a reference to an engine that has left its module."""


def destroyed(what: str, operation: str, end: str = "was destroyed") -> errors.StateError:
    """The error of an operation that needs an engine, after `destroy`, or after another engine has
    replaced it."""
    return errors.StateError(
        f"{what} {end}",
        operation=operation,
        advice="Use the engine that initialize made of its model since then.",
    )
