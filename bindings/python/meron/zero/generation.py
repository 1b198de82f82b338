# SPDX-License-Identifier: Apache-2.0
"""A model whose params are unsharded all at once, for generation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import torch

from meron import errors
from meron.torch.hooks import Scope
from meron.torch.unit import ShardedUnit
from meron.torch.wrap import scope_of
from meron.zero.units import units_of

ModelT = TypeVar("ModelT", bound=torch.nn.Module)

# Units that are unsharded for generation now.
generating: set[ShardedUnit] = set()


@contextlib.contextmanager
def unwrap_model_for_generation(model: ModelT) -> Iterator[ModelT]:
    """Gathers all params once, for forwards without gradients that gather nothing. Collective at
    the begin; blocks on peers there.

        with meron.zero.unwrap_model_for_generation(engine) as model, torch.no_grad():
            tokens = model.generate(prompt, max_new_tokens=64)

    Within it the ranks need not run as many forwards as each other, as those are local. Ranks that
    share memory share the unsharded params too. May be nested, and hold GatheredParameters. Values
    do not change until the end: what would change them, such as engine.step(), is refused. A
    forward with gradients trains as outside of it.

    Args:
        model: an engine, or any sharded module. One without sharded params stays as it is.

    Returns:
        The same model. At the end, also by an exception, the params are sharded again.

    Raises ArgumentError for what is no module, and StateError at the end for params that were
    written to: the values are discarded.
    """
    if not isinstance(model, torch.nn.Module):
        raise errors.argument(
            f"unwrap_model_for_generation takes an engine or a module, and got a "
            f"{type(model).__name__}",
            subject="model",
        )
    units = sorted(
        units_of(model), key=lambda unit: (unit.sharding.context.plan.json(), unit.index)
    )
    scopes = [scope for scope in map(scope_of, model.modules()) if scope is not None]
    chosen = [unit for unit in units if unit not in generating]
    suspended: list[Scope] = []
    pinned: list[ShardedUnit] = []
    try:
        for unit in chosen:
            if unit.pinned is None:
                unit.pin()
                pinned.append(unit)
        generating.update(chosen)
        suspended = [scope for scope in scopes if not scope.suspended]
        for scope in suspended:
            scope.suspended = True
        yield model
    except BaseException:
        with contextlib.suppress(errors.Error):  # the exception tells more
            end(chosen, pinned, suspended)
        raise
    else:
        end(chosen, pinned, suspended)


def end(chosen: list[ShardedUnit], pinned: list[ShardedUnit], suspended: list[Scope]) -> None:
    """Shards all again; then raises the first error. Local."""
    for scope in suspended:
        scope.suspended = False
    generating.difference_update(chosen)
    failure: errors.Error | None = None
    for unit in reversed(pinned):
        try:
            unit.unpin()
        except errors.Error as error:
            failure = failure or error
    if failure is not None:
        raise failure


__all__ = ["unwrap_model_for_generation"]
