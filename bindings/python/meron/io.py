# SPDX-License-Identifier: Apache-2.0
"""Files read and written past the page cache, beside the threads that compute.

    import meron, numpy as np

    with meron.io.IO() as io:
        weights = io.buffer(1 << 30)                  # pinned; any other memory will do too
        begun = io.read_begin("weights.bin", weights)
        ...                                           # compute meanwhile
        begun.wait()

No context is needed, and no ranks. `AsyncIOHandle` is the same under the names of DeepSpeed's
DeepNVMe: a script that uses that one changes its import.

    from meron.io import AsyncIOBuilder               # was: from deepspeed.ops.op_builder

    handle = AsyncIOBuilder().load().aio_handle(1 << 20, 32, False, True, 4)
    handle.async_pread(tensor, "weights.bin")
    handle.wait()

Memory of a transfer is a NumPy array, a torch tensor in host memory, or any object with the buffer
protocol (bytearray, memoryview, mmap); contiguous, of any alignment. It is kept alive while the
drive works on it, and must not be used meanwhile.
"""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from types import ModuleType
from typing import Any, Union

import numpy as np

from meron import errors
from meron._io import IO, IOInfo, Request
from meron._io_arguments import Path, take
from meron._native import ffi

logger = logging.getLogger("meron.io")

Target = Union[Path, int]

# Messages that this process has already logged; each is logged once.
_told: set[str] = set()
_telling = threading.Lock()
# Unit of calls past the page cache.
PAGE = 4096
# Bytes per comparison with the page cache (validate=True).
COMPARED = 1 << 22


