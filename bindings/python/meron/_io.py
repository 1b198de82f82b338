# SPDX-License-Identifier: Apache-2.0
"""Files past the page cache: what meron.io offers, without DeepSpeed's names."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from meron import errors
from meron._io_arguments import Path, Taken, number, path_bytes, take
from meron._memory import Memory
from meron._methods import IoMethods
from meron._native import (
    IN_PROGRESS,
    NULL,
    Owner,
    call,
    ffi,
    initial,
    lib,
    nanoseconds,
    sized,
)
from meron._values import IO_BACKENDS as BACKENDS
from meron._values import IoBackend
from meron.dtypes import require_no_references

# Nanoseconds that a wait blocks before Python can run its signal handlers.
SLICE = 100_000_000
# Memory that a drive had not released when its IO was closed. The drive may still write to it.
_held: list[Any] = []
# Statuses of the close, or of a wait for a request of a closed IO, in that case.
_HELD_STATUSES = (errors.ClosedError.status, errors.DeadlineError.status, IN_PROGRESS)


@dataclass(frozen=True)
class IOInfo:
    """Information about an IO: its options, and the counters since it was opened."""

    backend: str  # in use: "io_uring" or "threads"
    block_bytes: int
    depth: int
    threads: int
    single_submit: bool
    overlap_events: bool
    bytes_read: int  # by requests that have ended well
    bytes_written: int
    calls: int  # of the kernel that have ended
    direct_calls: int  # of them, those past the page cache
    requests: int  # reads and writes that were begun
    pending: int  # of them, those under way or not waited for
    buffer_bytes: int  # of pinned memory


class IO(IoMethods, Owner):
    """A queue to the kernel, and the threads that serve it; closes itself when it dies.

    Args:
        backend: "auto" (io_uring where the host allows it, else threads), "io_uring", "threads".
        block_bytes: of one call of the kernel: a multiple of 4096.
        depth: calls under way at a time, of io_uring.
        threads: of the backend of threads: as many calls at a time.
        single_submit: hand each call to the kernel alone.
        overlap_events: False: the next calls begin when the last have ended.
        timeout: seconds; a wait ends when nothing has moved for so long. None: 600.

    Raises ArgumentError; UnsupportedError for "io_uring" where the host forbids it. May be used
    from any thread.
    """

    _release_function = lib.meron_io_close

    def __init__(
        self,
        backend: IoBackend = "auto",
        *,
        block_bytes: int = 1 << 20,
        depth: int = 32,
        threads: int = 1,
        single_submit: bool = False,
        overlap_events: bool = True,
        timeout: float | None = None,
    ) -> None:
        if backend not in BACKENDS:
            raise errors.argument(f"unknown backend {backend!r}: {', '.join(BACKENDS)} are known")
        self._abandoned: list[tuple[Any, Any]] = []  # requests that nobody holds: handle, memory
        self._untold: list[errors.Error] = []  # how some of them have failed
        options = initial("meron_io_options")
        options.backend = BACKENDS[backend]
        for name, value in (("block_bytes", block_bytes), ("depth", depth), ("threads", threads)):
            setattr(options, name, number(name, value, 1 << 32))
        options.single_submit = bool(single_submit)
        options.overlap_events = bool(overlap_events)
        # 0 means the default, so a caller's 0 becomes the shortest timeout.
        options.timeout_ns = 0 if timeout is None else max(nanoseconds(timeout), 1)
        self._receive("meron_io *", lib.meron_io_open, options)

    def __repr__(self) -> str:
        return "<meron.io.IO, closed>" if self._handle is None else "<meron.io.IO>"

    def __enter__(self) -> IO:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """True if it was closed."""
        return self._handle is None

    def close(self) -> None:
        """Ends what is under way, for at most about five seconds; doing so twice is fine.

        Raises the first error of requests that no call has waited for; it is closed even then.
        """
        handle, self._handle = self._handle, None
        if handle is None:
            return
        try:
            call(lib.meron_io_close, handle)
        except (errors.ClosedError, errors.DeadlineError):
            _held.extend(self._abandoned)
            raise
        finally:
            self._abandoned = []
        self._tell()

    def read(self, path: Path, into: Any, offset: int = 0) -> None:
        """Reads as many bytes as `into` has, from byte `offset` of the file, and waits for them.

        Blocks on the drive, and releases the GIL; Ctrl-C ends the wait. Raises NotFoundError;
        InputOutputError if the file is too short, or for an error of the drive; ArgumentError for
        unusable memory; DeadlineError if no transfer progresses.
        """
        self._transfer(lib.meron_io_read, self.read_begin, True, path, into, offset)

    def write(self, path: Path, data: Any, offset: int = 0) -> None:
        """Writes all bytes of `data` to byte `offset` and on of the file, and waits for the kernel.

        Creates the file if it does not exist; its other content stays, also beyond the end of
        `data`. Data that must survive a loss of power needs an os.fsync. Blocks and raises as
        `read`, and NoSpaceError (a file that had to grow keeps its size).
        """
        self._transfer(lib.meron_io_write, self.write_begin, False, path, data, offset)

    def read_begin(self, path: Path, into: Any, offset: int = 0) -> Request:
        """Begins a read; blocks on the file system only. Raises as `read`, and from the wait."""
        return self._begin(lib.meron_io_read_begin, path, take(into, True), offset)

    def write_begin(self, path: Path, data: Any, offset: int = 0) -> Request:
        """Begins a write; blocks on the file system only. Raises as `write`, and from the wait."""
        return self._begin(lib.meron_io_write_begin, path, take(data, False), offset)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for every request that no call has waited for.

        Args:
            timeout: seconds; None: as long as something moves.

        Returns:
            False when `timeout` passed first and some are still under way.

        Raises the first error of them when all have ended. Blocks as `read`.
        """
        ended = settle(lib.meron_io_wait, self._require_open(), timeout)
        if ended:
            self._tell()
        return ended

    def buffer(self, count: int, dtype: Any = np.uint8) -> npt.NDArray[Any]:
        """Pinned, page-aligned memory as an array of `count` elements, which are 0.

        It is freed with the last array that refers to it. Raises OutOfMemoryError, ArgumentError.
        If the kernel does not pin it, it works unpinned: see `describe`.
        """
        kind = np.dtype(dtype)
        require_no_references(kind, "a buffer")
        bytes_ = number("count", count, 1 << 62) * kind.itemsize
        owner = Buffer(self._require_open(), bytes_)
        info = sized("meron_io_buffer_info")
        call(lib.meron_io_buffer_get_info, info, owner._handle)
        address = int(ffi.cast("uintptr_t", info.data))
        plain: npt.NDArray[Any] = np.asarray(Memory(address, (bytes_,), "|u1", True, owner))
        return plain if kind == np.uint8 else plain.view(kind)

    def info(self) -> IOInfo:
        """The options, and what was counted so far. Never blocks."""
        info = sized("meron_io_info")
        call(lib.meron_io_get_info, info, self._require_open())
        names = {value: name for name, value in BACKENDS.items()}
        return IOInfo(
            names[info.backend],
            info.block_bytes,
            info.depth,
            info.threads,
            bool(info.single_submit),
            bool(info.overlap_events),
            info.bytes_read,
            info.bytes_written,
            info.calls,
            info.direct_calls,
            info.requests,
            info.pending,
            info.buffer_bytes,
        )

    def _for_call(self) -> Any:
        return self._require_open()

    def _require_open(self) -> Any:
        handle = self._handle
        if handle is None:
            raise errors.StaleError("this IO was closed: open another one")
        if self._abandoned:
            self._sweep()
        return handle

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        if untold:
            raise untold[0]

    def _sweep(self) -> None:
        """Releases abandoned requests that have ended."""
        for _ in range(len(self._abandoned)):
            try:
                handle, keep = self._abandoned.pop(0)
            except IndexError:  # another thread sweeps too
                return
            try:
                ended = call(lib.meron_future_wait, handle, 0) != IN_PROGRESS
            except errors.DeadlineError:
                ended = False
            except errors.Error as error:
                ended = True
                self._untold.append(error)
            if ended:
                lib.meron_future_release(handle, NULL)
            else:
                self._abandoned.append((handle, keep))

    def _begin(self, function: Any, path: Path, memory: Taken, offset: int) -> Request:
        try:
            return Request(
                self,
                memory.keep,
                function,
                self._require_open(),
                path_bytes(path),
                memory.data,
                memory.bytes,
                number("offset", offset, 1 << 63),
            )
        except BaseException:
            # A traceback must not hold it: the collector may not meet an exported memoryview in a
            # cycle (CPython clears it first, and crashes).
            del memory
            raise

    def _transfer(
        self, function: Any, begin: Any, writable: bool, path: Path, given: Any, offset: int
    ) -> None:
        # Signals are the main thread's: only there does a wait look for them.
        if threading.current_thread() is threading.main_thread():
            begin(path, given, offset).wait()
            return
        memory = take(given, writable)
        try:
            place = number("offset", offset, 1 << 63)
            handle = self._require_open()
            call(function, handle, path_bytes(path), memory.data, memory.bytes, place)
        except errors.DeadlineError:
            _held.append(memory.keep)  # the drive may still work on it
            del memory
            raise
        except BaseException:
            del memory  # as in _begin
            raise

    def __del__(self) -> None:
        handle, self._handle = self._handle, None
        # The close waits for what is under way: only then may its memory go.
        if handle is not None and self._release_function(handle, self._null) in _HELD_STATUSES:
            _held.extend(self._abandoned)
        self._abandoned = []


