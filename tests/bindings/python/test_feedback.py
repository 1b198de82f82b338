# SPDX-License-Identifier: Apache-2.0
"""Codecs of gradients: feedback goes with its gradient, and errors name elements."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

import meron

SIZE = 1024


def plan_of(codec: Any, **gradient: Any) -> dict[str, Any]:
    """Two replicas of one rank each. Each of them owns half of the sum."""
    world = {"sharding": "replica x shard"}
    return {
        "mesh": {"shard": 1},
        "gradient": {**world, **gradient, "codec": codec},
        "optimizer": dict(world),
    }


def int4(**keys: Any) -> dict[str, Any]:
    return {"kind": "int4", **keys}


LAST = int4(feedback={"beta": 0.0, "reset": 0})  # keeps the error of the last gradient only


def shared(codec: Any) -> dict[str, Any]:
    """Both replicas have the whole sum, which travels encoded, too."""
    shard = {"sharding": "shard"}
    return {"mesh": {"shard": 1}, "gradient": {**shard, "codec": codec}, "optimizer": dict(shard)}


def rough(seed: int = 3, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


class Trained:
    def __init__(self, ctx: meron.Context, size: int = SIZE) -> None:
        self.ctx = ctx
        self.param = ctx.param("w", (size,))
        self.unit = ctx.unit("u", [self.param])
        self.optimizer = ctx.sgd([self.unit], lr=0.0)

    def give(self, grad: Any, **options: Any) -> None:
        """Rank 0 gives the gradient, all others zero."""
        place = self.unit.gradient(self.param, overwrite=True)
        place[...] = grad if self.ctx.rank == 0 else 0
        self.unit.reduce(op="sum", **options)

    def reduce(self, grad: Any, **options: Any) -> np.ndarray:
        """The same, and the whole sum."""
        self.give(grad, **options)
        return self.whole()

    def whole(self) -> np.ndarray:
        own = self.param.shard_range
        sums = np.zeros(self.param.size, np.float32)
        sums[own.start : own.stop] = self.unit.reduced(self.param)
        if own.stop - own.start < self.param.size:
            self.ctx.world.all_reduce(sums)
        return sums

    def lost(self, **options: Any) -> np.ndarray:
        """Returns the feedback that the next gradient gets, by a gradient of zero."""
        sums = self.reduce(0, **options)
        self.unit.discard()
        return sums


def step_of(trained: Trained, how: str) -> None:
    if how == "step":
        trained.optimizer.step()
    elif how == "consume":
        trained.unit.consume()
    elif how == "discard":
        trained.unit.discard()
    else:
        with pytest.raises(meron.NonFiniteError):
            trained.optimizer.step()


@pytest.mark.parametrize("plan", [plan_of(LAST), shared(LAST)])
@pytest.mark.parametrize("how", ["step", "consume"])
def test_feedback_makes_up_for_a_gradient_that_was_used(plan: Any, how: str) -> None:
    def body(ctx: meron.Context) -> None:
        trained, grad = Trained(ctx), rough()
        decoded = trained.reduce(grad)
        step_of(trained, how)
        # The error is encoded too, in blocks whose largest element is half a step or less.
        first = np.abs(grad - decoded).max()
        assert first > 0.1
        assert np.abs(grad - decoded - trained.lost()).max() <= first / 5

    ranks.threads(2, body, plan=plan)


@pytest.mark.parametrize("plan", [plan_of(LAST), shared(LAST)])
@pytest.mark.parametrize("how", ["discard", "skip"])
def test_feedback_is_dropped_with_its_gradient(plan: Any, how: str) -> None:
    def body(ctx: meron.Context) -> None:
        trained, grad = Trained(ctx), rough()
        if how == "skip":
            grad[5] = np.inf
        trained.reduce(grad)
        step_of(trained, how)
        assert not trained.lost().any()

    ranks.threads(2, body, plan=plan)


def test_an_accumulation_that_is_given_up_drops_what_was_lost_of_it() -> None:
    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        trained.give(rough(), boundary=False)
        trained.unit.discard()
        assert not trained.lost().any()

    ranks.threads(2, body, plan=plan_of(LAST))


def test_a_save_within_an_accumulation_leaves_out_the_feedback_of_its_gradient(
    tmp_path: Path,
) -> None:
    def body(ctx: meron.Context) -> None:
        trained, grad = Trained(ctx), rough()
        decoded = trained.reduce(grad)
        trained.optimizer.step()
        ctx.save(tmp_path, "stepped", [trained.optimizer])
        trained.give(rough(4), boundary=False)
        ctx.save(tmp_path, "within", [trained.optimizer])
        trained.unit.discard()
        ctx.load(tmp_path, "within", [trained.optimizer])
        assert not trained.lost().any()
        ctx.load(tmp_path, "stepped", [trained.optimizer])
        assert np.abs(grad - decoded - trained.lost()).max() < 0.1

    ranks.threads(2, body, plan=plan_of(LAST))


def test_feedback_outlives_an_accumulation_that_replicas_have_not_exchanged() -> None:
    def body(ctx: meron.Context) -> None:
        trained, grad = Trained(ctx), rough()
        decoded = trained.reduce(grad)
        trained.optimizer.step()
        trained.give(rough(4), boundary=False)
        trained.unit.discard()
        assert np.abs(grad - decoded - trained.lost()).max() < 0.1

    ranks.threads(2, body, plan=shared(LAST))


def test_consume_needs_a_complete_gradient() -> None:
    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        with pytest.raises(meron.StateError, match="no reduced gradient"):
            trained.unit.consume()
        trained.give(1, boundary=False)
        with pytest.raises(meron.StateError, match="has not ended"):
            trained.unit.consume()
        trained.unit.discard()
        trained.reduce(1)
        trained.unit.consume()
        with pytest.raises(meron.StateError):
            trained.unit.consume()

    ranks.threads(2, body, plan=plan_of("int8"))


@pytest.mark.parametrize("plan", [plan_of(LAST), shared(LAST)])
@pytest.mark.parametrize("after", [0.5, 1.0, 2.0, 2.0**10])
def test_feedback_follows_a_loss_scale_in_the_divisor(plan: Any, after: float) -> None:
    def body(ctx: meron.Context) -> None:
        trained, seen = Trained(ctx), list[np.ndarray]()
        for scale in (1.0, after):
            trained.reduce(8 * rough(), divisor=8)
            trained.optimizer.step()
            seen.append(trained.lost(divisor=8 * scale))
        np.testing.assert_array_equal(seen[0], seen[1])
        assert seen[0].any()

    ranks.threads(2, body, plan=plan)


def test_only_the_divisor_of_equal_calls_is_compared() -> None:
    """A divisor that only the last micro-batch has changes no feedback."""

    def body(ctx: meron.Context) -> None:
        trained, seen = Trained(ctx), list[np.ndarray]()
        for divisor in (1.0, 4.0):
            total = np.zeros(SIZE, np.float32)
            for step in range(3):
                trained.give(rough(step), boundary=False)
                sums = trained.reduce(rough(10 + step), divisor=divisor)
                total += divisor * sums
                trained.optimizer.step()
            trained.unit.scale_feedback(0)
            seen.append(total)
        np.testing.assert_array_equal(seen[0], seen[1])

    ranks.threads(2, body, plan=plan_of(LAST))


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_scale_feedback(factor: float) -> None:
    def body(ctx: meron.Context) -> None:
        trained, seen = Trained(ctx), list[np.ndarray]()
        for by in (1.0, factor):
            trained.reduce(rough())
            trained.optimizer.step()
            trained.unit.scale_feedback(by)
            seen.append(trained.lost())
        np.testing.assert_array_equal(seen[1], np.float32(factor) * seen[0])
        assert seen[0].any()

    ranks.threads(2, body, plan=plan_of(LAST))


@pytest.mark.parametrize("factor", [-1.0, np.nan, np.inf, 1e39])
def test_scale_feedback_rejects_what_is_no_factor(factor: float) -> None:
    def body(ctx: meron.Context) -> None:
        with pytest.raises(meron.ArgumentError, match="factor"):
            Trained(ctx).unit.scale_feedback(factor)

    ranks.threads(2, body, plan=plan_of(LAST))


def test_scale_feedback_does_nothing_without_a_codec() -> None:
    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        trained.unit.scale_feedback(2.0)
        trained.reduce(rough())
        trained.unit.scale_feedback(2.0)
        trained.unit.consume()

    ranks.threads(2, body, plan="zero2")


@pytest.mark.parametrize("beta", [0.0, 0.8])
@pytest.mark.parametrize("plan", [plan_of, shared])
def test_the_mean_of_many_gradients_is_right_with_feedback(plan: Any, beta: float) -> None:
    """Also where the sum is encoded a second time, for replicas that share it."""
    steps = 200
    grad = 0.05 * rough()
    grad[::256] = 1.0  # all others are less than a step

    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        total = np.zeros(SIZE)
        for _ in range(steps):
            total += trained.reduce(grad)
            trained.optimizer.step()
        error = np.linalg.norm(total / steps - grad) / np.linalg.norm(grad)
        assert error < 0.02

    ranks.threads(2, body, plan=plan(int4(feedback={"beta": beta, "reset": 0})))


@pytest.mark.parametrize("plan", [plan_of, shared])
def test_many_zeros_leave_no_feedback(plan: Any) -> None:
    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        trained.reduce(rough())
        trained.optimizer.step()
        for _ in range(100):
            sums = trained.reduce(0)
            trained.optimizer.step()
        assert np.abs(sums).max() < 1e-20

    ranks.threads(2, body, plan=plan(int4(feedback={"beta": 0.0, "reset": 0})))


def test_gradients_below_the_codec_add_up_in_the_feedback() -> None:
    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        total = np.zeros(SIZE)
        for _ in range(16):
            total += trained.reduce(np.full(SIZE, 1e-30, np.float32))  # less than 2^-96
            trained.optimizer.step()
        assert (total > 0).all()
        np.testing.assert_allclose(total, 16e-30, rtol=0.9)

    ranks.threads(2, body, plan=plan_of(LAST))


def on_joined_devices(body: Callable[[meron.Context], Any], plan: Any) -> list[Any]:
    """Two ranks whose devices exchange without the host."""
    job = secrets.token_hex(8)

    def main(rank: int) -> Any:
        device = f"emulated:{rank}"
        with meron.open(rank, 2, "local", job=job, plan=plan, device=device, timeout=20) as ctx:
            return body(ctx)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(main, range(2)))


@pytest.mark.parametrize("how", ["step", "consume", "discard", "skip", "scale"])
@pytest.mark.parametrize("sharding", ["shard", "replica x shard"])
def test_devices_do_the_same(sharding: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of what feedback adds, on devices and on the host."""
    monkeypatch.setenv("MERON_EMULATED_DEVICE", "count=2")

    def body(ctx: meron.Context) -> np.ndarray:
        param = ctx.param("w", (SIZE,))
        unit = ctx.unit("u", [param])
        optimizer = ctx.sgd([unit], lr=0.0)
        grad = rough(ctx.rank)
        if how == "skip":
            grad[5] = np.inf
        unit.reduce({param: grad}, divisor=3)
        if how == "skip":
            with pytest.raises(meron.NonFiniteError):
                optimizer.step()
        elif how in ("consume", "discard"):
            getattr(unit, how)()
        else:
            optimizer.step()
        if how == "scale":
            unit.scale_feedback(0.25)
        unit.reduce({param: np.zeros(SIZE, np.float32)}, divisor=6)
        return np.array(unit.reduced(param))

    def plan(tier: str) -> dict[str, Any]:
        return {
            "mesh": {"shard": 1},
            "param": {"sharding": "shard", "tier": tier},
            "gradient": {"sharding": sharding, "tier": tier, "codec": LAST},
            "optimizer": {"sharding": sharding, "tier": tier},
        }

    host = ranks.threads(2, body, plan=plan("host"))
    device = on_joined_devices(body, plan("device"))
    for one, other in zip(host, device, strict=True):
        np.testing.assert_array_equal(one, other)
    assert bool(np.any(host)) == (how in ("step", "consume", "scale"))


