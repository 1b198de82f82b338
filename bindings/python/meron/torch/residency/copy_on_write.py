# SPDX-License-Identifier: Apache-2.0
"""Copy-on-write views of shared memory, so that a write to a param in use becomes an exception.

PyTorch has no read-only tensors. A tensor over the engine's read-only mapping would turn a write in
a forward (`self.weight.data.clamp_(0)`) into a segmentation fault. Params in use therefore point
into a second, private mapping of the same file: reads see what the ranks publish; if a page is
written, the kernel copies it first, and no peer sees the copy. `written()` finds such pages in
/proc/self/pagemap and discards them.

Cost: one system call per pass and step, which reads 8 bytes per 4 KiB of params; page tables.
If /proc or the file's descriptor is not available, tensors stay over the read-only mapping, and a
warning says so.

NumPy's views of meron.Gather do not use it. NumPy keeps to their read-only flag, except np.add.at;
torch.from_numpy and DLPack ignore it, and a write is a segmentation fault. A look at the pages at
each release would take many times the 3 us of a gather. If two leases share a page, the one that
wrote is unknown. A lease that ends in a finalizer cannot raise.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import sys
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

logger = logging.getLogger("meron.torch")

PAGE = mmap.PAGESIZE
MAP_NORESERVE = 0x4000  # of Linux; Python has no name for it before 3.13
MADV_POPULATE_READ = 22
CHUNK = 1 << 17  # pages that are looked at together: 1 MiB of /proc/self/pagemap
# Of the highest byte of an entry: PRESENT is the bit above SWAPPED.
SWAPPED, OF_THE_FILE = np.uint8(1 << 6), np.uint8(1 << 5)
LAST_BYTE = 7 if sys.byteorder == "little" else 0

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Place:
    """The addresses of a mapping of this process, and its range of the file."""

    begin: int
    end: int
    offset: int  # in the file
    device: int
    inode: int


def place_of(address: int) -> Place | None:
    """The shared mapping that has an address, by /proc/self/maps."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split(maxsplit=5)
            begin, end = (int(word, 16) for word in words[0].split("-"))
            if begin <= address < end:
                major, minor = (int(word, 16) for word in words[3].split(":"))
                if words[1][3] != "s" or words[4] == "0":
                    return None
                device = os.makedev(major, minor)
                return Place(begin, end, int(words[2], 16), device, int(words[4]))
    return None


def descriptor_of(place: Place) -> int | None:
    """An open descriptor of the file that is mapped there."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(int(name))
            if (status.st_ino, status.st_dev) == (place.inode, place.device):
                return int(name)
    return None


class Shadow:
    """The private mapping of one shared mapping."""

    def __init__(self, place: Place, descriptor: int) -> None:
        self.place = place
        length = min(place.end - place.begin, os.fstat(descriptor).st_size - place.offset)
        self.mapping = mmap.mmap(
            descriptor,
            length,
            flags=mmap.MAP_PRIVATE | MAP_NORESERVE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
            offset=place.offset,
        )
        self.bytes: Bytes = np.frombuffer(self.mapping, np.uint8)
        self.address = self.bytes.ctypes.data
        self.low, self.high = length, 0  # what `view` has given out

    def holds(self, address: int, size: int) -> bool:
        begin = address - self.place.begin
        return begin >= 0 and begin + size <= len(self.bytes)

    def view(self, address: int, size: int) -> Bytes:
        begin = address - self.place.begin
        self.low, self.high = min(self.low, begin), max(self.high, begin + size)
        first = begin // PAGE * PAGE
        with contextlib.suppress(OSError, ValueError):  # an optimisation; not before Linux 5.14
            self.mapping.madvise(MADV_POPULATE_READ, first, begin + size - first)
        return self.bytes[begin : begin + size]

    def discard_copies(self, pagemap: int) -> list[tuple[int, int]]:
        """Discards the pages that were written, and returns what was: ranges of addresses."""
        ranges = []
        first, last = self.low // PAGE, (self.high + PAGE - 1) // PAGE
        base = self.address // PAGE
        for begin in range(first, last, CHUNK):
            count = min(CHUNK, last - begin)
            data = os.pread(pagemap, 8 * count, 8 * (base + begin))
            flags = np.frombuffer(data, np.uint8)[LAST_BYTE::8].copy()
            copied = (flags >= SWAPPED) & ((flags & OF_THE_FILE) == 0)
            for page in np.flatnonzero(copied) if copied.any() else ():
                ranges.append(self.discard((begin + int(page)) * PAGE))
        return ranges

    def discard(self, offset: int) -> tuple[int, int]:
        """Discards a page; returns the addresses between which it differed."""
        part = self.bytes[offset : offset + PAGE]
        written = part.copy()
        self.mapping.madvise(mmap.MADV_DONTNEED, offset, PAGE)
        different = np.flatnonzero(written != part)
        begin = self.address + offset
        if not len(different):  # the values that were there already
            return begin, begin
        return begin + int(different[0]), begin + int(different[-1]) + 1


class CopyOnWrite:
    """Of one context. Threads: one at a time."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.shadows: list[Shadow] = []
        self.pagemap = -1
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.missing = ""  # why a write to a param in use would be a fault
        try:
            self.pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:  # not every container has it
            self.warn(f"/proc/self/pagemap: {error.strerror}")

    def view(self, address: int, size: int) -> Bytes | None:
        """The same bytes, copied where they are written. None: this system cannot, which a warning
        says once."""
        if self.pagemap < 0:
            return None
        with self.lock:
            for shadow in self.shadows:
                if shadow.holds(address, size):
                    return shadow.view(address, size)
            try:
                shadow = self.new_shadow(address)
            except (OSError, ValueError, OverflowError) as error:
                self.warn(str(error))
                return None
            if not shadow.holds(address, size):
                self.warn("a param is in more than one mapping")
                return None
            self.shadows.append(shadow)
            return shadow.view(address, size)

    @staticmethod
    def new_shadow(address: int) -> Shadow:
        place = place_of(address)
        if place is None:
            raise OSError("/proc/self/maps has no shared mapping of the params")
        descriptor = descriptor_of(place)
        if descriptor is None:
            raise OSError("/proc/self/fd has no descriptor of the params' shared memory")
        return Shadow(place, descriptor)

    def warn(self, reason: str) -> None:
        if not self.missing:
            self.missing = reason
            logger.warning(
                "rank %d: writes to params in use cannot be undone and reported here (%s). Such a "
                "write, as param.data.clamp_() in a forward, ends the process by a segmentation "
                "fault. MERON_CHECK_WRITES=1 makes it an exception, to find it.",
                self.rank,
                reason,
            )

    def written(self) -> list[tuple[int, int]]:
        """Ranges of addresses that were written since the last call; their copies are discarded.
        Never in a child of the process, whose pages are other ones."""
        if not self.shadows or os.getpid() != self.process:
            return []
        with self.lock:
            return [each for shadow in self.shadows for each in shadow.discard_copies(self.pagemap)]

    def close(self) -> None:
        """Memory that tensors still show stays mapped until they go."""
        self.shadows = []
        if self.pagemap >= 0:
            os.close(self.pagemap)
            self.pagemap = -1
