# SPDX-License-Identifier: Apache-2.0
"""Steps keep the values, states and counts of params that they skip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

import meron

SIZES = {"w": 9000, "b": 7, "s": 40}
# The params that each step skips.
STEPS: list[set[str]] = [{"b"}, {"b", "s"}, set(), {"w"}, set(), set()]
COUNTS = {"w": 5, "b": 4, "s": 5}
RULES: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1},
    "adagrad": {"lr": 0.05, "weight_decay": 0.1},
    "lion": {"lr": 0.05, "weight_decay": 0.1},
    "sgd": {"lr": 0.05, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1},
}
NVME = {"path": ".", "block": 4096, "depth": 2}
PLANS: dict[str, Any] = {
    "zero0": "zero0",
    "zero1": "zero1",
    "zero3": "zero3",
    "states on nvme": {
        "preset": "zero3",
        "optimizer": {"tier": "nvme", "sub_group": 4096, "buffers": 2},
        "nvme": NVME,
    },
    "params and states on nvme": {
        "preset": "zero3",
        "param": {"tier": "nvme"},
        "optimizer": {"tier": "nvme", "sub_group": 4096, "buffers": 2},
        "nvme": NVME,
    },
    "on a device": {
        "preset": "zero3",
        **{entry: {"tier": "device"} for entry in ("param", "gradient", "optimizer")},
    },
}


def part_of(ctx: meron.Context, optimizer: meron.Optimizer, param: meron.Param) -> list[np.ndarray]:
    """Copies of this rank's values and states of a param."""
    names = ["master", "exp_avg", "exp_avg_sq"]
    found = []
    for name in names:
        try:
            found.append(optimizer.read_state(param, name))
        except meron.ArgumentError:  # the rule has no such state
            continue
    assert len(found) == 1 + optimizer.states
    return found


def assert_equal(ours: list[np.ndarray], theirs: list[np.ndarray], what: str) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=what)


def whole(unit: meron.Unit, param: meron.Param) -> np.ndarray:
    with unit.gather() as full:
        return meron.to_float32(full[param]).copy()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("plan", PLANS)
