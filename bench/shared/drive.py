# SPDX-License-Identifier: Apache-2.0
"""Measures the limits of the drive and its file system: several processes write new files and read
them, past the page cache. Uses fio, or a loop of its own if fio is not installed."""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

from report import BenchError, Json

MIB = 1 << 20
BLOCK = 4 * MIB  # as checkpoints are written
DEPTH = 8


def fio_seconds(folder: Path, each: int, processes: int, direction: str) -> float:
    words = ["fio", "--name=drive", f"--directory={folder}", f"--rw={direction}", "--bs=4M"]
    words += [f"--iodepth={DEPTH}", "--ioengine=io_uring", "--direct=1", f"--size={each}"]
    words += [f"--numjobs={processes}", "--group_reporting", "--end_fsync=1", "--invalidate=0"]
    words += ["--thread", "--output-format=json"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    begin = done.stdout.find("{")
    if done.returncode != 0 or begin < 0:
        raise BenchError(f"fio ended with exit code {done.returncode}:\n{done.stderr.strip()}")
    job = json.loads(done.stdout[begin:])["jobs"][0]
    return float(job["job_runtime"]) / 1000 / processes


def read_seconds(files: list[list[Path]]) -> float:
    """Seconds of reading files that are there, each list by a process of its own."""
    if shutil.which("fio") is None:
        return read_by_processes(files)
    words = ["fio", "--rw=read", "--bs=4M", f"--iodepth={DEPTH}", "--ioengine=io_uring"]
    words += ["--direct=1", "--invalidate=0", "--thread", "--output-format=json"]
    for number, of_process in enumerate(files):
        names = ":".join(str(file).replace(":", "\\:") for file in of_process)
        words += [f"--name=read{number}", f"--filename={names}"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    begin = done.stdout.find("{")
    if done.returncode != 0 or begin < 0:
        raise BenchError(f"fio ended with exit code {done.returncode}:\n{done.stderr.strip()}")
    jobs = json.loads(done.stdout[begin:])["jobs"]
    return float(max(job["job_runtime"] for job in jobs)) / 1000


def move(path: Path, bytes_of: int, write: bool) -> None:
    """Moves blocks by DEPTH threads. The calls release the GIL. The last block of a file that is
    read may be short."""
    flags = os.O_RDWR | os.O_CREAT | os.O_DIRECT
    descriptor = os.open(path, flags)
    blocks = iter(range(0, bytes_of, BLOCK))
    lock = threading.Lock()

    def work() -> None:
        memory = mmap.mmap(-1, BLOCK)
        memory.write(os.urandom(4096) * (BLOCK // 4096))
        while True:
            with lock:
                place = next(blocks, None)
            if place is None:
                return
            moved = (os.pwritev if write else os.preadv)(descriptor, [memory], place)
            if moved != BLOCK and (write or moved < min(BLOCK, bytes_of - place)):
                raise OSError(f"{moved} of {BLOCK} bytes were moved")

    threads = [threading.Thread(target=work) for _ in range(DEPTH)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.fsync(descriptor)
    os.close(descriptor)


def own_seconds(folder: Path, each: int, processes: int, direction: str) -> float:
    context = multiprocessing.get_context("fork")
    begin = time.perf_counter()
    children = [
        context.Process(target=move, args=(folder / f"{i}", each, direction == "write"))
        for i in range(processes)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise BenchError("the drive could not be measured: a process failed")
    return time.perf_counter() - begin


def read_by_processes(files: list[list[Path]]) -> float:
    context = multiprocessing.get_context("fork")
    begin = time.perf_counter()
    children = [context.Process(target=read_once, args=(of_process,)) for of_process in files]
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise BenchError("the drive could not be measured: a process failed")
    return time.perf_counter() - begin


def read_once(files: list[Path]) -> float:
    """Seconds of reading the files, one after the other, past the page cache."""
    begin = time.perf_counter()
    for file in files:
        move(file, file.stat().st_size, write=False)
    return time.perf_counter() - begin


def raw_turn(folder: Path, size: int, processes: int) -> Json:
    """As an arm of the benchmark: seconds of writing and of reading."""
    each = max(1, size // processes // BLOCK) * BLOCK
    by_fio = shutil.which("fio") is not None
    seconds = fio_seconds if by_fio else own_seconds
    return {
        "program": "fio" if by_fio else "O_DIRECT, 8 threads (fio is not installed)",
        "bytes": each * processes,
        "save_seconds": seconds(folder, each, processes, "write"),
        "load_seconds": seconds(folder, each, processes, "read"),
    }
