# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from conftest import run_ranks

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
            unit.reduce({param: grad[ctx.rank]}).wait()
            optimizer.step()
        assert optimizer.steps == 3
        norm = np.linalg.norm(grads[-1].mean(0).astype(np.float64))
        np.testing.assert_allclose(optimizer.norm, norm, rtol=1e-6)
        with unit.gather() as full:
            np.testing.assert_allclose(full[param], end, rtol=2e-5, atol=2e-6)

    run_ranks(2, body, plan=plan)


def test_bf16_has_an_f32_master(alone: meron.Context) -> None:
    param = alone.param("w", (64,), "bf16")
    unit = alone.unit("u", [param])
    optimizer = alone.adamw([unit], lr=1e-4, weight_decay=0)
    exact = np.linspace(1, 2, 64, dtype=np.float32)
    with alone.update([unit]) as update:
        update.write(param, exact)
    np.testing.assert_array_equal(optimizer.state(param, "master"), exact)
    for _ in range(3):
        unit.reduce({param: np.ones(64)}).wait()
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
    unit.reduce({param: np.ones(8)}).wait()
    optimizer.step()
    with pytest.raises(ValueError, match="read-only"):
        moment[0] = 2
    assert repr(optimizer) == "<meron.Optimizer of 1 units>"


def test_clipping() -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (100,))
        unit = ctx.unit("u", [param])
        optimizer = ctx.adamw([unit], max_norm=1.0)
        unit.reduce({param: np.full(100, 3.0)}).wait()
        optimizer.step()
        assert optimizer.norm == 30.0
        np.testing.assert_allclose(optimizer.state(param, "exp_avg"), 0.1 * 3 / 30, rtol=1e-6)

    run_ranks(2, body)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_bad_gradient_changes_nothing_on_any_rank(poison: float) -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (100,))
        unit = ctx.unit("u", [param])
        optimizer = ctx.adamw([unit])
        grad = np.ones(100, np.float32)
        if ctx.rank == 1:
            grad[99] = poison
        unit.reduce({param: grad}).wait()
        with pytest.raises(meron.NonFiniteError) as caught:
            optimizer.step()
        assert isinstance(caught.value, ArithmeticError)
        assert optimizer.steps == 0
        assert not unit.info().reduced
        unit.reduce({param: np.ones(100)}).wait()
        optimizer.step()
        assert optimizer.steps == 1

    run_ranks(2, body)


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
    unit.reduce().wait()
    with unit.gather(), pytest.raises(meron.StateError, match="u"):
        optimizer.step()
    future = optimizer.step_begin()
    assert future.wait()
    assert future.done()
