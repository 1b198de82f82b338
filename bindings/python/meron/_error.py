# SPDX-License-Identifier: Apache-2.0
"""The base of all exceptions of the package, and their four families."""

from __future__ import annotations

import errno
import re
from typing import Any

# Of ranks that make different calls.
ON_ALL_RANKS = " Call {} on all ranks, with equal arguments."


# The library names the error of the system in its messages: "Permission denied (EACCES)".
SYSTEM_ERROR = re.compile(r"\((E[A-Z0-9]+)\)")
# Of messages that name none, such as one of a limit on sizes.
USUAL = {
    "MERON_E_NO_SPACE": errno.ENOSPC,
    "MERON_E_NOT_FOUND": errno.ENOENT,
    "MERON_E_TIMEOUT": errno.ETIMEDOUT,
    "MERON_E_AUTH": errno.EACCES,
}


def set_number(error: OSError, name: str) -> None:
    """Sets the errno of an error of the status `name`."""
    found = (getattr(errno, each, None) for each in SYSTEM_ERROR.findall(str(error)))
    error.errno = next(filter(None, found), USUAL.get(name, errno.EIO))


class Error(Exception):
    """An error of the library.

    Attributes:
        status:    the status code, for example -300.
        name:      the code's name, "MERON_E_TIMEOUT".
        message: the full message: the failure, the rank, the object, the remedy. Also str(error).
        operation: the operation that failed, for example "gather"; "" where none applies. subject:
        the tensor, unit, file or key concerned; "" where none applies. advice: what to do next; ""
        where nothing is known. rank: the rank that reports the error, or None. peer: the rank that
        caused it when it is another one (dead, late, diverging), or None.
    """

    __module__ = "meron.errors"  # where users find it
    status = 0
    name = ""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        operation: str = "",
        subject: str = "",
        advice: str = "",
        rank: int | None = None,
        peer: int | None = None,
    ) -> None:
        # The library's messages hold the advice already, as a sentence.
        if advice and advice.rstrip(".").casefold() not in message.casefold():
            message = f"{message.rstrip('.')}. {advice}"
        super().__init__(message)
        self.message = message
        self.status = type(self).status if status is None else status
        if isinstance(self, OSError):
            set_number(self, self.name)
        self.operation = operation
        self.subject = subject
        self.advice = advice
        self.rank = rank
        self.peer = peer

    def _name_call(self, name: str, text: str) -> None:
        """Names the function that failed as its caller knows it, with the `text` that does."""
        self.message = text.removesuffix(ON_ALL_RANKS.format(self.operation))
        if self.name == "MERON_E_MISMATCH":
            self.message += ON_ALL_RANKS.format(name)
        self.args = (self.message,)
        self.operation = name

    def _add(self, sentence: str) -> None:
        """Adds to the message what only the caller knows."""
        self.message = f"{self.message.rstrip('.')}. {sentence}"
        self.args = (self.message,)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Any:
        # Keyword arguments do not survive the default way of pickling an exception.
        return (_rebuild, (type(self), self.message, self._fields()))

    def _fields(self) -> dict[str, Any]:
        names = ("status", "operation", "subject", "advice", "rank", "peer")
        return {name: getattr(self, name) for name in names}


class CallError(Error):
    """The call alone failed: the context and its groups are untouched and usable."""

    __module__ = "meron.errors"


class ResourceError(Error):
    """This process or host lacks a requested resource: nothing was changed."""

    __module__ = "meron.errors"


class GroupError(Error, RuntimeError):
    """The group is broken: every further call on it gives the same error, on every rank."""

    __module__ = "meron.errors"


class ContextError(Error, RuntimeError):
    """The whole context is unusable."""

    __module__ = "meron.errors"


def _rebuild(kind: type[Error], message: str, fields: dict[str, Any]) -> Error:
    return kind(message, **fields)
