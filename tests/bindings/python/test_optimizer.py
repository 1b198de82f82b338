# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

import meron

PLANS = ["zero0", "zero1", "zero2", "zero3"]


def adamw(
    value: np.ndarray, grads: list[np.ndarray], lr: float, betas: tuple[float, float], decay: float
) -> np.ndarray:
    """The update rule in float64, after arXiv 1711.05101."""
    value = value.astype(np.float64)
    first = np.zeros_like(value)
    second = np.zeros_like(value)
    for step, grad in enumerate(grads, 1):
        first = betas[0] * first + (1 - betas[0]) * grad
        second = betas[1] * second + (1 - betas[1]) * grad**2
        update = first / (1 - betas[0] ** step)
        update /= np.sqrt(second / (1 - betas[1] ** step)) + 1e-8
        value -= lr * (update + decay * value)
    return value


@pytest.mark.parametrize("plan", PLANS)
def test_steps_follow_the_rule(plan: str) -> None:
    generator = np.random.default_rng(1)
    start = generator.normal(size=(40, 9)).astype(np.float32)
    grads = [generator.normal(size=(2, 40, 9)).astype(np.float32) for _ in range(3)]
    end = adamw(start, [g.mean(0) for g in grads], 0.05, (0.8, 0.95), 0.1)

    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", start.shape)
        unit = ctx.unit("u", [param])
        with ctx.update([unit]) as update:
            update.write(param, start)
        optimizer = ctx.adamw([unit], lr=0.05, betas=(0.8, 0.95), weight_decay=0.1)
        for grad in grads:
            unit.reduce({param: grad[ctx.rank]})
            optimizer.step()
        assert optimizer.steps == 3
        norm = np.linalg.norm(grads[-1].mean(0).astype(np.float64))
        np.testing.assert_allclose(optimizer.norm, norm, rtol=1e-6)
        with unit.gather() as full:
            np.testing.assert_allclose(full[param], end, rtol=2e-5, atol=2e-6)

    ranks.threads(2, body, plan=plan)


def test_bf16_has_an_f32_master(alone: meron.Context) -> None:
    param = alone.param("w", (64,), "bf16")
    unit = alone.unit("u", [param])
    optimizer = alone.adamw([unit], lr=1e-4, weight_decay=0)
    exact = np.linspace(1, 2, 64, dtype=np.float32)
    with alone.update([unit]) as update:
        update.write(param, exact)
    np.testing.assert_array_equal(optimizer.state(param, "master"), exact)
    for _ in range(3):
        unit.reduce({param: np.ones(64)})
        optimizer.step()
    master = optimizer.state(param, "master")
    np.testing.assert_allclose(master, exact - 3e-4, rtol=1e-6)
    with unit.gather() as full:
        rounded = meron.to_float32(meron.from_float32(master, "bf16"))
        np.testing.assert_array_equal(meron.to_float32(full[param]), rounded)


def test_learning_rate_and_states(alone: meron.Context) -> None:
    param = alone.param("w", (8,))
    unit = alone.unit("u", [param])
    optimizer = alone.adamw([unit], lr=0.25)
    assert (optimizer.lr, optimizer.steps, optimizer.norm) == (0.25, 0, 0.0)
    optimizer.lr = 0.5
    assert optimizer.lr == 0.5
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(meron.ArgumentError):
            optimizer.lr = wrong
    optimizer.steps = 7
    assert optimizer.steps == 7
    for wrong_steps in (-1, (1 << 53) + 1, 1 << 64):
        with pytest.raises(meron.ArgumentError, match=f"steps is {wrong_steps}"):
            optimizer.steps = wrong_steps
    optimizer.steps = 0
    moment = optimizer.state(param, "exp_avg")
    assert moment.flags.writeable
    moment[:] = 1
    assert optimizer.state(param, "exp_avg").ctypes.data == moment.ctypes.data
    assert not optimizer.state(param, "master").flags.writeable
    assert (optimizer.state(param, "exp_avg_sq") == 0).all()
    with pytest.raises(meron.ArgumentError, match="momentum"):
        optimizer.state(param, "momentum")
    other = alone.param("other", (3,))
    with pytest.raises(meron.ArgumentError, match="other"):
        optimizer.state(other, "exp_avg")
    unit.reduce({param: np.ones(8)})
    optimizer.step()
    with pytest.raises(ValueError, match="read-only"):
        moment[0] = 2
    assert repr(optimizer) == "<meron.Optimizer of 1 units>"