# ---- Gradients that are not finite, or huge ------------------------------------------------------


@pytest.mark.parametrize("plan", [plan_of, shared])
@pytest.mark.parametrize(
    "codec", ["int8", int4(), LAST, int4(hadamard=True), int4(rounding="stochastic")]
)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_an_element_that_is_not_finite_is_named(plan: Any, codec: Any, poison: float) -> None:
    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        for element, giver in ((17, 0), (700, 1), (1023, 0)):
            grad = rough()
            if ctx.rank == giver:
                grad[element] = poison
            trained.unit.reduce({trained.param: grad})
            expected = f"element {element}, in the gradient that rank {giver} encoded"
            with pytest.raises(meron.NonFiniteError, match=expected):
                trained.optimizer.step()
            trained.unit.reduce({trained.param: rough()})
            trained.optimizer.step()

    ranks.threads(2, body, plan=plan(codec))


def test_the_ranks_that_gave_what_is_not_finite_are_counted() -> None:
    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        grad = rough()
        grad[100 + ctx.rank] = np.nan
        trained.unit.reduce({trained.param: grad})
        with pytest.raises(
            meron.NonFiniteError, match=r"element 100, .* gradients of 1 other rank"
        ):
            trained.optimizer.step()

    ranks.threads(2, body, plan=plan_of("int4"))


