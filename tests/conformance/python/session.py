# SPDX-License-Identifier: Apache-2.0
"""A rank's objects by name, during one case."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import meron
from meron._native import call, lib
from table import Malformed, Statement
from values import Place

T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """Configuration of a run: rank, transport and options."""

    rank: int
    world: int
    transport: str
    job: str


class Held:
    """An object of a case.

    Its handle is kept beside it: the natural layer forgets the handle with the release, so only
    the raw one can release twice, or use what is gone.
    """

    def __init__(self, item: Any) -> None:
        self.item = item
        self.handle = item._handle if hasattr(item, "_handle") else None
        self.released = False

    def release(self) -> None:
        if self.handle is None:  # an array over DLPack: it is freed with its last reference
            self.item = None
        elif not self.released and hasattr(self.item, "release"):
            self.item.release()
        else:
            call(release_of(self.item), self.handle)
        self.released = True


def release_of(item: Any) -> Any:
    """The raw function that releases an object, or what a runner's own class holds."""
    return RELEASE[type(item)] if type(item) in RELEASE else RELEASE_BY_NAME[type(item).__name__]


RELEASE: dict[type, Any] = {
    meron.Plan: lib.meron_plan_release,
    meron.Group: lib.meron_group_release,
    meron.Param: lib.meron_param_release,
    meron.Unit: lib.meron_unit_release,
    meron.Update: lib.meron_future_release,
    meron.Gather: lib.meron_future_release,
    meron.Optimizer: lib.meron_optimizer_release,
    meron.Schedule: lib.meron_schedule_release,
    meron.Future: lib.meron_future_release,
    meron.Checkpoint: lib.meron_checkpoint_release,
    meron.Context: lib.meron_context_close,
    meron.io.IO: lib.meron_io_close,
}
RELEASE_BY_NAME: dict[str, Any] = {
    "Begun": lib.meron_future_release,
    "Pinned": lib.meron_io_buffer_release,
}


class Session:
    def __init__(self, setup: Setup, case: str, plan: str) -> None:
        self.setup = setup
        self.case = case
        self.plan = plan
        self.place = Place(setup.rank, setup.world)
        self.stop = False  # what should_stop answers
        self.marked: dict[str, meron.Stats] = {}
        self.current_name = "ctx"
        self.files: list[Path] = []  # of the case, to be removed
        self.folders: list[Path] = []  # likewise
        self._objects: dict[str, Held] = {}  # oldest first

    def keep(self, name: str | None, item: Any) -> None:
        if not name:
            raise Malformed("a name is missing")
        self._objects.pop(name, None)
        self._objects[name] = Held(item)

    def held(self, name: str) -> Held:
        if name not in self._objects:
            raise Malformed(f"there is no {name!r}")
        return self._objects[name]

    def find(self, kind: type[T], name: str | None) -> T:
        item = self.held(name or "").item
        if not isinstance(item, kind):
            raise Malformed(f"{name!r} is of another kind")
        return item

    def group(self, name: str | None) -> meron.Group:
        return self.context().world if name in (None, "", "world") else self.find(meron.Group, name)

    def context(self) -> meron.Context:
        return self.find(meron.Context, self.current_name)

    def units(self, statement: Statement) -> list[meron.Unit]:
        return [self.find(meron.Unit, name) for name in statement.list("units")]

    def unit_of(self, param: meron.Param) -> meron.Unit:
        """The unit of a param; any other unit if it has none, to get the error."""
        units = [held.item for held in self._objects.values() if isinstance(held.item, meron.Unit)]
        if not units:
            raise Malformed("there is no unit")
        return next((unit for unit in units if param in unit.params), units[0])

    def end(self) -> None:
        while self._objects:
            _, held = self._objects.popitem()
            if isinstance(held.item, (meron.Context, meron.io.IO)):
                with contextlib.suppress(meron.Error):
                    held.item.close()
            elif not held.released:
                with contextlib.suppress(meron.Error):
                    held.release()
        for path in self.files:
            path.unlink(missing_ok=True)
        for path in self.folders:
            shutil.rmtree(path, ignore_errors=True)
