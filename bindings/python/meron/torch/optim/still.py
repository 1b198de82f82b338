# SPDX-License-Identifier: Apache-2.0
"""Params that were frozen after they were sharded, in a step of the engine's.

The engine updates whole units: a momentum or a weight decay would move what is frozen now. Its
values and states are kept aside during the step, and put back before anybody sees the new ones.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch

import meron
from meron import errors
from meron._interrupts import Interrupts
from meron._native import call, ffi, lib
from meron.torch.guard import plain
from meron.torch.optim.states import read_state, write_state
from meron.torch.unit import ShardedUnit


class Still:
    """Values and states of an optimizer's params that do not require gradients now.

    Those that no step has anything to change of hold nothing. Copies are of this rank's parts, f32:
    states in 8 bits are rounded to nearest anew when they are put back.
    """

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.interrupts = Interrupts()
        self.kept: dict[ShardedUnit, dict[int, dict[str, torch.Tensor]]] = {}
        with plain():
            places = [
                (unit, i)
                for unit in optimizer.sharded
                if not all([param.requires_grad for param in unit.params])
                for i in unit.trainable
                if not unit.params[i].requires_grad
            ]
        keys = ["master"]
        if places and optimizer.has_states(optimizer.param_groups[0]):
            keys += optimizer.state_names
        for unit, i in places:
            states = {key: read_state(optimizer, unit, i, key) for key in keys}
            self.kept.setdefault(unit, {})[i] = states

    def step(self) -> None:
        """The engine's step, after which what is frozen is as it was. Collective: every rank has
        the same params frozen.

        If any are, an interrupt ends neither the step nor what puts them back, as peers wait for
        both: `interrupts` has it then.
        """
        engine: meron.Optimizer = self.optimizer.engine
        if not self.kept:
            engine.step()
            return
        try:
            engine._step_to_its_end(self.interrupts)
        except errors.NonFiniteError:  # nothing was changed
            self.interrupts.raise_first()
            raise
        self.interrupts.run(self._put_back_states)
        units = [unit.unit for unit in self.kept]
        with contextlib.ExitStack() as stack:
            update = self.optimizer.sharding.context.update(units)
            update._enter(functools.partial(self.interrupts.run, call))
            stack.push(update)
            self.interrupts.run(self._put_back_values, update)

    def _put_back_states(self) -> None:
        for unit, params in self.kept.items():
            for i, states in params.items():
                for key in states.keys() - {"master"}:
                    write_state(self.optimizer, unit, i, key, states[key])

    def _put_back_values(self, update: meron.Update) -> None:
        for unit, params in self.kept.items():
            for i, states in params.items():
                handle, owned = unit.handles[i], unit.owned(i)
                # Of the whole only this rank's part is read; f32 masters are written too.
                whole = torch.empty(handle.size, dtype=torch.float32, device="cpu")
                whole[owned.start : owned.stop] = states["master"]
                call(
                    lib.meron_update_write,
                    update._open_handle(),
                    handle._handle,
                    ffi.cast("void *", whole.data_ptr()),
                    handle.size,
                    lib.MERON_F32,
                )
