# SPDX-License-Identifier: Apache-2.0
"""Handles of the engine as Python's objects: copies, attributes, arguments, interrupts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import run_python

import meron


def everything(ctx: meron.Context) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """One of each kind, with a call that works only if its handle is not released."""
    param = ctx.param("w", (4,))
    unit = ctx.unit("u", [param])
    gather = unit.gather()
    return {
        "Context": (ctx, lambda it: it.stats()),
        "Param": (param, lambda it: it.shard_range),
        "Unit": (unit, lambda it: it.info()),
        "Optimizer": (ctx.adamw([unit]), lambda it: it.lr),
        "Group": (ctx.group([0]), lambda it: it.barrier()),
        "Gather": (gather, lambda it: it[param].sum()),
        "DLPackTensor": (gather.dlpack(param), lambda it: it.pointer),
        "Future": (ctx.world.barrier_begin(), lambda it: it.wait()),
        "Schedule": (ctx.schedule([unit]), lambda it: it.info()),
        "Update": (ctx.update([unit]), repr),
        "IO": (meron.io.IO(), lambda it: it.info()),
    }


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_handle_is_copied(alone: meron.Context, way: Callable[[Any], Any]) -> None:
    for name, (handle, use) in everything(alone).items():
        if not (name == "DLPackTensor" and way is copy.copy):  # which shares its gather
            with pytest.raises(TypeError, match=r"a meron\.\w+ cannot be copied or pickled"):
                way(handle)
        use(handle)


def test_a_failed_copy_of_what_holds_handles_harms_none(
    alone: meron.Context, capfd: pytest.CaptureFixture[str]
) -> None:
    found = everything(alone)
    with pytest.raises(TypeError, match=r"cannot be copied"):
        copy.deepcopy(found)
    for handle, use in found.values():
        use(handle)
    assert "ignored" not in capfd.readouterr().err


def test_a_plan_is_copied_by_its_text() -> None:
    plan = meron.Plan.parse({"preset": "zero2"})
    for way in (copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))):
        copied = way(plan)
        assert copied == plan
        del copied
    assert "zero2" in plan.json()


def test_unknown_attributes_are_refused(alone: meron.Context) -> None:
    param = alone.param("w", (4,))
    unit = alone.unit("u", [param])
    optimizer = alone.sgd([unit])
    for handle, name in (
        (optimizer, "max_norm"),
        (optimizer, "learning_rate"),
        (unit, "frozen"),
        (param, "requires_grad"),
    ):
        with pytest.raises(AttributeError, match=name):
            setattr(handle, name, 1)
    with pytest.raises(AttributeError):
        optimizer.norm = 1.0  # type: ignore[misc]
    optimizer.lr, optimizer.steps = 0.5, 3
    assert (optimizer.lr, optimizer.steps) == (0.5, 3)


def test_arguments_in_another_order_than_torchs_have_names(alone: meron.Context) -> None:
    unit = alone.unit("u", [alone.param("w", (4,))])
    for make in (
        lambda: alone.sgd([unit], 0.1, 0.9, 0, 0, True),  # type: ignore[call-arg]
        lambda: alone.adagrad([unit], 0.1, 0.5),  # type: ignore[call-arg]
        lambda: alone.adamw([unit], 0.1, (0.9, 0.99), 1e-8, 0.1, True),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="positional"):
            make()
    with pytest.raises(meron.ArgumentError, match="betas are two numbers, not 3"):
        alone.adamw([unit], betas=(0.1, 0.2, 0.3))  # type: ignore[arg-type]
    optimizer = alone.adamw([unit], 0.1, (0.8, 0.99), 1e-7, 0.2)
    assert optimizer.group(0) == meron.OptimizerGroup(0.1, (0.8, 0.99), 1e-7, 0.2)


def test_a_flag_is_a_bool(alone: meron.Context) -> None:
    for value in ("no", 1, alone.world, None):
        with pytest.raises(TypeError, match="frozen is True or False"):
            alone.param("w", (4,), "f32", value)  # type: ignore[arg-type]
    param = alone.param("w", (4,), "f32", np.bool_(False))
    unit = alone.unit("u", [param])
    with pytest.raises(TypeError, match="boundary is True or False, not 'no'"):
        unit.reduce({param: np.ones(4)}, boundary="no")  # type: ignore[arg-type]


def test_names_in_place_of_params_are_refused_in_words(alone: meron.Context) -> None:
    param = alone.param("w", np.int64(4))  # type: ignore[arg-type]
    assert param.shape == (4,)
    unit = alone.unit("u", [param])
    with unit.gather() as full, pytest.raises(TypeError, match=r"meron\.Param, not 'w'"):
        full["w"]  # type: ignore[index]
    name: Any = "w"
    for use in (
        lambda: unit.reduce({name: np.ones(4)}),
        lambda: unit.gradient(name),
        lambda: unit.gather(into={name: np.ones(4)}),
    ):
        with pytest.raises(TypeError, match=r"expected a meron\.Param, not 'w'"):
            use()


INTERRUPTED = """
import random, signal, sys
import numpy as np, meron

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
sys.unraisablehook = lambda info: None
chance = random.Random(1)
lost = []
with meron.open(0, 1, "self") as ctx:
    for number in range(TRIES):
        param = ctx.param(f"w{number}", (64,))
        unit = ctx.unit(f"u{number}", [param])
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-5 + chance.random() * 2e-4)
            for _ in range(200):  # (an interrupt within a finalizer is only reported)
                LOOP
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
        full = reduction = None
        try:
            with ctx.update([unit]) as update:
                update.write(param, np.ones(64))
            CHECK
        except meron.Error as error:
            lost.append(error)
assert not lost, (len(lost), lost[0])
"""


def test_an_interrupt_loses_no_lease() -> None:
    loop = "with unit.gather() as full: full[param].sum()"
    source = INTERRUPTED.replace("LOOP", loop).replace("CHECK", "unit.destroy()")
    done = run_python(source.replace("TRIES", "100"))
    assert done.returncode == 0, done.stderr


def test_an_interrupt_leaves_a_reduction_that_ends() -> None:
    loop = "unit.reduce({param: np.ones(64)}, boundary=False).wait()"
    check = "unit.reduce({param: np.ones(64)}).wait(); unit.discard(); unit.destroy()"
    source = INTERRUPTED.replace("LOOP", loop).replace("CHECK", check)
    done = run_python(source.replace("TRIES", "100"))
    assert done.returncode == 0, done.stderr
