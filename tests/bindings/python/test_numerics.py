# SPDX-License-Identifier: Apache-2.0
"""Numbers at the ends of their ranges, and programs that change the floating-point mode."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

import meron

STATES = ("f32", "bf16", "int8")
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="sets the register of x86-64")


def plan_of(states: str, preset: str = "zero1") -> dict[str, Any]:
    return {"preset": preset, "optimizer": {"dtype": states}}


def trained(ctx: meron.Context, value: Any, dtype: str = "f32") -> tuple[Any, Any]:
    """A param 'w' with this value, in a unit 'u'."""
    param = ctx.param("w", value.shape, dtype)
    unit = ctx.unit("u", [param])
    with ctx.update([unit]) as update:
        update.write(param, value)
    return unit, param


def values_of(unit: Any, param: Any) -> Any:
    with unit.gather() as full:
        return np.array(full[param])


def step(unit: Any, param: Any, optimizer: Any, gradient: Any) -> None:
    unit.reduce({param: gradient})
    optimizer.step()


@pytest.mark.parametrize("states", STATES)
@pytest.mark.parametrize("rule", ["adam", "adamw"])
def test_gradients_that_torch_takes_leave_a_finite_second_moment(rule: str, states: str) -> None:
    """PyTorch computes (g * (1 - beta2)) * g, which is finite up to 5.8e20."""
    for gradient in (1e18, 1.9e19, 1e20, 5e20):
        with meron.open(plan=plan_of(states)) as ctx:
            unit, param = trained(ctx, np.ones(300, np.float32))
            optimizer = getattr(ctx, rule)([unit], lr=1e-3)
            step(unit, param, optimizer, np.full(300, gradient, np.float32))
            assert np.isfinite(optimizer.read_state(param, "exp_avg_sq")).all(), gradient
            assert (values_of(unit, param) < 0.9995).all(), gradient


@pytest.mark.parametrize("states", STATES)
def test_refuses_a_step_that_makes_a_second_moment_infinite(states: str) -> None:
    def body(ctx: meron.Context) -> None:
        unit, param = trained(ctx, np.ones(600, np.float32))
        optimizer = ctx.adamw([unit], lr=1e-3)
        step(unit, param, optimizer, np.full(600, 0.1, np.float32))
        before = values_of(unit, param)
        moments = [optimizer.read_state(param, name) for name in ("exp_avg", "exp_avg_sq")]
        gradient = np.full(600, 0.1, np.float32)
        gradient[580] = 6e20
        unit.reduce({param: gradient})
        with pytest.raises(meron.NonFiniteError) as caught:
            optimizer.step()
        assert (
            "exp_avg_sq infinite or NaN: 'w' of unit 'u', element 580, in the shard of rank 1"
            in str(caught.value)
        )
        assert optimizer.steps == 1 and not unit.info().reduced
        assert (values_of(unit, param) == before).all()
        for name, moment in zip(("exp_avg", "exp_avg_sq"), moments, strict=True):
            assert (optimizer.read_state(param, name) == moment).all(), name
        step(unit, param, optimizer, np.full(600, 0.1, np.float32))
        assert optimizer.steps == 2
        assert np.isfinite(values_of(unit, param)).all()

    ranks.threads(2, body, plan=plan_of(states))


@pytest.mark.parametrize("states", STATES)
def test_refuses_the_step_at_which_many_large_squares_overflow(states: str) -> None:
    with meron.open(plan=plan_of(states)) as ctx:
        unit, param = trained(ctx, np.ones(300, np.float32))
        optimizer = ctx.adagrad([unit], lr=1e-3)
        gradient = np.full(300, 1.0, np.float32)
        gradient[17] = 6e18
        with pytest.raises(meron.NonFiniteError, match="element 17"):
            for _ in range(30):
                step(unit, param, optimizer, gradient)
        assert 6 < optimizer.steps < 12
        assert np.isfinite(optimizer.read_state(param, "exp_avg_sq")).all()
        assert np.isfinite(values_of(unit, param)).all()


def test_clipping_makes_large_gradients_ordinary() -> None:
    with meron.open(plan=plan_of("int8")) as ctx:
        unit, param = trained(ctx, np.ones(300, np.float32))
        optimizer = ctx.adamw([unit], lr=1e-3, max_norm=1.0)
        step(unit, param, optimizer, np.full(300, 1e30, np.float32))
        assert optimizer.steps == 1
        assert np.isfinite(values_of(unit, param)).all()


@pytest.mark.parametrize("preset", ["zero1", "zero3"])
def test_refuses_a_step_whose_value_f16_cannot_hold(preset: str) -> None:
    def body(ctx: meron.Context) -> None:
        value = np.zeros(400, np.float16)
        value[333] = 65000
        unit, param = trained(ctx, value, "f16")
        optimizer = ctx.sgd([unit], lr=1.0)
        gradient = np.zeros(400, np.float16)
        step(unit, param, optimizer, gradient)
        gradient[333] = -800
        unit.reduce({param: gradient})
        with pytest.raises(meron.NonFiniteError) as caught:
            optimizer.step()
        assert "a value infinite or NaN in f16: 'w' of unit 'u', element 333" in str(caught.value)
        assert (values_of(unit, param) == value).all()
        gradient[333] = -400  # to 65,400, which rounds to a number
        step(unit, param, optimizer, gradient)
        assert np.isfinite(values_of(unit, param)).all()

    ranks.threads(2, body, plan=preset)


def test_refuses_the_first_step_of_a_large_f16_value() -> None:
    with meron.open(plan="zero1") as ctx:
        unit, param = trained(ctx, np.full(40, 65504, np.float16), "f16")
        optimizer = ctx.lion([unit], lr=20.0)
        unit.reduce({param: np.full(40, -1, np.float16)})
        with pytest.raises(meron.NonFiniteError, match="infinite or NaN in f16"):
            optimizer.step()


def test_a_step_names_a_value_of_f16_that_an_earlier_one_made_infinite_on_a_device() -> None:
    """No step is tried there before it is stored, so the next one that fails looks for it."""
    tier = {"tier": "device"}
    plan = {"preset": "zero3", "param": tier, "gradient": tier, "optimizer": tier}
    with meron.open(0, 1, "self", plan=plan, timeout=20.0, device="emulated") as ctx:
        value = np.zeros(400, np.float16)
        value[333] = 65000
        unit, param = trained(ctx, value, "f16")
        optimizer = ctx.sgd([unit], lr=1.0)
        gradient = np.zeros(400, np.float16)
        gradient[7] = np.inf
        unit.reduce({param: gradient})
        with pytest.raises(meron.NonFiniteError, match="the global gradient norm is inf"):
            optimizer.step()
        gradient[7], gradient[333] = 0, -800
        step(unit, param, optimizer, gradient)
        assert np.isposinf(values_of(unit, param)[333])
        unit.reduce({param: np.full(400, np.nan, np.float16)})
        with pytest.raises(meron.NonFiniteError) as caught:
            optimizer.step()
        assert "an earlier step made a value infinite in f16: 'w' of unit 'u', element 333" in str(
            caught.value
        )
        assert caught.value.subject == "w"
        unit.reduce({param: np.zeros(400, np.float16)})
        optimizer.step()  # its gradients are finite


def on_nvme(folder: Path, dtype: str = "f32") -> dict[str, Any]:
    return {
        "preset": "zero3",
        "optimizer": {"dtype": dtype, "tier": "nvme"},
        "nvme": {"path": str(folder)},
    }


def check_a_square_that_overflows(ctx: meron.Context) -> None:
    """Its step changes nothing, and the next one is taken."""
    unit, param = trained(ctx, np.ones(600, np.float32))
    optimizer = ctx.adamw([unit], lr=1e-3)
    gradient = np.full(600, 0.1, np.float32)
    step(unit, param, optimizer, gradient)
    before = values_of(unit, param)
    gradient[580] = 6e20
    unit.reduce({param: gradient})
    with pytest.raises(meron.NonFiniteError, match="element 580"):
        optimizer.step()
    assert (values_of(unit, param) == before).all()
    step(unit, param, optimizer, np.full(600, 0.1, np.float32))
    assert optimizer.steps == 2


@pytest.mark.parametrize("states", STATES)
def test_refuses_a_gradient_whose_square_overflows_on_nvme(states: str, tmp_path: Path) -> None:
    with meron.open(plan=on_nvme(tmp_path, states)) as ctx:
        check_a_square_that_overflows(ctx)


@pytest.mark.parametrize("states", STATES)
def test_names_the_element_whose_sum_overflows_on_nvme(states: str, tmp_path: Path) -> None:
    with meron.open(plan=on_nvme(tmp_path, states)) as ctx:
        unit, param = trained(ctx, np.ones(600, np.float32))
        optimizer = ctx.adagrad([unit], lr=1e-3)
        gradient = np.full(600, 0.1, np.float32)
        gradient[580] = 6e18
        with pytest.raises(
            meron.NonFiniteError, match="a state infinite or NaN: 'w' of unit 'u'"
        ) as caught:
            for _ in range(30):
                step(unit, param, optimizer, gradient)
        if states != "int8":  # in which the block is not finite
            assert "element 580" in str(caught.value)
        with pytest.raises(meron.Error, match="unusable since"):
            unit.reduce({param: gradient})


def test_refuses_a_gradient_whose_square_overflows_on_a_device() -> None:
    plan = {
        "preset": "zero3",
        **{entry: {"tier": "device"} for entry in ("param", "gradient", "optimizer")},
    }
    with meron.open(plan=plan, device="emulated") as ctx:
        check_a_square_that_overflows(ctx)


def test_refuses_an_eps_that_is_zero_in_f32() -> None:
    with meron.open(plan="zero0") as ctx:
        unit, _ = trained(ctx, np.ones(4, np.float32))
        with pytest.raises(meron.ArgumentError, match="epsilon"):
            ctx.adamw([unit], eps=1e-46)
        ctx.adamw([unit], eps=1e-45)


@pytest.mark.parametrize("states", STATES)
def test_gradients_at_the_ends_of_f32_leave_finite_params(states: str) -> None:
    """Denormals, 1e-30, long zeros, a step count above 2^24 and a beta2 next to 1."""
    with meron.open(plan=plan_of(states)) as ctx:
        unit, param = trained(ctx, np.ones(600, np.float32))
        optimizer = ctx.adamw([unit], lr=1e-3, betas=(0.9, 1 - 1e-9))
        for steps in (0, 2**24 + 3):
            optimizer.steps = steps
            for size in (1e-45, 1e-39, 1e-30, 0.0, 1e10):
                for _ in range(20):
                    step(unit, param, optimizer, np.full(600, size, np.float32))
            assert optimizer.steps == steps + 100
        assert np.isfinite(values_of(unit, param)).all()
        for name in ("exp_avg", "exp_avg_sq"):
            assert np.isfinite(optimizer.read_state(param, name)).all()


# --- The floating-point mode


@contextlib.contextmanager
def mode_of_the_caller(bits: int) -> Iterator[None]:
    """MXCSR of this thread."""
    libm = ctypes.CDLL("libm.so.6")
    found, changed = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    for env in (found, changed):
        assert libm.fegetenv(env) == 0
    changed[7] = bits
    libm.fesetenv(changed)
    try:
        yield
    finally:
        libm.fegetenv(changed)
        libm.fesetenv(found)
    assert changed[7] & ~0x3F == bits & ~0x3F, "a call has changed the caller's mode"


MODES = {"flush to zero": 0x1F80 | 0x8040, "upward": 0x1F80 | 0x4000, "to zero": 0x1F80 | 0x6000}
ELEMENTS = 1 << 17  # so that two threads share the work


def bits_in_mode(bits: int | None, states: str, threads: int) -> bytes:
    gradients = [
        (1 + np.arange(ELEMENTS, dtype=np.float32) % 7) * np.float32(s) for s in (1e-19, 3e-19)
    ]
    with meron.open(plan=plan_of(states, "zero0"), threads=threads) as ctx:
        unit, param = trained(ctx, np.zeros(ELEMENTS, np.float32))
        optimizer = ctx.adam([unit], lr=1e-3, eps=1e-15, max_norm=1.0)
        with mode_of_the_caller(bits) if bits is not None else contextlib.nullcontext():
            for gradient in gradients:
                step(unit, param, optimizer, gradient)
            norm = optimizer.norm
        return bytes(values_of(unit, param).tobytes() + np.float64(norm).tobytes())


@on_x86
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("states", STATES)
def test_steps_have_the_same_bits_in_any_mode_of_the_caller(mode: str, states: str) -> None:
    expected = bits_in_mode(None, states, 1)
    for threads in (1, 2):
        assert bits_in_mode(MODES[mode], states, threads) == expected, threads


@on_x86
def test_replicas_stay_equal_if_one_rank_flushes_denormals() -> None:
    def body(ctx: meron.Context) -> None:
        unit, param = trained(ctx, np.zeros(1024, np.float32))
        optimizer = ctx.adam([unit], lr=1e-3, eps=1e-15)
        gradient = ((1 + np.arange(1024) % 7) * 1e-19).astype(np.float32)
        with mode_of_the_caller(MODES["flush to zero"] if ctx.rank == 0 else 0x1F80):
            for _ in range(5):
                step(unit, param, optimizer, gradient)
        values = values_of(unit, param) * np.float32(1 if ctx.rank == 0 else -1)
        ctx.world.all_reduce(values)
        assert (values == 0).all()

    ranks.threads(2, body, plan="zero0")


# --- Instruction sets

DIGEST = """
import hashlib, numpy as np, meron
digest = hashlib.sha256()
for states in ("f32", "bf16", "int8"):
    for rule in ("adamw", "adagrad", "lion", "sgd"):
        for dtype in ("f32", "bf16", "f16"):
            random = np.random.default_rng(1)
            with meron.open(plan={"preset": "zero0", "optimizer": {"dtype": states}}) as ctx:
                param = ctx.param("w", (3001,), dtype)
                unit = ctx.unit("u", [param])
                optimizer = getattr(ctx, rule)([unit], max_norm=1.0)
                for _ in range(4):
                    gradient = random.standard_normal(3001).astype(np.float32)
                    gradient[::97] *= 1e-38
                    unit.reduce({param: meron.from_float32(gradient, dtype)})
                    optimizer.step()
                digest.update(np.float64(optimizer.norm).tobytes())
                with unit.gather() as full:
                    digest.update(np.array(full[param]).tobytes())
