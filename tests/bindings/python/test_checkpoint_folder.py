# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a folder: listed, removed, of some units, cancelled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import meron


@pytest.fixture
def ctx() -> Iterator[meron.Context]:
    with meron.open(0, 1, "self") as context:
        yield context


def unit_of(ctx: meron.Context, name: str, value: float) -> tuple[meron.Param, meron.Unit]:
    param = ctx.param(f"{name}.w", (5,))
    unit = ctx.unit(name, [param])
    write(ctx, unit, param, value)
    return param, unit


def write(ctx: meron.Context, unit: meron.Unit, param: meron.Param, value: float) -> None:
    with ctx.update([unit]) as update:
        update.write(param, np.full(5, value, np.float32))


def value_of(unit: meron.Unit, param: meron.Param) -> float:
    with unit.gather() as full:
        return float(full[param][0])


def test_lists_complete_checkpoints_newest_first(ctx: meron.Context, tmp_path: Path) -> None:
    unit_of(ctx, "u", 1.0)
    ctx.save(tmp_path, "one", step=1)
    ctx.save(tmp_path, "two", step=2, values_only=True)
    ctx.save(tmp_path, "torn", step=3)
    next((tmp_path / "torn").glob("*.safetensors")).unlink()
    (tmp_path / "mine").mkdir()
    found = meron.list_checkpoints(tmp_path)
    assert [each["name"] for each in found] == ["two", "one"]
    assert [each["step"] for each in found] == [2, 1]
    assert [each["whole"] for each in found] == [False, True]
    files = sum(path.stat().st_size for path in (tmp_path / "one").glob("*.safetensors"))
    assert found[1]["bytes"] == files
    assert found[1]["world"] == 1
    assert found[1]["created"].startswith("20")
    with pytest.raises(meron.NotFoundError):
        meron.list_checkpoints(tmp_path / "none")


def test_removes_one_that_is_not_open(ctx: meron.Context, tmp_path: Path) -> None:
    unit_of(ctx, "u", 1.0)
    ctx.save(tmp_path, "one", step=1)
    ctx.save(tmp_path, "two", step=2)
    with meron.open_checkpoint(tmp_path, "two"), pytest.raises(meron.StateError, match="open"):
        meron.remove_checkpoint(tmp_path, "two")
    meron.remove_checkpoint(tmp_path, "two")
    assert [each["name"] for each in meron.list_checkpoints(tmp_path)] == ["one"]
    (tmp_path / "mine").mkdir()
    with pytest.raises(meron.ArgumentError, match="no checkpoint"):
        meron.remove_checkpoint(tmp_path, "mine")
    with pytest.raises(meron.NotFoundError):
        meron.remove_checkpoint(tmp_path, "two")


def test_saves_and_loads_some_units(ctx: meron.Context, tmp_path: Path) -> None:
    (a, u), (b, v) = unit_of(ctx, "u", 1.0), unit_of(ctx, "v", 2.0)
    ctx.save(tmp_path, "u", units=[u], step=1)
    ctx.save(tmp_path, "all", step=2)
    assert [each["whole"] for each in meron.list_checkpoints(tmp_path)] == [True, False]
    write(ctx, u, a, 3.0)
    write(ctx, v, b, 4.0)
    ctx.load(tmp_path, "all", units=[v]).release()
    assert (value_of(u, a), value_of(v, b)) == (3.0, 2.0)
    ctx.load(tmp_path, "u", units=[u]).release()
    assert (value_of(u, a), value_of(v, b)) == (1.0, 2.0)
    with pytest.raises(meron.ArgumentError, match=r"v\.w"):
        ctx.load(tmp_path, "u")
    for call in (lambda: ctx.save(tmp_path, "n", units=[]), lambda: ctx.load(tmp_path, units=[])):
        with pytest.raises(meron.ArgumentError, match="no units are given"):
            call()
    with pytest.raises(meron.DuplicateError, match="'u' is given twice"):
        ctx.save(tmp_path, "n", units=[u, u])


def test_a_unit_that_is_not_saved_may_be_updated_meanwhile(
    ctx: meron.Context, tmp_path: Path
) -> None:
    (_, u), (b, v) = unit_of(ctx, "u", 1.0), unit_of(ctx, "v", 2.0)
    with ctx.update([v]) as update:
        update.write(b, np.full(5, 7.0, np.float32))
        ctx.save(tmp_path, "u", units=[u])
        with pytest.raises(meron.StateError, match="v"):
            ctx.save(tmp_path, "all")


def test_a_cancelled_save_ends_as_such_or_well(ctx: meron.Context, tmp_path: Path) -> None:
    param = ctx.param("w", (1 << 20,))
    ctx.unit("u", [param])
    ctx.cancel_save()  # none is pending
    outcomes = set()
    for number in range(30):
        save = ctx.save_begin(tmp_path, f"save-{number}", step=number)
        time.sleep(number % 3 * 0.001)
        ctx.cancel_save()
        try:
            save.wait()
        except meron.CancelledError as error:
            assert "cancelled the save" in str(error)
            outcomes.add("cancelled")
        else:
            outcomes.add("saved")
        there = (tmp_path / f"save-{number}").exists()
        assert there == (f"save-{number}" in [e["name"] for e in meron.list_checkpoints(tmp_path)])
    assert "cancelled" in outcomes
    assert not list(tmp_path.glob(".saving-*"))
    ctx.save(tmp_path, "last", step=99)