def test_clipping() -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (100,))
        unit = ctx.unit("u", [param])
        optimizer = ctx.adamw([unit], max_norm=1.0)
        unit.reduce({param: np.full(100, 3.0)})
        optimizer.step()
        assert optimizer.norm == 30.0
        np.testing.assert_allclose(optimizer.state(param, "exp_avg"), 0.1 * 3 / 30, rtol=1e-6)

    ranks.threads(2, body)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_bad_gradient_changes_nothing_on_any_rank(poison: float) -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (100,))
        unit = ctx.unit("u", [param])
        optimizer = ctx.adamw([unit])
        grad = np.ones(100, np.float32)
        if ctx.rank == 1:
            grad[99] = poison
        unit.reduce({param: grad})
        with pytest.raises(meron.NonFiniteError) as caught:
            optimizer.step()
        assert isinstance(caught.value, ArithmeticError)
        assert (
            f"norm is {poison}: the gradient is not finite: 'w' of unit 'u', element 99, "
            in str(caught.value)
        )
        assert "in the shard of rank 0" in str(caught.value)  # of the reduced gradient
        assert optimizer.steps == 0
        assert not unit.info().reduced
        unit.reduce({param: np.ones(100)})
        optimizer.step()
        assert optimizer.steps == 1

    ranks.threads(2, body)


def test_states_and_arguments(alone: meron.Context) -> None:
    param = alone.param("w", (8,))
    frozen = alone.param("f", (8,), frozen=True)
    unit, still = alone.unit("u", [param]), alone.unit("still", [frozen])
    for wrong in (
        {"lr": -1.0},
        {"betas": (1.0, 0.9)},
        {"betas": (0.9, -0.1)},
        {"eps": 0.0},
        {"weight_decay": -1.0},
        {"max_norm": -1.0},
        {"lr": float("nan")},
    ):
        with pytest.raises(meron.ArgumentError):
            alone.adamw([unit], **wrong)  # type: ignore[arg-type]
    with pytest.raises(meron.ArgumentError):
        alone.adamw([still])
    with pytest.raises(meron.ArgumentError):
        alone.adamw([])
    with pytest.raises(meron.DuplicateError):
        alone.adamw([unit, unit])
    optimizer = alone.adamw([unit, still])
    with pytest.raises(meron.DuplicateError, match="u"):
        alone.adamw([unit])
    with pytest.raises(meron.StateError, match="u"):
        optimizer.step()
    unit.reduce()
    with unit.gather(), pytest.raises(meron.StateError, match="u"):
        optimizer.step()
    future = optimizer.step_begin()
    assert future.wait()
    assert future.done()


Rule = Callable[[meron.Context, meron.Unit], meron.Optimizer]


def of(name: str, **options: Any) -> Rule:
    return lambda ctx, unit: getattr(ctx, name)([unit], **options)


def written(ctx: meron.Context, name: str, values: np.ndarray) -> tuple[meron.Param, meron.Unit]:
    param = ctx.param(name, values.shape)
    unit = ctx.unit(name, [param])
    with ctx.update([unit]) as update:
        update.write(param, values)
    return param, unit


# Hyperparameters with exact results, for a value of 2 and a gradient of 2.
RULES = {
    "adam": (of("adam", lr=0.25, betas=(0.5, 0.75), eps=2.0), 1.875, {"exp_avg": 1.0}),
    "adagrad": (of("adagrad", lr=0.5, eps=1.0, weight_decay=0.5), 1.625, {"exp_avg_sq": 9.0}),
    "lion": (of("lion", lr=0.25, betas=(0.5, 0.75), weight_decay=0.5), 1.5, {"exp_avg": 0.5}),
    "sgd": (of("sgd", lr=0.5), 1.0, {}),
    "momentum": (of("sgd", lr=0.5, momentum=0.5, dampening=0.5), 1.0, {"exp_avg": 2.0}),
    "nesterov": (of("sgd", lr=0.25, momentum=0.5, nesterov=True), 1.25, {"exp_avg": 2.0}),
}