def test_equals_an_optimizer_for_each_param(
    plan: str, rule: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def body(ctx: meron.Context) -> None:
        generator = np.random.default_rng(7)
        joint = {name: ctx.param(name, (size,), dtype) for name, size in SIZES.items()}
        alone = {name: ctx.param(f"{name} alone", (size,), dtype) for name, size in SIZES.items()}
        unit = ctx.unit("joint", list(joint.values()))
        units = {name: ctx.unit(f"{name} alone", [param]) for name, param in alone.items()}
        with ctx.update([unit, *units.values()]) as update:
            for name, size in SIZES.items():
                values = generator.normal(size=size).astype(np.float32)
                update.write(joint[name], values)
                update.write(alone[name], values)
        make = getattr(ctx, rule)
        optimizer = make([unit], **RULES[rule])
        optimizers = {name: make([units[name]], **RULES[rule]) for name in SIZES}
        for skipped in STEPS:
            grads = {n: generator.normal(size=(2, s)).astype(np.float32) for n, s in SIZES.items()}
            optimizer.skip([joint[name] for name in skipped])
            unit.reduce({joint[name]: grad[ctx.rank] for name, grad in grads.items()})
            optimizer.step()
            for name in SIZES.keys() - skipped:
                units[name].reduce({alone[name]: grads[name][ctx.rank]})
                optimizers[name].step()
            for name in SIZES:
                ours = whole(unit, joint[name])
                np.testing.assert_array_equal(ours, whole(units[name], alone[name]), err_msg=name)
        counts = {name: optimizer.param_steps(param) for name, param in joint.items()}
        assert counts == COUNTS and optimizer.steps == len(STEPS)
        if plan == "zero0":  # elsewhere the ranks own other parts of the two units
            for name in SIZES:
                ours = part_of(ctx, optimizer, joint[name])
                assert_equal(ours, part_of(ctx, optimizers[name], alone[name]), name)

    options = {"device": "emulated"} if plan == "on a device" else {}
    ranks.threads(2, body, plan=PLANS[plan], **options)


@pytest.mark.parametrize("states", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_keeps_the_bits_of_what_is_skipped(states: str, dtype: str) -> None:
    plan = {"preset": "zero3", "optimizer": {"dtype": states}}

    def body(ctx: meron.Context) -> None:
        # Blocks of 8-bit states have 2,048 elements at most: each param has blocks of its own.
        params = {name: ctx.param(name, (32768,), dtype) for name in ("moves", "stays")}
        unit = ctx.unit("u", list(params.values()))
        optimizer = ctx.adamw([unit], lr=0.1)
        generator = np.random.default_rng(3)

        def step() -> None:
            unit.reduce({param: generator.normal(size=32768) for param in params.values()})
            optimizer.step()

        step()
        before = {name: part_of(ctx, optimizer, param) for name, param in params.items()}
        values = {name: whole(unit, param) for name, param in params.items()}
        optimizer.skip([params["stays"]])
        for _ in range(3):
            step()
        assert_equal(part_of(ctx, optimizer, params["stays"]), before["stays"], "stays")
        np.testing.assert_array_equal(whole(unit, params["stays"]), values["stays"])
        if len(params["moves"].shard_range):
            moved = part_of(ctx, optimizer, params["moves"])
            assert all(
                (one != other).any() for one, other in zip(moved, before["moves"], strict=True)
            )

    ranks.threads(2, body, plan=plan)


def test_states_that_begin_anew_get_the_first_bias_correction(alone: meron.Context) -> None:
    params = [alone.param(name, (8,)) for name in "ab"]
    unit = alone.unit("u", params)
    optimizer = alone.adam([unit], lr=0.5, eps=1e-12)
    for _ in range(500):
        unit.reduce({param: np.ones(8) for param in params})
        optimizer.step()
    before = whole(unit, params[1])
    for name in ("exp_avg", "exp_avg_sq"):
        optimizer.write_state(params[1], name, np.zeros(8))
    optimizer.set_param_steps(params[1], 0)
    unit.reduce({params[0]: np.ones(8), params[1]: np.full(8, 5.0)})
    optimizer.step()
    np.testing.assert_allclose(before - whole(unit, params[1]), 0.5, rtol=1e-5)  # lr, as any first
    assert (optimizer.param_steps(params[0]), optimizer.param_steps(params[1])) == (501, 1)


def test_rejects_what_it_cannot_skip(alone: meron.Context) -> None:
    param, frozen = alone.param("w", (8,)), alone.param("f", (8,), frozen=True)
    unit = alone.unit("u", [param, frozen])
    other = alone.param("other", (3,))
    alone.unit("elsewhere", [other])
    optimizer = alone.adamw([unit])
    for wrong in (frozen, other):
        with pytest.raises(meron.ArgumentError, match=f"'{wrong.name}' is not trained"):
            optimizer.skip([param, wrong])
        with pytest.raises(meron.ArgumentError, match=f"'{wrong.name}' is not trained"):
            optimizer.param_steps(wrong)
        with pytest.raises(meron.ArgumentError, match=f"'{wrong.name}' is not trained"):
            optimizer.set_param_steps(wrong, 0)
    for number in (-1, (1 << 53) + 1, 1 << 64):
        with pytest.raises(meron.ArgumentError, match=f"steps is {number}"):
            optimizer.set_param_steps(param, number)
    unit.reduce({param: np.ones(8)})
    optimizer.step()
    assert optimizer.param_steps(param) == 1  # the refused call has skipped nothing


def trained(ctx: meron.Context) -> tuple[meron.Unit, list[meron.Param], meron.Optimizer]:
    params = [ctx.param(name, (9,)) for name in "abc"]
    unit = ctx.unit("u", params)
    return unit, params, ctx.adamw([unit], lr=0.1)


def take_step(unit: meron.Unit, params: list[meron.Param], optimizer: meron.Optimizer) -> None:
    unit.reduce({param: np.arange(9) - 3.0 for param in params})
    optimizer.step()


def test_a_checkpoint_keeps_the_counts(tmp_path: Path) -> None:
    def save(ctx: meron.Context) -> np.ndarray:
        unit, params, optimizer = trained(ctx)
        optimizer.skip(params[1:])
        take_step(unit, params, optimizer)
        optimizer.skip(params[2:])
        take_step(unit, params, optimizer)
        optimizer.skip([])
        ctx.save(tmp_path, "late", optimizers=[optimizer])
        take_step(unit, params, optimizer)
        return np.concatenate([whole(unit, param) for param in params])

    def load(ctx: meron.Context) -> np.ndarray:
        unit, params, optimizer = trained(ctx)
        ctx.load(tmp_path, "late", optimizers=[optimizer])
        assert [optimizer.param_steps(param) for param in params] == [2, 1, 0]
        take_step(unit, params, optimizer)
        return np.concatenate([whole(unit, param) for param in params])

    expected = ranks.threads(2, save, plan="zero3")[0]
    manifest = json.loads((tmp_path / "late" / "meron.json").read_text())
    assert manifest["version"] == 2
    assert manifest["optimizers"][0]["param_steps"] == {"b": 1, "c": 0}
    for count, plan in ((1, "zero3"), (3, "zero1")):
        np.testing.assert_array_equal(ranks.threads(count, load, plan=plan)[0], expected)


def test_a_checkpoint_without_counts_has_one_for_all(tmp_path: Path, alone: meron.Context) -> None:
    unit, params, optimizer = trained(alone)
    take_step(unit, params, optimizer)
    alone.save(tmp_path, "even", optimizers=[optimizer])
    manifest = json.loads((tmp_path / "even" / "meron.json").read_text())
    assert manifest["version"] == 1 and "param_steps" not in manifest["optimizers"][0]
    optimizer.skip(params[:1])
    take_step(unit, params, optimizer)
    alone.load(tmp_path, "even", optimizers=[optimizer])
    assert [optimizer.param_steps(param) for param in params] == [1, 1, 1]


def test_a_lenient_load_keeps_the_counts_of_other_params(
    tmp_path: Path, alone: meron.Context
) -> None:
    unit, params, optimizer = trained(alone)
    for _ in range(3):
        take_step(unit, params, optimizer)
    alone.save(tmp_path, "three", optimizers=[optimizer])
    with meron.open(0, 1, "self") as ctx:
        renamed = [ctx.param(name, (9,)) for name in ("a", "x", "c")]
        other = ctx.unit("u", renamed)
        fresh = ctx.adamw([other], lr=0.1)
        ctx.load(tmp_path, "three", optimizers=[fresh], lenient=True)
        assert [fresh.param_steps(param) for param in renamed] == [3, 0, 3]
        assert fresh.steps == 3
