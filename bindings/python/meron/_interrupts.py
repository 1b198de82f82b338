# SPDX-License-Identifier: Apache-2.0
"""Interrupts of a wait for an operation that peers complete in any case."""

from __future__ import annotations

from collections.abc import Callable

from meron import errors


class Interrupts:
    """The interrupt of a wait: Ctrl-C, `should_stop`, or the handler of another signal.

    Attributes:
        first: the first interrupt, which `raise_first` raises when the operation has ended; or
            None. A second one ends the wait, so that Ctrl-C leaves one for a peer that hangs.
    """

    def __init__(self) -> None:
        self.first: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        """Keeps the first interrupt. Raises a second one, and any other error of the library."""
        known = isinstance(error, errors.Error) and not isinstance(error, errors.CancelledError)
        if known or self.first is not None:
            raise error
        self.first = error

    def wait(self, wait: Callable[[], object]) -> None:
        """Calls `wait` until it returns: it waits for the end of an operation. Raises its error.
        Blocks at most the operation's deadline."""
        while True:
            try:
                wait()
                return
            except BaseException as error:
                self.keep(error)

    def raise_first(self) -> None:
        if self.first is not None:
            raise self.first
