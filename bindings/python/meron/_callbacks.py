# SPDX-License-Identifier: Apache-2.0
"""The functions that the library calls while a context is open."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import get_ident
from typing import Any

from meron._finalizers import called_back
from meron._native import ffi, interrupts, lib

LogFunction = Callable[[int, str], None]
StopFunction = Callable[[], bool]

# The library's levels as the logging module counts.
LEVELS = {
    lib.MERON_LOG_ERROR: logging.ERROR,
    lib.MERON_LOG_WARNING: logging.WARNING,
    lib.MERON_LOG_INFO: logging.INFO,
}


def log_callback(log: LogFunction | logging.Logger | None) -> Any:
    """The C function for `log`, or None: the library then writes to stderr. The caller keeps it
    alive as long as the context.

    Without a `log`, the logger "meron" is used if the application has handlers for it.
    Exceptions of `log` go to sys.unraisablehook, where cffi reports them.
    """
    if log is None:
        log = logging.getLogger("meron")
        if not log.hasHandlers():
            return None
    write: LogFunction
    if isinstance(log, logging.Logger):
        logger = log

        def write(level: int, message: str) -> None:
            logger.log(level, "%s", message)

    elif callable(log):
        write = log
    else:
        raise TypeError(
            f"log must be a function of (level, message) or a logging.Logger, not {log!r}"
        )

    def receive(_user: Any, level: int, message: Any, length: int) -> None:
        words = ffi.buffer(message, length)[:].decode("utf-8", "replace")
        write(LEVELS.get(level, logging.INFO), words)

    return ffi.callback("meron_log_fn", called_back(receive))


def stop_callback(stop: StopFunction | None) -> Any:
    """The C function that ends waits: for a signal, or when `stop` says so.

    The call that waited raises its exceptions, above all KeyboardInterrupt (_native.settle).
    """
    if stop is not None and not callable(stop):
        raise TypeError(f"should_stop must be a function without arguments, not {stop!r}")

    def ask(_user: Any) -> int:
        # On the main thread the interpreter runs pending signal handlers as it enters here.
        return 1 if stop is not None and stop() else 0

    def keep(_kind: Any, value: BaseException, _traceback: Any) -> None:
        interrupts[get_ident()] = value

    return ffi.callback("meron_should_stop_fn", called_back(ask), error=1, onerror=keep)
