# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/base.h by tools/generate/generate.py: do not edit.
"""The exceptions: one class per status code, grouped by how much an error damages.

`CallError`: the call alone failed, everything is usable. `ResourceError`: this process or host
lacks something, nothing was changed. `GroupError`: the group is broken on all of its ranks.
`ContextError`: the context is unusable. If Python has an exception for the same thing the class
is one of those too: `except ValueError` catches an `ArgumentError`, `except TimeoutError` a
`DeadlineError`, `except FileNotFoundError` a `NotFoundError`, and `except RuntimeError` a
`StateError` and a `GroupError`. Those that are an OSError have its `errno`.
"""

from __future__ import annotations

from typing import Any

from meron._error import CallError, ContextError, Error, GroupError, ResourceError

__all__ = [
    "AbortedError",
    "ArgumentError",
    "AuthError",
    "CallError",
    "CancelledError",
    "ClosedError",
    "ContextError",
    "CorruptError",
    "DeadlineError",
    "DeviceError",
    "DuplicateError",
    "Error",
    "ForkedError",
    "GroupError",
    "HandleError",
    "InputOutputError",
    "InternalError",
    "MismatchError",
    "NoSpaceError",
    "NonFiniteError",
    "NotFoundError",
    "OutOfMemoryError",
    "ParseError",
    "PeerClosedError",
    "PeerDeadError",
    "ResourceError",
    "StaleError",
    "StateError",
    "UnsupportedError",
    "VersionError",
]


class ArgumentError(CallError, ValueError):
    """A null pointer, a wrong size, an unknown enum value."""

    status, name = -100, "MERON_E_ARGUMENT"


class HandleError(CallError, RuntimeError):
    """A null handle, of another kind, or of another context."""

    status, name = -101, "MERON_E_HANDLE"


class StaleError(CallError, RuntimeError):
    """A handle whose object was released or closed."""

    status, name = -102, "MERON_E_STALE"


class StateError(CallError, RuntimeError):
    """The call is valid, but not in the object's present state."""

    status, name = -103, "MERON_E_STATE"


class DuplicateError(CallError, ValueError):
    """A name or an object given twice."""

    status, name = -104, "MERON_E_DUPLICATE"


class UnsupportedError(CallError, NotImplementedError):
    """Valid, but this build or this plan does not offer it."""

    status, name = -105, "MERON_E_UNSUPPORTED"


class ParseError(CallError, ValueError):
    """Text that does not parse; the message has line and key."""

    status, name = -106, "MERON_E_PARSE"


class NonFiniteError(CallError, ArithmeticError):
    """Gradients hold NaN or infinity, or a step makes a value infinite."""

    status, name = -107, "MERON_E_NONFINITE"


class CancelledError(CallError):
    """should_stop ended a wait, or a rank cancelled the save."""

    status, name = -108, "MERON_E_CANCELLED"


class OutOfMemoryError(ResourceError, MemoryError):
    """No memory, or the context's limit is reached; the message has the figures."""

    status, name = -200, "MERON_E_NO_MEMORY"


class InputOutputError(ResourceError, OSError):
    """A file, a socket or a mapping failed."""

    status, name = -201, "MERON_E_IO"


class NotFoundError(ResourceError, FileNotFoundError, LookupError):
    """A file or a key does not exist."""

    status, name = -202, "MERON_E_NOT_FOUND"


class CorruptError(ResourceError, OSError):
    """A drive returned other bytes than were written: the message says where."""

    status, name = -203, "MERON_E_CORRUPT"


class NoSpaceError(ResourceError, OSError):
    """A drive is full; the message has need and free bytes."""

    status, name = -204, "MERON_E_NO_SPACE"


class DeviceError(ResourceError, OSError):
    """A device has failed: this process cannot use it any more."""

    status, name = -205, "MERON_E_DEVICE"


class DeadlineError(GroupError, TimeoutError):
    """A deadline passed: the message says who has not arrived."""

    status, name = -300, "MERON_E_TIMEOUT"


class PeerDeadError(GroupError):
    """A rank's process is gone: the error's peer."""

    status, name = -301, "MERON_E_PEER_DEAD"


class PeerClosedError(GroupError):
    """A rank, the error's peer, closed its context too early."""

    status, name = -302, "MERON_E_PEER_CLOSED"


class MismatchError(GroupError):
    """Ranks made different calls: the message has both."""

    status, name = -303, "MERON_E_MISMATCH"


class AbortedError(GroupError):
    """A rank called meron_group_abort, or cancelled an update."""

    status, name = -304, "MERON_E_ABORTED"


class AuthError(GroupError, PermissionError):
    """A wrong token, a peer of another user, or a link in a checkpoint."""

    status, name = -305, "MERON_E_AUTH"


class VersionError(GroupError):
    """A rank, the caller's headers or a file are of another version."""

    status, name = -306, "MERON_E_VERSION"


class ForkedError(ContextError):
    """This process is a fork of the one that opened the context."""

    status, name = -400, "MERON_E_FORKED"


class ClosedError(ContextError):
    """Closed by another thread during the call; then MERON_E_STALE."""

    status, name = -401, "MERON_E_CLOSED"


class InternalError(ContextError):
    """A defect of Meron: please report it."""

    status, name = -402, "MERON_E_INTERNAL"


BY_STATUS: dict[int, type[Error]] = {
    -100: ArgumentError,
    -101: HandleError,
    -102: StaleError,
    -103: StateError,
    -104: DuplicateError,
    -105: UnsupportedError,
    -106: ParseError,
    -107: NonFiniteError,
    -108: CancelledError,
    -200: OutOfMemoryError,
    -201: InputOutputError,
    -202: NotFoundError,
    -203: CorruptError,
    -204: NoSpaceError,
    -205: DeviceError,
    -300: DeadlineError,
    -301: PeerDeadError,
    -302: PeerClosedError,
    -303: MismatchError,
    -304: AbortedError,
    -305: AuthError,
    -306: VersionError,
    -400: ForkedError,
    -401: ClosedError,
    -402: InternalError,
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
