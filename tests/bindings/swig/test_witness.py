# SPDX-License-Identifier: Apache-2.0
"""The same calls by SWIG's module and by the package on cffi: equal bits, equal errors."""

from __future__ import annotations

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import meron_swig as swig
import numpy as np
import pytest

import meron

N = 1000
STEPS = 3


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    assert swig.load_library(os.environ["MERON_LIBRARY"]), swig.library_problem()


def gradient(step: int, rank: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(10 * step + rank).standard_normal(N).astype(np.float32)


def initial() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(99).standard_normal(N).astype(np.float32)


def by_cffi(rank: int, ranks: int, plan: str, job: str) -> bytes:
    transport = "local" if ranks > 1 else "self"
    with meron.open(rank, ranks, transport, plan, job=job, threads=1) as context:
        weight = context.param("w", (N,))
        unit = context.unit("u", [weight])
        with context.update([unit]) as update:
            update.write(weight, initial())
        optimizer = context.adamw([unit], max_norm=1.0)
        for step in range(STEPS):
            unit.gradient(weight)[:] += gradient(step, rank)
            unit.reduce()
            optimizer.step()
        with unit.gather() as full:
            bits: bytes = full[weight].tobytes()
        context.world.barrier()
        return bits


def open_by_swig(
    rank: int,
    ranks: int,
    plan: str = "zero3",
    job: str = "swig",
    hooks: Any = None,
    custom: Any = None,
) -> int:
    options = swig.meron_context_options_init()
    chosen = swig.meron_plan_preset(plan)
    transport = "custom" if custom else "local" if ranks > 1 else "self"
    context: int = swig.meron_context_open(
        swig.MERON_VERSION, rank, ranks, transport, job, None, options.timeout_ns, 0, 0, 1,
        chosen, hooks, custom, None,
    )  # fmt: skip
    swig.meron_plan_release(chosen)
    return context


def finish(future: int) -> None:
    assert swig.meron_future_wait(future, swig.MERON_TIMEOUT_DEFAULT) == swig.MERON_OK
    swig.meron_future_release(future)


def floats(view: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.frombuffer(view.memory(0, 4 * view.count), np.float32)


def by_swig(rank: int, ranks: int, plan: str, job: str) -> bytes:
    context = open_by_swig(rank, ranks, plan, job)
    weight = swig.meron_param_register(context, swig.MERON_F32, "w", [N], 0, 0)
    unit = swig.meron_unit_create(context, "u", [weight])
    update = swig.meron_update_begin([unit])
    swig.meron_future_wait(update, swig.MERON_TIMEOUT_DEFAULT)
    swig.meron_update_write(update, weight, initial(), swig.MERON_F32)
    swig.meron_update_publish(update)
    defaults = swig.meron_optimizer_rule_init(swig.MERON_OPTIMIZER_ADAMW)
    optimizer = swig.meron_optimizer_create(
        [unit], swig.MERON_OPTIMIZER_ADAMW, defaults.learning_rate, defaults.beta1, defaults.beta2,
        defaults.epsilon, defaults.weight_decay, 1.0, 0.0, 0, defaults.defaults_of,
        defaults.lr_decay,
    )  # fmt: skip
    for step in range(STEPS):
        if step % 2:  # through the bucket, and from memory of one's own
            floats(swig.meron_gradient_view(weight, 0))[:] += gradient(step, rank)
            future = swig.meron_reduce_begin(unit, None, swig.MERON_REDUCE_OP_MEAN, 1, 1.0, 0)
        else:
            sources, values = swig.meron_source_list(), gradient(step, rank)
            sources.add(weight, values, swig.MERON_F32)
            future = swig.meron_reduce_begin(unit, sources, swig.MERON_REDUCE_OP_MEAN, 1, 1.0, 0)
        finish(future)
        finish(swig.meron_optimizer_step_begin(optimizer))
    gather = swig.meron_gather_begin([unit], swig.MERON_GATHER_VIEW, None, 0, 0, None)
    swig.meron_future_wait(gather, swig.MERON_TIMEOUT_DEFAULT)
    view = swig.meron_gather_view(gather, weight)
    assert view.memory(0, 4).readonly
    bits = floats(view).tobytes()
    swig.meron_future_release(gather)
    world = swig.meron_context_world(context)
    finish(swig.meron_barrier_begin(world))
    swig.meron_context_close(context)
    return bits


def on_ranks(ranks: int, body: Callable[[int], bytes]) -> list[bytes]:
    out: dict[int, bytes] = {}
    threads = [
        threading.Thread(target=lambda rank=rank: out.setdefault(rank, body(rank)), daemon=True)
        for rank in range(ranks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert len(out) == ranks
    return [out[rank] for rank in range(ranks)]


@pytest.mark.parametrize("plan", ("zero0", "zero1", "zero2", "zero3"))
@pytest.mark.parametrize("ranks", (1, 2, 3))
def test_training_gives_equal_bits(plan: str, ranks: int) -> None:
    wanted = on_ranks(ranks, lambda rank: by_cffi(rank, ranks, plan, f"cffi-{plan}-{ranks}"))
    found = on_ranks(ranks, lambda rank: by_swig(rank, ranks, plan, f"swig-{plan}-{ranks}"))
    assert found == wanted
    assert len(set(wanted)) == 1


def test_a_rank_of_each_kind_meets() -> None:
    """Both modules call one loaded library: their ranks make one job."""
    bodies = (by_cffi, by_swig)
    assert len(set(on_ranks(2, lambda rank: bodies[rank](rank, 2, "zero3", "mixed")))) == 1


def test_errors_have_equal_fields() -> None:
    with pytest.raises(meron.Error) as wanted:
        meron.Plan.parse('{"preset": "zero2", "wrong": 1}')
    with pytest.raises(swig.Error) as found:
        swig.meron_plan_parse('{"preset": "zero2", "wrong": 1}')
    error = found.value
    assert error.code == wanted.value.status == swig.MERON_E_PARSE
    assert (error.rank, error.peer) == (swig.MERON_RANK_NONE, swig.MERON_RANK_NONE)
    # Python's package names its own method.
    assert (error.operation, wanted.value.operation) == ("plan_parse", "Plan.parse")
    assert error.message == wanted.value.message.replace("Plan.parse", "plan_parse", 1)
    for field in ("subject", "advice"):
        assert getattr(error, field) == getattr(wanted.value, field), field
    assert str(error) == error.message


def test_bad_input_raises() -> None:
    for wrong in (
        lambda: swig.meron_plan_json(0),
        lambda: swig.meron_plan_json(-1),
        lambda: swig.meron_gather_begin([1, 2], 0, None, 0, 0, None),
        lambda: swig.meron_gather_begin([], 0, None, 0, 0, None),
        lambda: swig.meron_plan_preset(None),
        lambda: swig.dlpack_delete(0),
        lambda: swig.dlpack_tensor(0),
    ):
        with pytest.raises(swig.Error):
            wrong()
    for wrong in (
        lambda: swig.meron_gather_begin(["no handle"], 0, None, 0, 0, None),
        lambda: swig.meron_gather_begin(3, 0, None, 0, 0, None),
        lambda: swig.meron_plan_preset("zero3\0"),
        lambda: swig.meron_broadcast_begin(0, b"read-only", 0),
    ):
        with pytest.raises((TypeError, ValueError, BufferError)):
            wrong()


def test_callbacks() -> None:
    class Hooks(swig.callbacks):  # type: ignore[misc]
        asked = 0

        def __init__(self) -> None:
            super().__init__(False)

        def should_stop(self) -> bool:
            self.asked += 1
            return self.asked == 2

    hooks = Hooks()
    with pytest.raises(swig.Error) as found:
        open_by_swig(0, 2, job="nobody comes", hooks=hooks)
    assert found.value.code == swig.MERON_E_CANCELLED
    assert hooks.asked == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_callback_that_raises_ends_the_wait() -> None:
    class Hooks(swig.callbacks):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(False)

        def should_stop(self) -> bool:
            raise RuntimeError("from the callback")

    with pytest.raises(swig.Error) as found:
        open_by_swig(0, 2, job="raises", hooks=Hooks())
    assert found.value.code == swig.MERON_E_CANCELLED


class Line(swig.custom_transport):  # type: ignore[misc]
    """One end of a line between two ranks: sending puts a copy into a queue."""

    def __init__(self, rank: int, queues: dict[tuple[int, int], deque[bytes]]) -> None:
        super().__init__("line", 0)
        self.rank, self.queues = rank, queues
        self.number = 0
        self.wanted: dict[int, tuple[tuple[int, int], memoryview]] = {}
        self.sent: dict[int, int] = {}
        self.broken = self.alone = False
        self.ended = 0

    def send(self, peer: int, tag: int, message: memoryview) -> int:
        assert message.readonly
        self.number += 1
        self.sent[self.number] = message.nbytes
        self.queues[peer, tag].append(bytes(message))
        return self.number

    def receive(self, peer: int, tag: int, place: memoryview) -> int:
        self.number += 1
        self.wanted[self.number] = ((self.rank, tag), place)
        return self.number

    def test(self, request: int) -> int:
        if self.broken:
            raise RuntimeError("the line is cut")
        if request in self.sent:
            return self.sent.pop(request)
        key, place = self.wanted[request]
        first = next(other for other, (address, _) in self.wanted.items() if address == key)
        if first != request or not self.queues[key]:
            return -1
        message = self.queues[key].popleft()
        place[: len(message)] = message
        del self.wanted[request]
        return len(message)

    def cancel(self, request: int) -> None:
        self.sent.pop(request, None)
        self.wanted.pop(request, None)

    def alive(self, peer: int) -> bool:
        return not self.alone

    def closed(self) -> None:
        self.ended += 1


def by_lines(body: Callable[[int, list[Line], int], bytes]) -> list[bytes]:
    queues: dict[tuple[int, int], deque[bytes]] = defaultdict(deque)
    lines = [Line(rank, queues) for rank in range(2)]

    def rank_of(rank: int) -> bytes:
        line = lines[rank]
        context = open_by_swig(rank, 2, custom=line)
        assert swig.meron_context_transport(context) == "line"
        out = body(context, lines, rank)
        swig.meron_context_close(context)
        assert line.ended == 1
        return out

    return on_ranks(2, rank_of)


def test_a_custom_transport() -> None:
    def body(context: int, _lines: list[Line], _rank: int) -> bytes:
        values = np.arange(N, dtype=np.float32)
        world = swig.meron_context_world(context)
        finish(swig.meron_all_reduce_begin(world, values, swig.MERON_F32, swig.MERON_REDUCE_OP_SUM))
        finish(swig.meron_barrier_begin(world))
        return values.tobytes()

    assert by_lines(body) == [(2 * np.arange(N, dtype=np.float32)).tobytes()] * 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_custom_transport_that_raises_ends_the_use_of_the_peer() -> None:
    def body(context: int, lines: list[Line], rank: int) -> bytes:
        world = swig.meron_context_world(context)
        finish(swig.meron_barrier_begin(world))
        lines[rank].broken = rank == 1
        with pytest.raises(swig.Error) as found:
            for _ in range(1000):
                finish(swig.meron_barrier_begin(world))
        assert (found.value.code, found.value.peer) == (swig.MERON_E_PEER_DEAD, 1 - rank)
        if rank == 1:
            assert "MERON_E_IO" in found.value.message
            lines[0].alone = True  # no message of the line would report it
        return b""

    by_lines(body)


def test_a_dlpack_tensor_is_described() -> None:
    context = open_by_swig(0, 1)
    weight = swig.meron_param_register(context, swig.MERON_BF16, "w", [2, 3], 0, 0)
    unit = swig.meron_unit_create(context, "u", [weight])
    gather = swig.meron_gather_begin([unit], swig.MERON_GATHER_VIEW, None, 0, 0, None)
    swig.meron_future_wait(gather, swig.MERON_TIMEOUT_DEFAULT)
    address = swig.meron_gather_dlpack(gather, weight)
    swig.meron_future_release(gather)
    tensor = swig.dlpack_tensor(address)
    assert (tensor.dtype(), tensor.ndim()) == (swig.MERON_BF16, 2)
    assert [tensor.size(axis) for axis in (-1, 0, 1, 2)] == [0, 2, 3, 0]
    assert tensor.view().memory(0, 12).tobytes() == bytes(12)
    assert tensor.view().memory(0, 12).readonly
    assert swig.meron_unit_get_info(unit).leases == 1
    swig.dlpack_delete(address)
    assert swig.meron_unit_get_info(unit).leases == 0
    swig.meron_context_close(context)


def test_other_threads_run_while_one_waits() -> None:
    """`Blocks:` in the headers became a call without the GIL."""
    context = open_by_swig(0, 1)
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1

    class Hooks(swig.callbacks):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(False)

        def should_stop(self) -> bool:
            return turns > 0

    timer = threading.Timer(0.05, count)
    timer.start()
    with pytest.raises(swig.Error):
        open_by_swig(0, 2, job="waits", hooks=Hooks())
    timer.join()
    assert turns == 1
    swig.meron_context_close(context)
