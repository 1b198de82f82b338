# SPDX-License-Identifier: Apache-2.0
"""Arrays of states beside saves, exports and loads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
import torch

import meron

HOLDERS: dict[str, Callable[[Any], Any]] = {
    "array": lambda array: array,
    "slice": lambda array: array[1:],
    "memoryview": memoryview,
    "tensor": torch.from_numpy,
    "dlpack": np.from_dlpack,
    "masked": lambda array: np.ma.MaskedArray(array, copy=False),
}


def make(
    ctx: meron.Context, dtype: str = "f32", size: int = 8
) -> tuple[meron.Param, meron.Optimizer]:
    param = ctx.param("w", (size,), dtype)
    return param, ctx.adamw([ctx.unit("u", [param])])


def write_to(
    ctx: meron.Context, call: str, folder: Path, optimizer: meron.Optimizer
) -> meron.Checkpoint | None:
    if call == "save":
        ctx.save(folder, "a", [optimizer], overwrite=True)
    elif call == "export":
        ctx.export(folder / "exported", overwrite=True)
    else:
        return ctx.load(folder, "a", [optimizer])
    return None


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("call", ["save", "export", "load"])
def test_files_and_arrays_of_states_exclude_each_other(
    alone: meron.Context, tmp_path: Path, call: str, hold: Callable[[Any], Any]
) -> None:
    param, optimizer = make(alone)
    alone.save(tmp_path, "a", [optimizer])
    held = hold(optimizer.state(param, "exp_avg"))
    with pytest.raises(meron.StateError, match=r"optimizer\.state\('w', 'exp_avg'\) is still"):
        write_to(alone, call, tmp_path, optimizer)
    assert not (tmp_path / "exported").exists()
    del held
    write_to(alone, call, tmp_path, optimizer)


def test_only_a_load_refuses_a_master_that_is_read(alone: meron.Context, tmp_path: Path) -> None:
    param, optimizer = make(alone)
    master = optimizer.state(param, "master")
    write_to(alone, "save", tmp_path, optimizer)
    write_to(alone, "export", tmp_path, optimizer)
    with pytest.raises(meron.StateError, match="master"):
        write_to(alone, "load", tmp_path, optimizer)
    assert master.tolist() == [0] * 8


def test_an_array_that_a_step_has_ended_is_no_obstacle(
    alone: meron.Context, tmp_path: Path
) -> None:
    param, optimizer = make(alone)
    array = optimizer.state(param, "exp_avg")
    optimizer.units[0].reduce({param: np.ones(8)})
    optimizer.step()
    write_to(alone, "save", tmp_path, optimizer)
    write_to(alone, "load", tmp_path, optimizer)
    assert not array.flags.writeable


def test_a_refused_save_leaves_the_ranks_in_step(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        param, optimizer = make(ctx, "bf16")
        master = optimizer.state(param, "master")
        with pytest.raises(meron.StateError, match="'master'"):
            ctx.save(tmp_path, "a", [optimizer])
        master[:] = 1
        del master
        ctx.save(tmp_path, "a", [optimizer])
        assert meron.open_checkpoint(tmp_path).read("w", "master").tolist() == [1] * 8

    ranks.threads(2, body)


def test_a_state_that_is_written_during_a_save_is_not_seen(
    alone: meron.Context, tmp_path: Path
) -> None:
    size = 1 << 22
    param, optimizer = make(alone, size=size)
    optimizer.write_state(param, "exp_avg", np.ones(size))
    saving = alone.save_begin(tmp_path, "a", [optimizer])
    array = optimizer.state(param, "exp_avg")
    assert alone.wait_copied(0)
    array[:] = 2
    saving.wait()
    assert (meron.open_checkpoint(tmp_path).read("w", "exp_avg") == 1).all()


def test_an_export_is_of_one_moment_beside_a_thread_that_writes(
    alone: meron.Context, tmp_path: Path
) -> None:
    param, optimizer = make(alone, "bf16", size=1 << 20)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number = (number + 1) % 100
            optimizer.state(param, "master")[:] = number

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    try:
        for _ in range(200):
            try:
                alone.export(tmp_path / "exported", dtype="f32", overwrite=True)
            except meron.StateError:
                continue
            seen.append(meron.open_checkpoint(tmp_path / "exported").read("w"))
            break
    finally:
        stop.set()
        writer.join()
    assert all((each == each[0]).all() for each in seen)


def test_nothing_is_saved_within_an_update(alone: meron.Context, tmp_path: Path) -> None:
    param, optimizer = make(alone)
    with alone.update(optimizer.units) as update:
        update.view(param)[:] = 1
        for call in ("save", "export"):
            with pytest.raises(meron.StateError, match="'u'"):
                write_to(alone, call, tmp_path, optimizer)
