# SPDX-License-Identifier: Apache-2.0
"""The loaded library, and how its functions are called from Python.

cffi gives the GIL up during every call, so other Python threads run while one waits for peers.

Ctrl-C: a context is opened with a `should_stop` hook (_callbacks.py) that the library asks ten
times a second while it waits. Entering the hook lets Python run its signal handlers; what they
raise is put into `interrupts`, the wait ends with MERON_E_CANCELLED, and `settle` raises it in the
thread that waited.
"""

from __future__ import annotations

import json
from operator import attrgetter
from threading import get_ident
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from meron import errors
from meron._call_names import NAMES, in_python
from meron._library import load
from meron._types import named_types

loaded = load()
ffi: Final[Any] = loaded[0]
lib: Final[Any] = loaded[1]
library_path: Final[str] = loaded[2]

NULL: Final[Any] = ffi.NULL
DEFAULT_TIMEOUT: Final[int] = lib.MERON_TIMEOUT_DEFAULT
IN_PROGRESS: Final[int] = lib.MERON_IN_PROGRESS

TYPES: Final[dict[str, Any]] = named_types(ffi)
ERROR_OUT: Final[Any] = TYPES["meron_error **"]

# cffi parses a name when it is used first, under a lock: an interrupt there would leave it locked.
CASTS = ("char *", "const float *", "float *", "uintptr_t *", "uintptr_t", "void *", "void **")
for name in CASTS:
    ffi.typeof(name)

# Exceptions of should_stop hooks that are not raised yet, by the thread's ident.
interrupts: dict[int, BaseException] = {}


# Free error slots: each call takes one, and puts it back if it is empty, because creating one takes
# a sixth of a call. A call that raises drops it.
free_slots: list[Any] = []


def error_slot() -> Any:
    """A slot of the caller's own: several threads call at a time."""
    try:
        return free_slots.pop()
    except IndexError:
        return ffi.new(ERROR_OUT)


def new(ctype: Any, *initial_value: Any) -> Any:
    """`ffi.new` that knows the package's types by name."""
    return ffi.new(TYPES.get(ctype, ctype), *initial_value)


def size_of(struct: str) -> int:
    """Bytes of a struct of the library."""
    size: int = ffi.sizeof(TYPES[f"{struct} *"].item)
    return size


def call(function: Any, *arguments: Any) -> int:
    """Calls a function of the library with an error slot behind the arguments.

    Returns its status (0, or IN_PROGRESS where the function has that); raises its error.
    """
    error = error_slot()
    status: int = function(*arguments, error)
    if status < 0 or interrupts:
        settle(status, error)
    free_slots.append(error)
    return status


def receive(out_type: Any, function: Any, *arguments: Any) -> Any:
    """`call` for functions whose first parameter receives a value; returns that value."""
    out = new(out_type)
    call(function, out, *arguments)
    return out[0]


def settle(status: int, error: Any) -> None:
    """Raises what a call left behind: an interrupt of this thread, else the call's error."""
    interrupt = interrupts.pop(get_ident(), None)
    if interrupt is not None:
        if error[0]:
            lib.meron_error_free(error[0])
            error[0] = NULL
        raise interrupt
    if status < 0:
        raise_error(status, error)


def raise_error(status: int, error: Any) -> NoReturn:
    """Raises the exception for `status` with the details of `error[0]`, which it frees."""
    detail, error[0] = error[0], NULL
    if not detail:  # the library found no memory for an error object
        raise errors.make(status, string(lib.meron_status_name(status)))
    operation = string(lib.meron_error_operation(detail))
    try:
        made = errors.make(
            lib.meron_error_code(detail),
            in_python(string(lib.meron_error_message(detail))),
            operation=NAMES.get(operation, operation),
            subject=string(lib.meron_error_subject(detail)),
            advice=in_python(string(lib.meron_error_advice(detail))),
            rank=rank_or_none(lib.meron_error_rank(detail)),
            peer=rank_or_none(lib.meron_error_peer(detail)),
        )
    finally:
        lib.meron_error_free(detail)
    raise made


def rank_or_none(rank: int) -> int | None:
    return None if rank == lib.MERON_RANK_NONE else rank


def status_name(status: int) -> str:
    """The constant's name of a status, such as "MERON_E_TIMEOUT"."""
    return string(lib.meron_status_name(status))


def string(pointer: Any) -> str:
    """A NUL-terminated string that stays the library's."""
    text: bytes = ffi.string(pointer)
    return text.decode("utf-8", "replace")