def test_a_sum_that_overflows_names_the_block_if_it_is_encoded() -> None:
    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        grad = rough()
        grad[300] = 3e38
        trained.unit.reduce({trained.param: grad}, op="sum")
        with pytest.raises(meron.NonFiniteError, match="element 256 or another of its codec's"):
            trained.optimizer.step()

    ranks.threads(2, body, plan=shared("int8"))


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_hadamard_keeps_huge_gradients_finite(kind: str, rounding: str) -> None:
    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        for grad in (np.full(SIZE, 1e38, np.float32), 1e37 * rough()):
            sums = trained.reduce(grad)
            trained.optimizer.step()
            error = np.linalg.norm((sums - grad) / 1e37) / np.linalg.norm(grad / 1e37)
            assert error < (0.02 if kind == "int8" else 0.3)

    ranks.threads(2, body, plan=plan_of({"kind": kind, "rounding": rounding, "hadamard": True}))


# ---- Codecs that cost accuracy -------------------------------------------------------------------


def said(plan: Any) -> list[str]:
    """Returns the lines about codecs that both ranks log."""
    lines: list[str] = []

    def body(ctx: meron.Context) -> None:
        trained = Trained(ctx)
        trained.reduce(rough())
        trained.optimizer.step()

    ranks.threads(2, body, plan=plan, log=lambda level, text: lines.append(text))
    return [line for line in lines if "int4" in line]


def test_rank_0_warns_once_of_int4_gradients_that_nothing_makes_up_for() -> None:
    (line,) = said(plan_of("int4"))
    for part in ("gradients travel in int4", "48 %", '"feedback": true', "zeropp_loco_param"):
        assert part in line


def test_rank_0_warns_once_of_int4_parameters_without_difference() -> None:
    world = {"sharding": "replica x shard"}
    param = {"preset": "hpz(1)", "param": {"codec": "int4"}}
    (line,) = said(param)
    for part in ("parameters travel in int4", "0.24 instead of 0.07", '"difference": true'):
        assert part in line
    param["param"] = {**world, "codec": int4(difference=True), "secondary_partition": "shard"}
    assert not said(param)


@pytest.mark.parametrize(
    "codec", ["int8", "bf16", LAST, int4(rounding="stochastic"), int4(hadamard=True)]
)
def test_other_codecs_are_not_warned_of(codec: Any) -> None:
    assert not said(plan_of(codec))


def test_a_codec_that_is_not_used_is_not_warned_of() -> None:
    assert not said({**plan_of("int4"), "mesh": {"shard": "node"}})  # both ranks are on one