class AsyncIOHandle:
    """A handle as DeepSpeed's aio_handle: the same methods, arguments and counts.

    Args:
        block_size: bytes of one call of the kernel. Rounded up to a multiple of 4096, which the
            log says and get_block_size() returns: calls past the page cache take whole pages.
        queue_depth: calls under way at a time.
        single_submit: hand each call to the kernel alone.
        overlap_events: False: the next calls begin when the last have ended. DeepSpeed's handle has
            False by default, its configuration True.
        intra_op_parallelism: threads that read and write where the host forbids io_uring; with it
            one thread does all, and this only has to be a number that threads can have.
        timeout: seconds; a wait ends when nothing has moved for so long. None: 600.

    Differences from DeepSpeed's: a failure raises a `meron.Error` that names the file, instead of
    an assertion or -1; sizes, offsets and memory need no alignment, so that `intra_op_parallelism`
    need not divide a size; a read may end before the file does; `wait` without pending requests
    returns 0. Tensors have to be in host memory.

    May be used from any thread. Its finalizer closes it after pending requests.
    """

    def __init__(
        self,
        block_size: int = 1 << 20,
        queue_depth: int = 128,
        single_submit: bool = False,
        overlap_events: bool = True,
        intra_op_parallelism: int = 1,
        *,
        timeout: float | None = None,
    ) -> None:
        block_bytes = whole_pages(block_size)
        self._io = IO(
            block_bytes=block_bytes,
            depth=queue_depth,
            threads=intra_op_parallelism,
            single_submit=single_submit,
            overlap_events=overlap_events,
            timeout=timeout,
        )
        self._begun: list[tuple[Request, Any]] = []  # with what is to be compared, or None
        # Those that have ended, each with its error or None, until a wait reports them.
        self._ended: list[errors.Error | None] = []
        self._locked: dict[int, weakref.ref[Any]] = {}  # pinned memory by its address
        self._tell()
        if block_bytes != block_size:
            tell_once(
                f"block_size {block_size} is rounded up to {block_bytes}: a call past the page "
                f"cache takes whole pages of {PAGE} bytes"
            )

    def __repr__(self) -> str:
        info = self._io.info()
        return f"<meron.io.AsyncIOHandle: {info.backend}, {len(self._begun)} under way>"

    def get_block_size(self) -> int:
        """Bytes of one call of the kernel."""
        return self._io.info().block_bytes

    def get_queue_depth(self) -> int:
        """Calls under way at a time."""
        return self._io.info().depth

    def get_single_submit(self) -> bool:
        """True if each call is submitted to the kernel alone."""
        return self._io.info().single_submit

    def get_overlap_events(self) -> bool:
        """True if calls begin before earlier ones have ended."""
        return self._io.info().overlap_events

    def get_intra_op_parallelism(self) -> int:
        """Threads of the backend of threads."""
        return self._io.info().threads

    def get_alignment(self) -> int:
        """Multiples of this in memory and in the file are the fastest; nothing needs them."""
        return PAGE

    # ---- Blocking ------------------------------------------------------------------------------

    def read(
        self, buffer: Any, filename: Path, validate: bool = False, file_offset: int = 0
    ) -> int:
        """Reads as many bytes as `buffer` has, from byte `file_offset` of the file on.

        Args:
            validate: True compares the bytes with those of an ordinary read.

        Returns:
            0.

        Blocks on the drive, and releases the GIL. Raises NotFoundError; InputOutputError if the
        file is too short; CorruptError from `validate`; ArgumentError; DeadlineError.
        """
        self._io.read(filename, buffer, file_offset)
        if validate:
            compare(buffer, filename, file_offset)
        return 0

    def write(
        self, buffer: Any, filename: Path, validate: bool = False, file_offset: int = 0
    ) -> int:
        """Writes all bytes of `buffer` to byte `file_offset` and on; otherwise as `read`.

        Makes the file where there is none; what it holds besides stays. Raises NoSpaceError too.
        """
        self._io.write(filename, buffer, file_offset)
        if validate:
            compare(buffer, filename, file_offset)
        return 0

    def sync_pread(self, buffer: Any, filename: Path, file_offset: int = 0) -> int:
        """`pread` that waits, without a comparison."""
        return self.pread(buffer, filename, False, False, file_offset)

    def sync_pwrite(self, buffer: Any, filename: Path, file_offset: int = 0) -> int:
        """`pwrite` that waits, without a comparison."""
        return self.pwrite(buffer, filename, False, False, file_offset)

    # ---- Asynchronous --------------------------------------------------------------------------

    def pread(
        self, buffer: Any, filename: Path, validate: bool, async_op: bool, file_offset: int = 0
    ) -> int:
        """Begins a read, and waits for all that was begun unless `async_op`.

        Returns:
            0 with `async_op`, else what `wait` returns. Raises as `read`.
        """
        request = self._io.read_begin(filename, buffer, file_offset)
        return self._begin(request, (buffer, filename, file_offset) if validate else None, async_op)

    def pwrite(
        self, buffer: Any, filename: Target, validate: bool, async_op: bool, file_offset: int = 0
    ) -> int:
        """Begins a write, and waits for all that was begun unless `async_op`.

        Returns:
            0 with `async_op`, else what `wait` returns. Raises as `write`.
        """
        name = name_of(filename)
        request = self._io.write_begin(name, buffer, file_offset)
        return self._begin(request, (buffer, name, file_offset) if validate else None, async_op)

    def async_pread(self, buffer: Any, filename: Path, file_offset: int = 0) -> int:
        """`pread` that only begins; `wait` counts it. The buffer must not be used until then."""
        return self.pread(buffer, filename, False, True, file_offset)

    def async_pwrite(
        self,
        buffer: Any,
        filename: Target | None = None,
        file_offset: int = 0,
        *,
        fd: int | None = None,
    ) -> int:
        """`pwrite` that only begins; `wait` counts it. The buffer must not change until then.

        The file is given by name, or as the descriptor of an open file: `filename` or `fd`.
        """
        if (filename is None) == (fd is None):
            raise errors.argument("async_pwrite takes either filename or fd", subject="fd")
        target = fd if filename is None else filename
        assert target is not None
        return self.pwrite(buffer, target, False, True, file_offset)

    def wait(self) -> int:
        """Waits for all that was begun.

        Returns:
            How many reads and writes that were.

        Blocks on the drive, and releases the GIL; after Ctrl-C, and after a DeadlineError, it may
        be called again, and reports also those that had ended by then. Raises the first error when
        all have ended.
        """
        while True:
            try:
                begun = self._begun.pop(0)
            except IndexError:  # another thread may wait too
                break
            failure: errors.Error | None = None
            try:
                self._finish(*begun)
            except errors.DeadlineError:
                self._begun.insert(0, begun)
                raise
            except errors.Error as error:
                failure = error
            except BaseException:  # Ctrl-C: it is still under way
                self._begun.insert(0, begun)
                raise
            self._ended.append(failure)
        ended = self._take_ended()
        for failure in ended:
            if failure is not None:
                raise failure
        return len(ended)

    # ---- Pinned memory -------------------------------------------------------------------------

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: Any) -> Any:
        """Pinned memory for `num_elem` elements, which are 0.

        Returns:
            A torch tensor of the dtype of `example_tensor` where that is one, else a NumPy array.
        """
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(example_tensor, torch.Tensor):
            plain = self._io.buffer(num_elem * example_tensor.element_size())
            made = torch.from_numpy(plain).view(example_tensor.dtype)
        else:
            plain = made = self._io.buffer(num_elem, np.asarray(example_tensor).dtype)
        self._locked[plain.ctypes.data] = weakref.ref(base_of(plain))
        return made

    def free_cpu_locked_tensor(self, tensor: Any) -> bool:
        """Releases pinned memory. It is freed with the last tensor that uses it.

        Returns:
            Whether it was this handle's.
        """
        torch = sys.modules.get("torch")
        is_tensor = torch is not None and isinstance(tensor, torch.Tensor)
        address = tensor.data_ptr() if is_tensor else np.asarray(tensor).ctypes.data
        known = self._locked.pop(address, None)
        return known is not None and known() is not None

    # ---- This layer's own ----------------------------------------------------------------------

    def _begin(self, request: Request, compared: Any, async_op: bool) -> int:
        self._begun.append((request, compared))
        return 0 if async_op else self.wait()

    def _finish(self, request: Request, compared: Any) -> None:
        request.wait()
        if compared is not None:
            compare(*compared)

    def _take_ended(self) -> list[errors.Error | None]:
        """Each one once, also where several threads wait."""
        taken: list[errors.Error | None] = []
        while True:
            try:
                taken.append(self._ended.pop(0))
            except IndexError:
                return taken

    def _tell(self) -> None:
        """Logs, once in a process, how fast this can be, and what has no effect here."""
        lines = self._io.describe().splitlines()
        if self._io.info().backend == "io_uring":
            lines.append("intra_op_parallelism has no effect: io_uring needs one thread only")
        else:
            lines.append("queue_depth, single_submit and overlap_events have no effect on threads")
        for line in lines:
            tell_once(line)


