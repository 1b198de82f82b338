# SPDX-License-Identifier: Apache-2.0
"""Interrupts of work that must be done to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meron import errors
from meron.future import Future


class Interrupts:
    """What has interrupted some work: Ctrl-C, `should_stop`, or the handler of another signal.

    Attributes:
        first: the first interrupt, which `raise_first` raises when the work is done; or None.
    """

    def __init__(self) -> None:
        self.first: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        """Keeps an interrupt. Raises any other error of the library."""
        if isinstance(error, errors.Error) and not isinstance(error, errors.CancelledError):
            raise error
        if self.first is None:
            self.first = error

    def wait(self, future: Future) -> None:
        """Waits until an operation has ended. Raises its error. Blocks at most its deadline."""
        while True:
            try:
                future.wait()
                return
            except BaseException as error:
                self.keep(error)

    def run(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function, and again after each interrupt: what it did twice is as done once.

        Raises its errors, and what the handler of another signal than SIGINT raised.
        """
        while True:
            try:
                function(*arguments)
                return
            except BaseException as error:
                if isinstance(error, Exception) and not isinstance(error, errors.CancelledError):
                    raise
                self.keep(error)

    def raise_first(self) -> None:
        if self.first is not None:
            raise self.first
