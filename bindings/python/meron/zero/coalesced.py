# SPDX-License-Identifier: Apache-2.0
"""Params gathered together, in the background until they are needed."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from meron import errors
from meron.zero.gathered import is_open, open_params, places_of


class AllGatherCoalescedHandle:
    """A gather in progress, as `param.all_gather_coalesced(params)` returns it.

    If wait() is not called, the params stay in memory until the next forward that uses them, step,
    load or destroy. All ranks reach these together. Ranks drop a handle at different times, so a
    release at that time would make ranks wait for each other. wait() can be called later, too.
    """

    def __init__(self, params: Iterable[torch.Tensor]) -> None:
        self.params = list(params)
        places = places_of(self.params)
        for unit, i in places:
            if is_open((unit, i)):
                name = f"{unit.name}.{unit.names[i]}"
                raise errors.StateError(
                    f"{name} is gathered already",
                    subject=name,
                    advice="Call partition() first.",
                )
        self.units = list(dict.fromkeys(unit for unit, _ in places))
        self.complete = False
        for unit in self.units:
            unit.memory.prefetch()

    def wait(self, handle_dependency: bool = True) -> None:
        """The params are unsharded from now on, writable, until `partition`. Collective; blocks on
        peers the first time.

        Args:
            handle_dependency: has no effect.
        """
        if self.complete:
            return
        try:
            open_params(self.params)
            self.complete = True  # not after a failure: it can be waited for again
        finally:
            for unit in self.units:
                unit.memory.end_prefetch()