aio_handle = AsyncIOHandle


class AsyncIOBuilder:
    """Returns the handle's class to DeepSpeed scripts: nothing has to be built here."""

    def is_compatible(self, verbose: bool = False) -> bool:
        """True: if io_uring is forbidden, threads read and write."""
        return True

    def load(self, verbose: bool = False) -> ModuleType:
        """This module."""
        return sys.modules[__name__]


def whole_pages(block_size: int) -> int:
    """`block_size` rounded up. An invalid value stays as it is, and the engine refuses it."""
    if not isinstance(block_size, int) or block_size <= 0:
        return block_size
    return -(-block_size // PAGE) * PAGE


def tell_once(line: str) -> None:
    """Logs a line, once in a process."""
    with _telling:
        new = line not in _told
        _told.add(line)
    if new:
        logger.info("%s", line)


def base_of(array: Any) -> Any:
    """The owner of the memory of a pinned array."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.keep


def name_of(target: Target) -> Path:
    return f"/proc/self/fd/{target}" if isinstance(target, int) else target


def compare(buffer: Any, filename: Path, offset: int) -> None:
    """Holds memory against what an ordinary read of the file gives."""
    memory = take(buffer, False)
    found = ffi.buffer(ffi.cast("char *", memory.data), memory.bytes)
    try:
        different = first_difference(found, filename, offset)
    except OSError as error:
        raise errors.InputOutputError(
            f"{filename!r} cannot be read again to compare it: {error.strerror or error}. Check "
            "the drive, and whether something else writes there",
            subject=str(filename),
        ) from error
    if different is not None:
        begin, end = different
        raise errors.CorruptError(
            f"{filename!r}: bytes {offset + begin} to {offset + end - 1} are other ones in "
            "the file than in memory. Check the drive, and whether something else writes "
            "there",
            subject=str(filename),
        )


def first_difference(found: Any, filename: Path, offset: int) -> tuple[int, int] | None:
    """The first piece of memory that differs from the file from `offset` on. Raises OSError."""
    with open(filename, "rb") as file:
        file.seek(offset)
        for begin in range(0, len(found), COMPARED):
            end = min(begin + COMPARED, len(found))
            if file.read(end - begin) != found[begin:end]:
                return begin, end
    return None


__all__ = ["IO", "AsyncIOBuilder", "AsyncIOHandle", "IOInfo", "Request", "aio_handle"]
