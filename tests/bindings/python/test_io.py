# SPDX-License-Identifier: Apache-2.0
"""meron.io: bytes equal wherever they lie, requests begun and waited for, errors, and the methods
that a script of DeepSpeed's calls."""

from __future__ import annotations

import gc
import mmap
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meron
from meron.io import IO, AsyncIOBuilder, AsyncIOHandle

BACKENDS = ("io_uring", "threads")


@pytest.fixture(params=BACKENDS)
def io(request: pytest.FixtureRequest) -> Iterator[IO]:
    try:
        made = IO(request.param, block_bytes=65536, depth=8, threads=2, timeout=30)
    except meron.UnsupportedError as error:
        pytest.skip(str(error))
    with made:
        yield made


def noise(count: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(count)


# ---- Bytes ---------------------------------------------------------------------------------------


def test_reads_written_bytes_at_any_alignment(io: IO, tmp_path: Path) -> None:
    path = tmp_path / "file"
    model = bytearray(noise(1 << 20))
    io.write(path, model)
    pinned = io.buffer(1 << 20)
    draw = random.Random(5)
    for step in range(40):
        offset = draw.randrange(len(model) - 1)
        count = draw.randrange(1, len(model) - offset)
        fresh = noise(count, step)
        memory = pinned[step % 7 : step % 7 + count] if step % 2 else np.empty(count, np.uint8)
        if memory.size < count:
            continue
        memory[:] = np.frombuffer(fresh, np.uint8)
        model[offset : offset + count] = fresh
        io.write(path, memory, offset)
        memory[:] = 0
        io.read(path, memory, offset)
        assert memory.tobytes() == fresh
    assert path.read_bytes() == model


def test_kinds_of_memory(io: IO, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    values = np.arange(1000, dtype=np.float32).reshape(10, 100)
    io.write(path, values)
    assert os.path.getsize(path) == 4000
    for into in (bytearray(4000), np.empty(1000, np.float32), memoryview(bytearray(4000))):
        io.read(path, into)
        assert bytes(into) == values.tobytes()
    with mmap.mmap(-1, 4000) as mapped:
        io.read(os.fsencode(path), mapped)
        assert mapped[:] == values.tobytes()
    io.write(path, b"bytes", 3)
    io.write(path, b"")
    assert Path(path).read_bytes()[3:8] == b"bytes"
    half = meron.from_float32(values, "bf16")
    io.write(path, half)
    back = np.empty_like(half)
    io.read(path, back)
    assert back.tobytes() == half.tobytes()


def test_memory_that_will_not_do(io: IO, tmp_path: Path) -> None:
    path = tmp_path / "file"
    io.write(path, bytes(100))
    fixed = np.zeros(10, np.uint8)
    fixed.flags.writeable = False
    for into in (b"0123456789", fixed, np.zeros((10, 10), np.uint8)[:, 0]):
        with pytest.raises(meron.ArgumentError):
            io.read(path, into)
    with pytest.raises(TypeError, match="buffer protocol"):
        io.read(path, 17)
    with pytest.raises(TypeError, match="buffer protocol"):
        io.write(path, "text")
    for offset in (-1, 1 << 63):
        with pytest.raises(meron.ArgumentError, match="offset"):
            io.read(path, bytearray(1), offset)
    with pytest.raises(meron.ArgumentError, match="NUL"):
        io.read("a\0b", bytearray(1))
    with pytest.raises(meron.ArgumentError):
        io.buffer(0)
    assert path.read_bytes() == bytes(100)


# ---- Errors --------------------------------------------------------------------------------------


def test_errors_name_the_file(io: IO, tmp_path: Path) -> None:
    none = tmp_path / "none"
    with pytest.raises(meron.NotFoundError, match="none") as missing:
        io.read(none, bytearray(1))
    assert missing.value.subject == str(none) and missing.value.advice
    path = tmp_path / "file"
    io.write(path, bytes(100))
    for begin in (io.read, io.read_begin):
        with pytest.raises(meron.InputOutputError) as short:
            begin(path, bytearray(30), 80)
        for word in (str(path), "30 bytes", "offset 80", "20 are there", "100"):
            assert word in short.value.message
    with pytest.raises(meron.ArgumentError):
        io.read(tmp_path, bytearray(1))
    with pytest.raises(meron.NotFoundError):
        io.write(tmp_path / "no" / "file", b"x")


@pytest.mark.parametrize(
    "options", [{"depth": 0}, {"block_bytes": 1000}, {"threads": 1000}, {"backend": "aio"}]
)
def test_options_that_mean_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(meron.ArgumentError):
        IO(**options)


# ---- Requests ------------------------------------------------------------------------------------


def test_requests_end_in_any_order(io: IO, tmp_path: Path) -> None:
    parts = [noise(100_003, seed) for seed in range(8)]
    begun = [io.write_begin(tmp_path / str(i), part) for i, part in enumerate(parts)]
    assert all(request.wait() and request.done() for request in reversed(begun))
    into = [bytearray(100_003) for _ in parts]
    reads = [io.read_begin(tmp_path / str(i), memory) for i, memory in enumerate(into)]
    assert io.wait()
    assert io.info().pending == 0
    assert into == parts
    for request in reads:
        assert request.wait()
        request.release()
        request.release()
        with pytest.raises(meron.StaleError):
            request.wait()
    assert io.info().bytes_read == io.info().bytes_written == 8 * 100_003


def test_memory_lives_as_long_as_its_request(io: IO, tmp_path: Path) -> None:
    path = tmp_path / "file"
    for _ in range(20):
        data = np.full(1 << 20, 7, np.uint8)
        io.write_begin(path, data)  # nobody holds the request, nor soon the array
        del data
        gc.collect()
        pinned = io.buffer(1 << 20)
        pinned[:] = 9
        io.write_begin(path, pinned, 1 << 20)
        del pinned
        assert io.wait()
    found = path.read_bytes()
    assert found == bytes([7]) * (1 << 20) + bytes([9]) * (1 << 20)
    gc.collect()
    io.info()  # sweeps
    assert io.info().buffer_bytes == 0


def test_close_with_work_under_way(tmp_path: Path) -> None:
    io = IO(block_bytes=4096)
    data = noise(4 << 20)
    request = io.write_begin(tmp_path / "file", data)
    io.close()
    io.close()
    assert io.closed and request.wait()
    assert (tmp_path / "file").read_bytes() == data
    for call in (io.info, io.wait, io.describe, lambda: io.buffer(1)):
        with pytest.raises(meron.StaleError):
            call()
    with pytest.raises(meron.StaleError):
        io.read(tmp_path / "file", bytearray(1))


def test_pinned_memory_outlives_its_io() -> None:
    io = IO()
    pinned = io.buffer(1000, np.float32)
    assert pinned.dtype == np.float32 and pinned.ctypes.data % 4096 == 0 and not pinned.any()
    part = pinned[10:20]
    io.close()
    del io, pinned
    gc.collect()
    part[:] = 3
    assert part.sum() == 30


def test_threads_share_one(io: IO, tmp_path: Path) -> None:
    failed = []

    def work(number: int) -> None:
        try:
            data = noise(200_001, number)
            into = bytearray(len(data))
            for _ in range(5):
                io.write(tmp_path / str(number), data)
                io.read(tmp_path / str(number), into)
                assert into == data
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed


def test_ctrl_c_ends_a_wait(tmp_path: Path) -> None:
    """A page that is never supplied stands for a drive that does not answer."""
    source = f"""
import ctypes, os, signal, threading, time, meron
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(323, os.O_CLOEXEC)
if fd < 0:
    raise SystemExit("skip")
import mmap
page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
class Register(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("start", "len", "mode", "ioctls")]
class Api(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("api", "features", "ioctls")]
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
api, register = Api(0xAA, 0, 0), Register(start, 4096, 1, 0)
refused = libc.ioctl(fd, 0xC018AA3F, ctypes.byref(api))
if refused or libc.ioctl(fd, 0xC020AA00, ctypes.byref(register)):
    raise SystemExit("skip")
io = meron.io.IO("threads")
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    io.write({str(tmp_path / "file")!r}, page)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin < 5, flush=True)
os.close(fd)
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60
    )
    if "skip" in done.stderr:
        pytest.skip("no userfaultfd here")
    assert "interrupted True" in done.stdout, done.stderr


# ---- DeepSpeed's methods -------------------------------------------------------------------------


def test_a_deepspeed_script(tmp_path: Path) -> None:
    """DeepNVMe's own examples run with another import."""
    torch = pytest.importorskip("torch")
    handle = AsyncIOBuilder().load().aio_handle(1 << 20, 32, False, True, 4)
    source = handle.new_cpu_locked_tensor(1 << 20, torch.empty(0, dtype=torch.bfloat16))
    assert source.dtype == torch.bfloat16 and source.numel() == 1 << 20
    source.copy_(torch.randn(1 << 20))
    path = str(tmp_path / "tensor.swp")
    assert handle.sync_pwrite(source, path) == 1
    assert os.path.getsize(path) == 2 << 20
    target = torch.empty(1 << 20, dtype=torch.bfloat16)
    assert handle.async_pread(target, path) == 0
    assert handle.wait() == 1
    assert torch.equal(source, target)
    assert handle.free_cpu_locked_tensor(source)
    assert not handle.free_cpu_locked_tensor(source)
    assert not handle.free_cpu_locked_tensor(target)
    assert source.sum() == target.sum()  # it goes with its last tensor
    with pytest.raises(meron.ArgumentError, match="contiguous"):
        handle.write(target.view(1024, 1024).t(), path)


def test_methods_and_counts(tmp_path: Path) -> None:
    handle = AsyncIOHandle(65536, 16, True, False, 2)
    assert handle.get_block_size() == 65536
    assert handle.get_queue_depth() == 16
    assert handle.get_single_submit() is True
    assert handle.get_overlap_events() is False
    assert handle.get_intra_op_parallelism() == 2
    assert handle.get_alignment() % 512 == 0
    assert handle.wait() == 0
    path = tmp_path / "file"
    data = np.frombuffer(noise(100_001), np.uint8)  # 2 does not divide it
    assert handle.write(data, path, True) == 0
    into = np.zeros_like(data)
    assert handle.read(into, path, True) == 0
    assert np.array_equal(into, data)
    assert handle.read(into[:10], path, file_offset=50) == 0
    assert np.array_equal(into[:10], data[50:60])
    assert handle.pwrite(data, path, True, False, 7) == 1
    assert handle.pread(into, path, True, False, 7) == 1
    assert np.array_equal(into, data)
    assert [handle.async_pwrite(data, tmp_path / str(i), 3) for i in range(3)] == [0, 0, 0]
    assert handle.pwrite(data, tmp_path / "3", False, False) == 4
    assert handle.sync_pread(into, tmp_path / "2", 3) == 1
    assert np.array_equal(into, data)
    with open(tmp_path / "opened", "wb") as file:
        assert handle.async_pwrite(data, file.fileno()) == 0
        assert handle.async_pwrite(data, fd=file.fileno(), file_offset=data.size) == 0
        assert handle.wait() == 2
        with pytest.raises(meron.ArgumentError, match="either filename or fd"):
            handle.async_pwrite(data)
        with pytest.raises(meron.ArgumentError, match="either filename or fd"):
            handle.async_pwrite(data, path, fd=file.fileno())
    assert (tmp_path / "opened").read_bytes() == data.tobytes() * 2
    pinned = handle.new_cpu_locked_tensor(100, np.empty(0, np.float32))
    assert pinned.dtype == np.float32 and pinned.shape == (100,)
    assert handle.free_cpu_locked_tensor(pinned)
    assert "io_uring" in repr(handle) or "threads" in repr(handle)


def test_failures_of_a_handle(tmp_path: Path) -> None:
    handle = AsyncIOHandle()
    with pytest.raises(meron.NotFoundError):
        handle.async_pread(bytearray(4), tmp_path / "none")
    with pytest.raises(meron.InputOutputError):
        (tmp_path / "short").write_bytes(b"abc")
        handle.sync_pread(bytearray(4), tmp_path / "short")
    assert handle.wait() == 0
    # The comparison finds a change by another program after the write.
    handle.pwrite(noise(10_000), tmp_path / "file", True, True)
    handle._begun[-1][0].wait()
    (tmp_path / "file").write_bytes(noise(10_000, 2))
    handle.async_pwrite(b"fine", tmp_path / "fine")
    with pytest.raises(meron.CorruptError, match="file"):
        handle.wait()
    assert (tmp_path / "fine").read_bytes() == b"fine"
    assert handle.wait() == 0
    with pytest.raises(meron.ArgumentError):
        AsyncIOHandle(block_size=-4096)


def test_blocks_below_a_page_are_rounded_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from meron import io as module

    module._told.clear()
    with caplog.at_level("INFO", "meron.io"):
        handles = [AsyncIOHandle(block_size=size) for size in (1, 512, 4096, 5000)]
    assert [handle.get_block_size() for handle in handles] == [4096, 4096, 4096, 8192]
    assert sum("whole pages" in record.getMessage() for record in caplog.records) == 3
    data = noise(10_001)
    for handle in handles:
        assert handle.sync_pwrite(data, tmp_path / "file") == 1
        into = bytearray(len(data))
        assert handle.read(into, tmp_path / "file", True) == 0
        assert into == data


def test_logs_options_without_effect_once(caplog: pytest.LogCaptureFixture) -> None:
    from meron import io as module

    module._told.clear()
    with caplog.at_level("INFO", "meron.io"):
        AsyncIOHandle()
        AsyncIOHandle()
    assert sum("no effect" in record.getMessage() for record in caplog.records) == 1


def test_a_fork_gets_an_error(tmp_path: Path) -> None:
    source = f"""
import os, meron
io = meron.io.IO()
io.write({str(tmp_path / "file")!r}, b"parent")
if os.fork() == 0:
    try:
        io.read({str(tmp_path / "file")!r}, bytearray(6))
    except meron.ForkedError:
        del io
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
into = bytearray(6)
io.read({str(tmp_path / "file")!r}, into)
assert into == b"parent"
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
