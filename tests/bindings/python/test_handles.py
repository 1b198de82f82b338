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


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_handle_is_the_handle(
    alone: meron.Context, way: Callable[[Any], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    found = everything(alone)
    for name, (handle, use) in found.items():
        copied = way(handle)
        assert copied is handle or name == "DLPackTensor"
        del copied
        use(handle)
    layers = copy.deepcopy({name: handle for name, (handle, _) in found.items()})
    assert layers["Unit"] is found["Unit"][0]
    del layers
    for handle, use in found.values():
        use(handle)
    assert "ignored" not in capfd.readouterr().err


def test_no_handle_is_pickled(alone: meron.Context) -> None:
    for handle, use in everything(alone).values():
        with pytest.raises(TypeError, match=r"a meron\.\w+ cannot be pickled: .* Make it anew"):
            pickle.dumps(handle)
        use(handle)


def test_handles_say_what_they_are(alone: meron.Context) -> None:
    found = {name: repr(handle) for name, (handle, _) in everything(alone).items()}
    assert found["Gather"] == "<meron.Gather of 1 params, full>"
    assert found["Future"] == "<meron.Future, under way>"
    assert found["Update"] == "<meron.Update of 1 units, not open>"
    assert found["DLPackTensor"] == "<meron.DLPackTensor of 'w': f32 (4,)>"
    assert all(text.startswith("<meron.") and " at 0x" not in text for text in found.values())


def test_handles_that_were_not_made_die_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    kinds = (
        *(meron.Param, meron.Unit, meron.Group, meron.Gather, meron.Future, meron.Update),
        *(meron.Optimizer, meron.Schedule, meron.Plan, meron.Checkpoint, meron.io.IO),
    )
    for kind in kinds:
        kind.__new__(kind)  # type: ignore[call-overload]
    assert capfd.readouterr().err == ""


def test_the_package_lists_what_is_public() -> None:
    assert {name for name in dir(meron) if not name.startswith("_")} == set(meron.__all__)


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
        (optimizer, "learning_rate"),
        (unit, "frozen"),
        (param, "requires_grad"),
    ):
        with pytest.raises(AttributeError, match=name):
            setattr(handle, name, 1)
    with pytest.raises(AttributeError):
        optimizer.norm = 1.0  # type: ignore[misc]
    optimizer.lr, optimizer.steps, optimizer.max_norm = 0.5, 3, 0.25
    assert (optimizer.lr, optimizer.steps, optimizer.max_norm) == (0.5, 3, 0.25)
    unit.reduce({param: np.full(4, 2.0)})
    optimizer.step()
    with unit.gather() as full:
        np.testing.assert_allclose(full[param], -0.5 * 0.25 / 2, rtol=1e-6)


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
    for make in (
        lambda: alone.param("v", (4,), "f32", True),  # type: ignore[call-arg]
        lambda: unit.gather("view", {}),  # type: ignore[call-arg]
        lambda: unit.reduce({}, "sum"),  # type: ignore[call-arg]
        lambda: unit.gradient("w", True),  # type: ignore[call-arg]
        lambda: alone.schedule([unit], 0),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="positional"):
            make()
    optimizer = alone.adamw([unit], 0.1, (0.8, 0.99), 1e-7, 0.2)
    assert optimizer.group(0) == meron.OptimizerGroup(0.1, (0.8, 0.99), 1e-7, 0.2)


def test_a_flag_is_a_bool(alone: meron.Context) -> None:
    for value in ("no", 1, alone.world, None):
        with pytest.raises(TypeError, match="frozen is True or False"):
            alone.param("w", (4,), frozen=value)  # type: ignore[arg-type]
    param = alone.param("w", (4,), frozen=np.bool_(False))
    unit = alone.unit("u", [param])
    with pytest.raises(TypeError, match="boundary is True or False, not 'no'"):
        unit.reduce({param: np.ones(4)}, boundary="no")  # type: ignore[arg-type]


def test_params_go_by_name(alone: meron.Context) -> None:
    unit = alone.unit("u", [alone.param("w", np.int64(4)), alone.param("b", ())])
    weight, bias = unit["w"], unit["b"]
    assert (alone.params, alone.units) == ({"w": weight, "b": bias}, {"u": unit})
    assert (list(unit), unit[weight], "w" in unit, bias in unit) == (["w", "b"], weight, True, True)
    with alone.update([unit]) as update:
        update.write("w", np.arange(4))
        update.view("b")[:] = 5
    with unit.gather() as full:
        assert full["w"].tolist() == full[weight].tolist() == [0, 1, 2, 3]
        assert {name: array.sum() for name, array in full.items()} == {"w": 6, "b": 5}
        assert (len(full), weight in full, "v" in full, full.get("v", 7)) == (2, True, False, 7)
        assert full.dlpack("b").shape == ()
    into = np.zeros(4, np.float32)
    with unit.gather(into={"w": into}) as full:
        assert list(full) == ["w"]
        assert full["w"] is into
    unit.gradient("b")[...] = 1
    unit.reduce({"w": np.ones(4)})
    assert unit.reduced("w").tolist() == [1] * 4
    unit.discard()
    optimizer = alone.adamw([unit])
    optimizer.write_state("w", "exp_avg", np.arange(4))
    assert optimizer.read_state("w", "exp_avg").tolist() == [0, 1, 2, 3]
    assert optimizer.param_steps("b") == 0
    optimizer.add_group(["b"], lr=0.5)
    with pytest.raises(meron.ArgumentError, match="Optimizer of 1 units> has no param 'v'"):
        optimizer.state("v", "exp_avg")
    del update, full, optimizer
    unit.destroy()
    assert (alone.params, alone.units) == ({}, {})


def test_a_name_that_is_not_there_is_refused_in_words(alone: meron.Context) -> None:
    unit = alone.unit("u", [alone.param("w", 4)])
    other = alone.unit("o", [alone.param("x", 4)])
    for use in (
        lambda: unit["v"],
        lambda: unit.reduce({"v": np.ones(4)}),
        lambda: unit.gradient("x"),
        lambda: unit.gather(into={"v": np.ones(4)}),
        lambda: unit.gather()["v"],
        lambda: alone.update([unit]).__enter__().write("v", 0),
    ):
        with pytest.raises(
            meron.ArgumentError, match=r"has no param '[vx]'\. It has 'w'"
        ) as caught:
            use()
        assert isinstance(caught.value, KeyError)
    with pytest.raises(meron.ArgumentError, match="x is in another unit than 'u'"):
        unit[other["x"]]
    with pytest.raises(TypeError, match=r"a meron\.Param or the name of one, not 3"):
        unit[3]  # type: ignore[index]
    with pytest.raises(meron.ArgumentError, match="twice"):
        unit.reduce({"w": np.ones(4), unit["w"]: np.ones(4)})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="grads is a mapping of params, or their names"):
        unit.reduce([np.ones(4)])  # type: ignore[arg-type]


