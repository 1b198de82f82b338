# SPDX-License-Identifier: Apache-2.0
"""Loans: arrays of the library's memory that the caller has for a time.

When the time ends, the lent array becomes read-only, so the caller's variables may keep it. Slices
and reshapes of it have flags of their own, and so do tensors and buffers of these. The call that
ends the time raises StateError while one of them is alive.
docs/decisions/0027-lent-arrays-are-counted.md
"""

from __future__ import annotations

import weakref
from sys import getrefcount
from typing import Any

from meron import errors
from meron._memory import as_array
from meron.dtypes import Array


class Loan:
    """A lent array.

    It is a view of another array, its base. NumPy makes this base the base of every slice and
    reshape of either. So more references to the base than at first mean that a derived array is
    alive. The first number is measured, because versions of CPython count references differently.

    Attributes:
        name: the call that returned it.
        writable: False if the library's memory was read-only from the start.
    """

    __slots__ = ("_array", "_base", "_references", "name", "writable")

    def __init__(self, array: Array, name: str) -> None:
        base: Any = array.base
        self.name = name
        self.writable = bool(array.flags.writeable)
        self._array = weakref.ref(array)
        self._base = weakref.ref(base)
        self._references = getrefcount(base)

    def derived(self) -> bool:
        """True if an array that was derived from it is alive."""
        base = self._base()
        if base is None:
            return False
        return self._array() is None or getrefcount(base) > self._references

    def alive(self) -> bool:
        """True if it, or an array that was derived from it, is alive."""
        return self._base() is not None

    def end(self) -> None:
        """Makes it read-only, for good."""
        for reference in (self._array, self._base):
            array = reference()
            if array is not None:
                array.flags.writeable = False


class Loans:
    """Lent arrays whose time has not ended. Threads: any."""

    __slots__ = ("__weakref__", "_loans")

    def __init__(self) -> None:
        self._loans: list[Loan] = []

    def lend(self, view: Any, shape: tuple[int, ...], keep: Any, name: str) -> Array:
        """The memory of a `meron_view` as an array, which keeps `keep` alive. `name` is the call
        that returns it."""
        array: Array = as_array(view, shape, keep)[...]
        if len(self._loans) % 64 == 63:
            self._loans = [loan for loan in self._loans if loan.alive()]
        self._loans.append(Loan(array, name))
        return array

    def require_returned(self, call: str) -> None:
        """StateError if a derived array is alive, which `end` could not make read-only.

        `call` is what the caller wanted.
        """
        for loan in tuple(self._loans):
            if loan.writable and loan.derived():
                raise errors.StateError(
                    f"{call}: an array derived from {loan.name} is still alive (a slice or a "
                    "reshape, or a tensor or buffer of one)",
                    subject=loan.name,
                    advice="Before the call, delete it, or copy what you need.",
                )

    def require_gone(self, call: str, read: bool = False) -> None:
        """StateError if an array, or one derived from it, is alive and may write, or may `read`."""
        for loan in tuple(self._loans):
            if (read or loan.writable) and loan.alive():
                raise errors.StateError(
                    f"{call}: an array of {loan.name} is still alive",
                    subject=loan.name,
                    advice="Before the call, delete it and what was made of it, or copy what you "
                    "need.",
                )

    def end(self) -> None:
        """Makes the arrays that are alive read-only."""
        loans, self._loans = self._loans, []
        for loan in loans:
            loan.end()


class Shown:
    """Counts arrays that show the memory of a unit: each keeps `mark` alive."""

    __slots__ = ("_references", "mark")

    def __init__(self) -> None:
        self.mark = object()
        self._references = getrefcount(self.mark)

    def arrays(self) -> int:
        """Number of arrays that are alive; what was derived from one counts with it."""
        return getrefcount(self.mark) - self._references
