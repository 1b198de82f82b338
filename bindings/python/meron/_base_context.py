# SPDX-License-Identifier: Apache-2.0
"""The part of a context that its objects need."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from meron import errors
from meron._lifetime import Lifetime
from meron._loans import Loans
from meron._native import DEFAULT_TIMEOUT, call, lib


class BaseContext:
    """The library's context, until it is closed; `meron.Context` is what users have of it.

    Attributes:
        device: what this rank computes on, as it was opened; "" is the host.
    """

    def __init__(self, lifetime: Lifetime, device: str) -> None:
        self._dropped = lifetime.dropped
        self._lifetime: Lifetime | None = lifetime
        # Lent arrays of states. The lock is held to lend one, to save, to export and to load.
        self._state_loans: weakref.WeakSet[Loans] = weakref.WeakSet()
        self._states = threading.RLock()
        # Those that are alive, by name.
        self._params: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._units: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._save: Callable[[], Any] = lambda: None  # the future of the last save, if it is alive
        self._watchers: dict[Any, Any] = {}  # of event loops
        self.device = device
        # True if NumPy cannot read the device's memory.
        self._remote: bool = device.startswith("cuda")
        self._dlpack_device: tuple[int, int] | None = None

    @property
    def closed(self) -> bool:
        return self._lifetime is None

    @property
    def _handle(self) -> Any:
        return self._require_open()._handle

    def _for_call(self) -> Any:
        return self._handle

    def _wait_copied(self) -> None:
        """Waits until a save has copied the states. Blocks on the drive."""
        call(lib.meron_checkpoint_wait_copied, self._handle, DEFAULT_TIMEOUT)

    def _raise_dropped(self) -> None:
        """Raises the error of an operation that was dropped and has failed, once."""
        if self._dropped:
            self._dropped.raise_failure()

    def _require_states_gone(self, wanted: str, read: bool = False) -> None:
        """StateError if an array of a state is alive that may be written, or `read`. The caller has
        the lock."""
        for loans in tuple(self._state_loans):
            loans.require_gone(wanted, read)

    def _require_open(self) -> Lifetime:
        lifetime = self._lifetime
        if lifetime is None:
            raise errors.ClosedError(
                "the context was closed", advice="Open another one with meron.open."
            )
        return lifetime