codecs = ("int8", "int4", {"kind": "int4", "rounding": "stochastic", "hadamard": True})
for codec in codecs:
    plan = {"mesh": {"shard": 1}, "gradient": {"sharding": "replica x shard", "codec": codec},
            "optimizer": {"sharding": "replica x shard"}}
    with meron.open(plan=plan) as ctx:
        param = ctx.param("w", (3001,))
        unit = ctx.unit("u", [param])
        optimizer = ctx.adamw([unit])
        unit.reduce({param: np.random.default_rng(2).standard_normal(3001).astype("f4")})
        optimizer.step()
        with unit.gather() as full:
            digest.update(np.array(full[param]).tobytes())
print(meron.system_info()["cpu"]["kernel_target"], digest.hexdigest())
"""


def run_on(target: str | None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "MERON_CPU_TARGET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    if target is not None:
        environment["MERON_CPU_TARGET"] = target
    return subprocess.run(
        [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True
    )


def test_all_instruction_sets_compute_the_same_bits() -> None:
    best = run_on(None)
    assert best.returncode == 0, best.stderr
    target, expected = best.stdout.split()
    wrong = run_on("AVX1024")
    assert wrong.returncode != 0
    assert "MERON_CPU_TARGET is 'AVX1024'" in wrong.stderr
    names = wrong.stderr.rpartition("name one of ")[2].split("\n")[0].rstrip(". ").split(", ")
    assert names[0] == target
    for name in names[1:]:
        done = run_on(name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [name, expected], name
