# SPDX-License-Identifier: Apache-2.0
"""Loads read each byte of the files once per host, at any number of ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import ranks

import meron

ELEMENTS = 1 << 20  # of a unit: three states of 4 MiB, in blocks of 1 MiB
UNITS = 4


def model(ctx: meron.Context) -> meron.Optimizer:
    params = [ctx.param(f"h.{i}.w", (ELEMENTS,)) for i in range(UNITS)]
    return ctx.adamw([ctx.unit(f"h.{i}", [param]) for i, param in enumerate(params)])


def read_from_drive() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0


def evict(folder: Path) -> None:
    for path in folder.rglob("*.safetensors"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(2, 2), (2, 3), (3, 2), (3, 4), (4, 1)])
@pytest.mark.parametrize("plan", ["zero1", "zero3"])
def test_a_host_reads_the_files_once(
    tmp_path: Path, plan: str, saved_by: int, loaded_by: int
) -> None:
    def save(ctx: meron.Context) -> None:
        ctx.save(tmp_path, "one", [model(ctx)])

    def load(ctx: meron.Context) -> None:
        ctx.load(tmp_path, "one", [model(ctx)])

    ranks.threads(saved_by, save, plan=plan)
    evict(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    before = read_from_drive()  # ranks are threads of this process
    ranks.threads(loaded_by, load, plan=plan)
    found = read_from_drive() - before
    if found == 0:
        pytest.skip("this file system does not count what it reads")
    assert found <= 1.05 * size
