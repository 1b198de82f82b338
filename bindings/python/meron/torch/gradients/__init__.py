# SPDX-License-Identifier: Apache-2.0
"""Passes gradients from autograd to the engine. Its protocols describe the objects it uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import meron


class Passes(Protocol):
    """passes.Passes: its `uses` are those of modules in this backward, which have not ended."""

    uses: list[Any]
    in_backward: bool

    def begin_backward(self) -> None: ...


class Reducer(Protocol):
    """reducer.GradientReducer, as units need it."""

    def drop(self, unit: Any, indices: Iterable[int]) -> None: ...


class Owner(Protocol):
    """sharding.Sharding, with its units."""

    context: meron.Context
    keeps_gradients: bool
    units: list[Any]

    @property
    def passes(self) -> Passes: ...
