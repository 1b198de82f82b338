# SPDX-License-Identifier: Apache-2.0
"""The exceptions: one class per status code, grouped by how much an error damages.

`CallError`: the call alone failed, everything is usable. `ResourceError`: this process or host
lacks something, nothing was changed. `GroupError`: the group is broken on all of its ranks.
`ContextError`: the context is unusable. Where Python has an exception for the same thing the class
is one of those too: `except ValueError` catches an `ArgumentError`, `except TimeoutError` a
`DeadlineError`.
"""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """An error of the library.

    Attributes:
        status:    the status code, for example -300.
        name:      the code's name, "MERON_E_TIMEOUT".
        message:   the whole message: what failed, where, on what, and what to do. Also str(error).
        operation: the operation that failed, for example "gather"; "" where none applies.
        subject:   the tensor, unit, file or key concerned; "" where none applies.
        advice:    what to do next; "" where nothing is known.
        rank:      the rank that reports the error, or None.
        peer:      the rank that caused it when it is another one (dead, late, diverging), or None.
    """

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
        self.operation = operation
        self.subject = subject
        self.advice = advice
        self.rank = rank
        self.peer = peer

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


class ResourceError(Error):
    """Something that this process or host was asked for is missing: nothing was changed."""


class GroupError(Error):
    """The group is broken: every further call on it gives the same error, on every rank."""


class ContextError(Error):
    """The whole context is unusable."""


class ArgumentError(CallError, ValueError):
    """An argument is not valid: a wrong shape, dtype, count, name or number."""

    status, name = -100, "MERON_E_ARGUMENT"


class HandleError(CallError):
    """An object that is null, of another kind, or of another context."""

    status, name = -101, "MERON_E_HANDLE"


class StaleError(CallError):
    """An object that was released, or whose context was closed."""

    status, name = -102, "MERON_E_STALE"


class StateError(CallError):
    """The call is valid, but not in the object's present state."""

    status, name = -103, "MERON_E_STATE"


class DuplicateError(CallError, ValueError):
    """A name or an object was given twice."""

    status, name = -104, "MERON_E_DUPLICATE"


class UnsupportedError(CallError, NotImplementedError):
    """Valid, but this build or this plan does not offer it."""

    status, name = -105, "MERON_E_UNSUPPORTED"


class ParseError(CallError, ValueError):
    """Text that does not parse; the message has line and key."""

    status, name = -106, "MERON_E_PARSE"


class NonFiniteError(CallError, ArithmeticError):
    """A gradient holds NaN or infinity: the step changed nothing, the gradients are discarded."""

    status, name = -107, "MERON_E_NONFINITE"


class CancelledError(CallError):
    """A wait was asked to end; the operation goes on and may be waited for again."""

    status, name = -108, "MERON_E_CANCELLED"


class OutOfMemoryError(ResourceError, MemoryError):
    """Memory is missing, or the context's limit is reached; the message has the figures."""

    status, name = -200, "MERON_E_NO_MEMORY"


class InputOutputError(ResourceError, OSError):
    """A file, socket or mapping failed."""

    status, name = -201, "MERON_E_IO"


class NotFoundError(ResourceError, LookupError):
    """What was asked for does not exist."""

    status, name = -202, "MERON_E_NOT_FOUND"


class CorruptError(ResourceError, OSError):
    """A drive gave other bytes than were written: the message says where."""

    status, name = -203, "MERON_E_CORRUPT"


class NoSpaceError(ResourceError, OSError):
    """A drive is full; the message has the bytes needed and free."""

    status, name = -204, "MERON_E_NO_SPACE"


class DeviceError(ResourceError, OSError):
    """A device has failed: it is of no use any more in this process."""

    status, name = -205, "MERON_E_DEVICE"


class DeadlineError(GroupError, TimeoutError):
    """A deadline passed: the message says who has not arrived."""

    status, name = -300, "MERON_E_TIMEOUT"


class PeerDeadError(GroupError):
    """A rank's process is gone: `peer` is its rank."""

    status, name = -301, "MERON_E_PEER_DEAD"


class PeerClosedError(GroupError):
    """A rank closed its context while others still need it: `peer` is its rank."""

    status, name = -302, "MERON_E_PEER_CLOSED"


class MismatchError(GroupError):
    """Ranks made different calls: the message has both."""

    status, name = -303, "MERON_E_MISMATCH"


class AbortedError(GroupError):
    """A rank called Group.abort; the message has its reason."""

    status, name = -304, "MERON_E_ABORTED"


class AuthError(GroupError, PermissionError):
    """The token is missing or wrong, or the peer is another user."""

    status, name = -305, "MERON_E_AUTH"


class VersionError(GroupError):
    """A rank runs another version of Meron."""

    status, name = -306, "MERON_E_VERSION"


class ForkedError(ContextError):
    """This process is a fork of one that used Meron: start such processes by spawn or exec."""

    status, name = -400, "MERON_E_FORKED"


class ClosedError(ContextError):
    """The context was closed."""

    status, name = -401, "MERON_E_CLOSED"


class InternalError(ContextError):
    """A defect of Meron: please report it."""

    status, name = -402, "MERON_E_INTERNAL"


BY_STATUS: dict[int, type[Error]] = {
    kind.status: kind
    for family in (CallError, ResourceError, GroupError, ContextError)
    for kind in family.__subclasses__()
}
BY_CLASS: dict[int, type[Error]] = {
    1: CallError,
    2: ResourceError,
    3: GroupError,
    4: ContextError,
}


def make(status: int, message: str, **fields: Any) -> Error:
    """The exception for a status; for a code of a later library the family's own class."""
    kind = BY_STATUS.get(status) or BY_CLASS.get(-status // 100, Error)
    return kind(message, status=status, **fields)


def argument(message: str, subject: str = "", advice: str = "") -> ArgumentError:
    """An ArgumentError that Python found before the library was called."""
    return ArgumentError(message, subject=subject, advice=advice)


def _rebuild(kind: type[Error], message: str, fields: dict[str, Any]) -> Error:
    return kind(message, **fields)