class Request(Owner):
    """A read or write that was begun. Releasing it does not stop it."""

    _release_function = lib.meron_future_release
    _wait_function: ClassVar[Any] = lib.meron_future_wait

    _keep: Any = None
    _ended = False

    def __init__(self, io: IO, keep: Any, begin: Any, *arguments: Any) -> None:
        """Begins by a function of the library, whose first parameter receives the request."""
        self._io = io
        self._keep = keep
        try:
            self._receive("meron_future *", begin, *arguments)
        except BaseException:
            if not self._handle.id:
                self._keep = None  # as in IO._begin
            raise

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it has ended.

        Args:
            timeout: seconds; None: as long as something moves.

        Returns:
            False after `timeout`; the request continues.

        Blocks on the drive, and releases the GIL; Ctrl-C ends the wait, not the request. Raises
        InputOutputError, NoSpaceError; DeadlineError if no transfer progresses (the request
        continues); StaleError.
        """
        if self._handle is None:
            raise errors.StaleError("this request was released")
        if self._ended:
            return True
        try:
            ended = settle(lib.meron_future_wait, self._handle, timeout)
        except errors.ClosedError:
            _held.append(self._keep)
            self._keep = None
            raise
        except errors.DeadlineError:
            raise
        except errors.Error:
            self._keep = None  # it has ended: nobody uses the memory any more
            raise
        if ended:
            self._ended = True
            self._keep = None
        return ended

    def done(self) -> bool:
        """True if it has ended well; never blocks. Raises the error if it failed."""
        return self.wait(0)

    def release(self) -> None:
        """Releases the request; doing so twice is fine."""
        self.__del__()

    def __del__(self) -> None:
        keep, self._keep = self._keep, None
        if keep is not None and self._handle is not None and self._handle.id:
            if not self._io.closed:
                handle, self._handle = self._handle, None
                self._io._abandoned.append((handle, keep))
                return
            if self._wait_function(self._handle, 0, self._null) in _HELD_STATUSES:
                _held.append(keep)
        super().__del__()


class Buffer(Owner):
    """Owner of pinned memory. Its arrays keep it alive."""

    _release_function = lib.meron_io_buffer_release

    def __init__(self, io: Any, size: int) -> None:
        self._receive("meron_io_buffer *", lib.meron_io_buffer_create, io, size)


def settle(function: Any, handle: Any, timeout: float | None) -> bool:
    """Waits in slices, so that Python's signal handlers run in between; whether it has ended."""
    left = -1 if timeout is None else nanoseconds(timeout)
    while True:
        piece = SLICE if left < 0 else min(left, SLICE)
        if call(function, handle, piece) != IN_PROGRESS:
            return True
        if left >= 0:
            left -= piece
            if left <= 0:
                return False
