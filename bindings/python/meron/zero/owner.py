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

    def is_gradient_accumulation_boundary(self) -> bool: ...


def engine_of(thing: torch.nn.Module | torch.Tensor) -> Owner | None:
    """The engine that a module or a param of a model belongs to."""
    reference = thing.__dict__.get(ENGINE_MARK)
    engine: Owner | None = reference() if reference is not None else None
    return engine


def own(engine: Owner, units: Iterable[ShardedUnit]) -> None:
    """Makes an engine the one of its model, and of the params of units."""
    for part in engine.module.modules():
        part.__dict__[ENGINE_MARK] = weakref.ref(engine)
    for unit in units:
        for param in unit.params:
            param.__dict__[ENGINE_MARK] = weakref.ref(engine)


def disown(engine: Owner, units: Iterable[ShardedUnit]) -> None:
    """Undoes `own`."""
    for part in engine.module.modules():
        part.__dict__.pop(ENGINE_MARK, None)
    for unit in units:
        for param in unit.params:
            param.__dict__.pop(ENGINE_MARK, None)


def destroyed(what: str, operation: str) -> errors.StateError:
    """The error of an operation that needs an engine, after `destroy`."""
    return errors.StateError(
        f"{what} was destroyed",
        operation=operation,
        advice="Use the engine that initialize made of its model since then.",
    )