@pytest.mark.parametrize("rule", RULES)
def test_rules(alone: meron.Context, rule: str) -> None:
    make, value, states = RULES[rule]
    param, unit = written(alone, "w", np.full(300, 2.0))
    optimizer = make(alone, unit)
    unit.reduce({param: np.full(300, 2.0)})
    optimizer.step()
    with unit.gather() as full:
        np.testing.assert_array_equal(full[param], value)
    assert optimizer.states == len(states) + (rule == "adam")
    for name, expected in states.items():
        np.testing.assert_array_equal(optimizer.read_state(param, name), expected)
    for name in {"exp_avg", "exp_avg_sq"} - states.keys() - {"exp_avg_sq" * (rule == "adam")}:
        with pytest.raises(meron.ArgumentError):
            optimizer.read_state(param, name)
    np.testing.assert_array_equal(optimizer.read_state(param, "master"), value)


DEFAULTS = {
    "adamw": (1e-3, (0.9, 0.999), 1e-8, 0.01),
    "adam": (1e-3, (0.9, 0.999), 1e-8, 0.0),
    "adagrad": (1e-2, (0.9, 0.999), 1e-10, 0.0),
    "lion": (1e-4, (0.9, 0.99), 1e-8, 0.0),
    "sgd": (1e-3, (0.0, 0.999), 1e-8, 0.0),
}


@pytest.mark.parametrize("rule", DEFAULTS)
def test_defaults(alone: meron.Context, rule: str) -> None:
    _, unit = written(alone, "w", np.zeros(3))
    optimizer = getattr(alone, rule)([unit])
    assert optimizer.group(0) == meron.OptimizerGroup(*DEFAULTS[rule])
    assert (optimizer.groups, optimizer.nvme_bytes) == (1, 0)


def test_param_groups(alone: meron.Context) -> None:
    weight, bias, scale = alone.param("w", (8,)), alone.param("b", (3,)), alone.param("s", ())
    unit = alone.unit("u", [weight, bias, scale])
    optimizer = alone.adamw([unit], lr=0.5, betas=(0.5, 0.75), weight_decay=0.25)
    assert optimizer.add_group([bias], weight_decay=0) == 1
    assert optimizer.add_group(iter([scale]), lr=0.125, betas=(0.25, 0.5), eps=1.0) == 2
    assert optimizer.groups == 3
    assert optimizer.group(1) == meron.OptimizerGroup(0.5, (0.5, 0.75), 1e-8, 0.0)
    assert optimizer.group(2) == meron.OptimizerGroup(0.125, (0.25, 0.5), 1.0, 0.25)
    optimizer.set_group(1, lr=0.0)
    optimizer.set_group(0, weight_decay=0.0, betas=(0.0, 0.0))
    assert optimizer.group(1) == meron.OptimizerGroup(0.0, (0.5, 0.75), 1e-8, 0.0)
    assert optimizer.group(0) == meron.OptimizerGroup(0.5, (0.0, 0.0), 1e-8, 0.0)
    optimizer.lr = 1.0
    assert (optimizer.group(0).lr, optimizer.group(1).lr) == (1.0, 0.0)
    with pytest.raises(meron.DuplicateError, match="b"):
        optimizer.add_group([bias])
    with pytest.raises(meron.ArgumentError, match="learning_rate"):
        optimizer.add_group([weight], lr=-1)
    with pytest.raises(TypeError):
        optimizer.add_group([unit])  # type: ignore[list-item]
    for number in (-1, 3, 1 << 32):
        with pytest.raises(meron.ArgumentError, match=str(number)):
            optimizer.group(number)
        with pytest.raises(meron.ArgumentError, match=str(number)):
            optimizer.set_group(number, lr=1)
    other, _ = written(alone, "other", np.zeros(3))
    with pytest.raises(meron.ArgumentError, match="other"):
        optimizer.add_group([other])
    assert optimizer.groups == 3