def test_numbers_that_do_not_fit_are_refused(alone: meron.Context) -> None:
    schedule = alone.schedule([alone.unit("u", [alone.param("w", 4)])])
    for use in (
        lambda: alone.world.broadcast(np.zeros(1), 2**40),
        lambda: alone.group([2**40]),
        lambda: schedule.enter(-1),
        lambda: schedule.leave(2**70),
        lambda: schedule.start_pass(2**40),
        lambda: alone.adamw(schedule.units, lr=10**400),
        lambda: alone.world.all_reduce(2**70),
    ):
        with pytest.raises(meron.ArgumentError):
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
    begin = "\n                "  # of a line
    loop = begin.join(
        (
            "with unit.gather() as full: full[param].sum()",
            "del full",
            "unit.gather()[param].sum()",
            "ctx.world.barrier_begin()",
        )
    )
    source = INTERRUPTED.replace("LOOP", loop).replace("CHECK", "unit.destroy()")
    done = run_python(source.replace("TRIES", "100"))
    assert done.returncode == 0, done.stderr


def test_an_interrupt_leaves_a_reduction_that_ends() -> None:
    loop = "unit.reduce({param: np.ones(64)}, boundary=False)"
    check = "unit.reduce({param: np.ones(64)}); unit.discard(); unit.destroy()"
    source = INTERRUPTED.replace("LOOP", loop).replace("CHECK", check)
    done = run_python(source.replace("TRIES", "100"))
    assert done.returncode == 0, done.stderr
