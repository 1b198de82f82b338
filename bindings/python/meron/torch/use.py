# SPDX-License-Identifier: Apache-2.0
"""What passes, uses of modules and gradients know of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import meron
from meron.torch.unit import ShardedUnit


class Active(Protocol):
    """What runs now, and uses params."""

    def use_of_other(self, unit: ShardedUnit) -> None:
        """A param of another module's unit is used in it."""


class Use(Active, Protocol):
    """hooks.Use: one forward of a sharded module; with gradients, its backward too.

    entered:  units that its forward entered
    units:    units that its backward has entered
    first:    its number, by Passes.clock
    task:     the backward that runs its recomputed graph
    """

    entered: list[ShardedUnit]
    units: Sequence[ShardedUnit]
    first: int
    task: int

    def end_if_done(self) -> None:
        """Ends its backward, if all its units have their gradients."""

    def end(self) -> None:
        """Its backward has ended."""


class Passes(Protocol):
    """passes.Passes, as gradients need them."""

    uses: list[Use]
    in_backward: bool

    def begin_backward(self) -> None: ...


class Owner(Protocol):
    """The sharding, as gradients need it."""

    context: meron.Context
    keeps_gradients: bool
    units: list[ShardedUnit]

    @property
    def passes(self) -> Passes: ...