def test_states_are_copied(alone: meron.Context) -> None:
    param, unit = written(alone, "w", np.ones((4, 2)))
    optimizer = alone.adamw([unit])
    copy = optimizer.read_state(param, "exp_avg")
    assert (copy.dtype, copy.shape, copy.flags.writeable) == (np.float32, (8,), True)
    copy[:] = 5
    assert (optimizer.read_state(param, "exp_avg") == 0).all()
    optimizer.write_state(param, "exp_avg", np.arange(16, dtype=np.float64)[::2])
    optimizer.write_state(param, "exp_avg_sq", [1, 2, 3, 4, 5, 6, 7, 8])
    np.testing.assert_array_equal(optimizer.state(param, "exp_avg"), np.arange(0, 16, 2))
    np.testing.assert_array_equal(optimizer.read_state(param, "exp_avg_sq"), np.arange(1, 9))
    with pytest.raises(meron.ArgumentError, match="9"):
        optimizer.write_state(param, "exp_avg", np.zeros(9))
    with pytest.raises(meron.ArgumentError, match="update"):
        optimizer.write_state(param, "master", np.zeros(8))
    for call in (optimizer.state, optimizer.read_state):
        with pytest.raises(meron.ArgumentError, match="momentum"):
            call(param, "momentum")
    with pytest.raises(meron.ArgumentError, match="momentum"):
        optimizer.write_state(param, "momentum", np.zeros(8))


NVME = {
    "preset": "zero3",
    "optimizer": {"tier": "nvme", "sub_group": 4096, "buffers": 2},
    "nvme": {"path": ".", "block": 4096, "depth": 2},
}


@pytest.fixture
def on_a_drive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of the tests' build, which is on a drive: /tmp need not be."""
    with tempfile.TemporaryDirectory(dir=".", prefix="states-") as folder:
        monkeypatch.chdir(folder)
        yield Path.cwd()
        monkeypatch.undo()


def test_states_on_nvme(on_a_drive: Path) -> None:
    with meron.open(0, 1, "self", NVME) as ctx:
        param, unit = written(ctx, "w", np.ones(20000))
        optimizer = ctx.lion([unit], lr=0.25, betas=(0.5, 0.75))
        before, plan = ctx.stats(), ctx.predict(gathers_per_micro_batch=1)
        assert optimizer.nvme_bytes == before.nvme_bytes == plan.nvme_bytes > 4 * 20000
        with pytest.raises(meron.UnsupportedError, match="w"):
            optimizer.state(param, "exp_avg")
        unit.reduce({param: np.full(20000, 2.0)})
        optimizer.step()
        after = ctx.stats()
        read = after.nvme_read_bytes - before.nvme_read_bytes
        written_bytes = after.nvme_written_bytes - before.nvme_written_bytes
        assert (read, written_bytes) == (plan.nvme_read_bytes, plan.nvme_written_bytes)
        assert read > 0
        np.testing.assert_array_equal(optimizer.read_state(param, "exp_avg"), 0.5)
        values = np.random.default_rng(1).standard_normal(20000).astype(np.float32)
        optimizer.write_state(param, "exp_avg", values)
        np.testing.assert_array_equal(optimizer.read_state(param, "exp_avg"), values)


def test_a_drive_that_gives_other_bytes_is_noticed(on_a_drive: Path) -> None:
    with meron.open(0, 1, "self", NVME) as ctx:
        param, unit = written(ctx, "w", np.ones(20000))
        optimizer = ctx.lion([unit])
        files = [
            name
            for name in Path("/proc/self/fd").iterdir()
            if name.exists() and os.readlink(name).startswith(str(on_a_drive))
        ]
        with files[0].open("r+b") as file:
            file.seek(4096)
            file.write(b"other bytes")
        with pytest.raises(meron.CorruptError) as caught:
            optimizer.read_state(param, "exp_avg")
        assert caught.value.name == "MERON_E_CORRUPT"
        assert isinstance(caught.value, OSError)


def test_states_of_a_rule_count_in_a_prediction() -> None:
    model = {"parameters": 1000, "layers": 1, "dtype": "f32"}
    plan = meron.Plan.preset("zero0")
    by_states = [
        plan.predict(model, 1, optimizer_states=states)["total"]["memory"]["host"]["moments"]
        for states in (0, 1, 2)
    ]
    assert by_states[0]["bytes"] == 0
    assert by_states[2]["bytes"] == 2 * by_states[1]["bytes"] > 0
    with pytest.raises(meron.ArgumentError):
        plan.predict(model, 1, optimizer_states=3)
