# SPDX-License-Identifier: Apache-2.0
"""Saves that continue during training have the states of their call, and disturb nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
from conftest import DEADLINE

import meron

ROWS = 3 * 512  # of each of the units: some megabytes, so that a save takes longer than a step
PLANS: list[tuple[str, int]] = [
    ("zero0", 2),
    ("zero1", 2),
    ("zero2", 3),
    ("zero3", 3),
    ("mics(2)", 4),
    ("zeropp", 2),
]


class Model:
    """Three units of a big param each, and an optimizer."""

    def __init__(self, ctx: meron.Context, dtype: str = "f32") -> None:
        self.ctx = ctx
        self.params = [ctx.param(f"w{i}", (ROWS, 512), dtype) for i in range(3)]
        self.units = [ctx.unit(f"u{i}", [param]) for i, param in enumerate(self.params)]
        generator = np.random.default_rng(7)
        for unit, param in zip(self.units, self.params, strict=True):
            with ctx.update([unit]) as update:
                update.write(param, generator.normal(size=param.shape).astype(np.float32))
        self.optimizer = ctx.adamw(self.units, lr=0.01)
        self.generator = np.random.default_rng(ctx.rank)

    def step(self) -> None:
        gradient = self.generator.normal(size=(ROWS, 512)).astype(np.float32)
        for unit, param in zip(self.units, self.params, strict=True):
            with unit.gather() as full:
                float(meron.to_float32(full[param]).reshape(-1)[0])
            unit.reduce({param: gradient})
        self.optimizer.step()


def content(path: Path) -> dict[tuple[str, str], np.ndarray[Any, Any]]:
    with meron.open_checkpoint(path) as checkpoint:
        return {key: checkpoint.read(key[1], key[0]) for key in checkpoint.tensors}


def assert_equal(one: Path, other: Path) -> None:
    first, second = content(one), content(other)
    assert first.keys() == second.keys()
    for key, tensor in first.items():
        np.testing.assert_array_equal(tensor, second[key], err_msg=str(key))


@pytest.mark.parametrize(("plan", "count"), PLANS)
def test_a_save_has_the_states_of_its_call(tmp_path: Path, plan: str, count: int) -> None:
    def body(ctx: meron.Context) -> None:
        model = Model(ctx)
        model.step()
        ctx.save(tmp_path, "still", [model.optimizer], step=1)
        saving = ctx.save_begin(tmp_path, "moving", [model.optimizer], step=1)
        for _ in range(2):
            model.step()
        saving.wait()
        progress = ctx.save_progress()
        assert not progress.saving
        assert progress.total == progress.copied == progress.written > 0
        ctx.save(tmp_path, "after", [model.optimizer], step=3)

    ranks.threads(count, body, plan=plan)
    assert_equal(tmp_path / "still", tmp_path / "moving")
    changed = content(tmp_path / "after")
    assert (changed["values", "w0"] != content(tmp_path / "still")["values", "w0"]).any()
    with meron.open_checkpoint(tmp_path / "moving") as checkpoint:
        assert checkpoint.manifest["optimizers"][0]["steps"] == 1


def test_a_save_harms_no_training(tmp_path: Path) -> None:
    """Steps have the same bits as those of a run without saves."""

    def body(ctx: meron.Context, saves: bool) -> list[np.ndarray[Any, Any]]:
        model = Model(ctx, "bf16")
        for number in range(4):
            if saves and number in (1, 2):
                ctx.save_begin(tmp_path, f"s{number}", [model.optimizer], step=number)
            model.step()
        ctx.wait_copied()
        return [model.optimizer.state(param, "master").copy() for param in model.params]

    quiet = ranks.threads(2, lambda ctx: body(ctx, False), plan="zero3")
    saved = ranks.threads(2, lambda ctx: body(ctx, True), plan="zero3")
    for one, other in zip(quiet, saved, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == ["s1", "s2"]


def test_tensors_may_change_when_they_are_copied(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        model = Model(ctx)
        own = np.full(1 << 20, ctx.rank + 1, np.float32)
        tensor = meron.CheckpointTensor("own", "F32", own.shape, own, kind=f"extra.{ctx.rank}")
        saving = ctx.save_begin(tmp_path, "one", [model.optimizer], tensors=[tensor])
        assert ctx.wait_copied()
        own[:] = -1
        saving.wait()

    ranks.threads(2, body)
    found = content(tmp_path / "one")
    for rank in range(2):
        assert (found[f"extra.{rank}", "own"] == rank + 1).all()


def test_failures_come_from_the_future_on_every_rank(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        model = Model(ctx)
        ctx.save(tmp_path, "one", [model.optimizer])
        saving = ctx.save_begin(tmp_path, "one", [model.optimizer])
        model.step()
        with pytest.raises(meron.DuplicateError, match="one"):
            saving.wait()
        model.step()
        ctx.save(tmp_path, "two", [model.optimizer], step=2)

    ranks.threads(2, body)
    assert content(tmp_path / "two")


def test_the_next_save_raises_an_unreported_failure(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        model = Model(ctx)
        ctx.save(tmp_path, "one", [model.optimizer])
        ctx.save_begin(tmp_path, "one", [model.optimizer])  # which fails, and is forgotten
        model.step()
        with pytest.raises(meron.DuplicateError, match="one"):
            ctx.save(tmp_path, "two", [model.optimizer], step=1)
        ctx.save(tmp_path, "two", [model.optimizer], step=1)

    ranks.threads(2, body)
    assert content(tmp_path / "two")


def test_closing_ends_a_save(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        model = Model(ctx)
        ctx.save_begin(tmp_path, "last", [model.optimizer], step=5)

    ranks.threads(2, body)
    with meron.open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.step == 5
    assert not [each.name for each in tmp_path.iterdir() if each.name.startswith(".saving-last")]


def test_changes_of_states_wait_until_they_are_copied(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        model = Model(ctx)
        model.step()
        ctx.save(tmp_path, "still", [model.optimizer])
        saving = ctx.save_begin(tmp_path, "moving", [model.optimizer])
        param = model.params[2]
        part = model.optimizer.state(param, "exp_avg").copy()
        model.optimizer.write_state(param, "exp_avg", part + 1)
        with ctx.update([model.units[1]]) as update:
            update.write(model.params[1], np.zeros((ROWS, 512), np.float32))
        saving.wait()

    ranks.threads(2, body, plan="zero3")
    assert_equal(tmp_path / "still", tmp_path / "moving")


def test_a_load_waits_for_the_save(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> np.ndarray[Any, Any]:
        model = Model(ctx)
        model.step()
        before = model.optimizer.state(model.params[0], "exp_avg").copy()
        ctx.save_begin(tmp_path, "one", [model.optimizer], step=1)
        model.step()
        with ctx.load(tmp_path, "one", [model.optimizer]) as loaded:
            assert loaded.step == 1
        assert model.optimizer.steps == 1
        np.testing.assert_array_equal(model.optimizer.state(model.params[0], "exp_avg"), before)
        return before

    ranks.threads(2, body, plan="zero3", timeout=DEADLINE)


def test_saves_one_after_the_other_keep_the_newest(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        model = Model(ctx)
        for step in range(1, 5):
            model.step()
            ctx.save_begin(tmp_path, f"step-{step}", [model.optimizer], step=step, keep=2)
        ctx.save_begin(tmp_path, "step-5", [model.optimizer], step=5, keep=2).wait()

    ranks.threads(2, body)
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == ["step-4", "step-5"]