def take_string(function: Any, *arguments: Any) -> str:
    """The text that a function returns through `char **out`; frees the library's copy."""
    out = new("char **")
    try:
        call(function, out, *arguments)
        return string(out[0])
    finally:
        if out[0]:
            lib.meron_string_free(out[0])


def take_json(function: Any, *arguments: Any) -> Any:
    return json.loads(take_string(function, *arguments))


def text(value: str, what: str) -> bytes:
    """A str as the library takes it; ArgumentError for what C's strings cannot hold."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise errors.argument(f"{what} holds a NUL character: {value!r}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise errors.argument(f"{what} is no valid Unicode text: {error}") from None


def whole(value: int, what: str, low: int, high: int) -> int:
    """A number as the library takes it; ArgumentError outside of [low, high)."""
    if not low <= value < high:
        raise errors.argument(f"{what} is {value}", subject=what)
    return value


def code_of(known: dict[str, int], name: str, what: str) -> int:
    """The number of a value of an enum; ArgumentError for a name that is not of it."""
    if name not in known:
        raise errors.argument(f"unknown {what} {name!r}: {', '.join(known)} are known", what)
    return known[name]


def initial(struct: str) -> Any:
    """A new options struct with the library's initial values."""
    options = new(f"{struct} *")
    call(getattr(lib, f"{struct}_init"), options, size_of(struct))
    return options


def defaults_of(kind: int) -> Any:
    """New options of an optimizer with the defaults of a rule."""
    options = new("meron_optimizer_options *")
    call(lib.meron_optimizer_rule_init, options, size_of("meron_optimizer_options"), kind)
    return options


def sized(struct: str) -> Any:
    """A new struct for the library to fill, with its struct_size set."""
    return new(f"{struct} *", {"struct_size": size_of(struct)})


def nanoseconds(seconds: float | None) -> int:
    """A timeout for the library: None leaves the bound to the context's deadline."""
    if seconds is None:
        return DEFAULT_TIMEOUT
    if not 0 <= seconds < 9e9:
        raise errors.argument(f"a timeout is a number of seconds, 0 or more, not {seconds}")
    return int(seconds * 1e9)


Same = TypeVar("Same")


class Shared:
    """An object that stands for something of the engine in this process: its copy is itself."""

    __slots__ = ()

    def __copy__(self: Same) -> Same:
        return self

    def __deepcopy__(self: Same, _memo: Any) -> Same:
        return self

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError(
            f"a meron.{type(self).__name__} cannot be pickled: it stands for something of the "
            "engine in this process. Make it anew where it is needed"
        )


def refuse_unknown(self: object, name: str, value: Any) -> None:
    """In place of __setattr__, for classes that declare their public attributes."""
    kind = type(self)
    known = name.startswith("_") or name in kind.__annotations__ or hasattr(kind, name)
    if not known:
        raise AttributeError(f"a meron.{kind.__name__} has no attribute {name!r} to set")
    object.__setattr__(self, name, value)


nothing = int  # a function of C that does nothing


def finalizer(name: str) -> Any:
    """A __del__ that calls the function that an attribute holds. This is a function of C:
    `nothing`, or a partial of one of the library. So the finalizer has no frame of Python, in
    which a signal handler could raise before the release."""
    return property(attrgetter(name))


class Handled(Shared):
    """An object with a handle of the library: the base of the generated methods."""

    _context: Any = None  # that it was made from, if any

    def _for_call(self) -> Any:
        """The handle, for a call; raises if it is released."""
        raise NotImplementedError


class Owner(Handled):
    """A handle of the library that is released when the object dies.

    `_handle` is None when there is nothing to release. Handles are values that the library checks
    (a stale one is an error, never a crash), so objects may die in any order, on any thread, also
    while the interpreter ends: what a finalizer needs then is kept on the class.
    """

    _handle: Any = None
    _release_function: ClassVar[Any] = None
    _null: ClassVar[Any] = NULL

    def _for_call(self) -> Any:
        if self._context is not None:
            self._context._require_open()
        if self._handle is None:
            raise errors.StaleError(f"this {type(self).__name__.lower()} was released")
        return self._handle

    def _receive(self, out_type: str, function: Any, *arguments: Any) -> None:
        """Calls a function of the library whose first parameter receives this object's handle.

        The object has the place of the handle before the call. So an exception of a signal handler
        behind the call loses no handle: it is released when the object dies.
        """
        out = new(out_type)
        self._handle = out[0]
        call(function, out, *arguments)

    def __del__(self) -> None:
        handle = self._handle
        if handle is not None:
            if handle.id:
                self._release_function(handle, self._null)
            self._handle = None
