# SPDX-License-Identifier: Apache-2.0
"""One rank of Meron: saves and loads a state of some size, or trains beside a save."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from rank_memory import bytes_below, evict, measured, read_from_drive

import meron

ELEMENTS = 4 << 20  # of a unit
BYTES = 14  # of an element: value, master and two states
STATES = {"exp_avg": 1000, "exp_avg_sq": 2000}  # and by how much they are other than the values


class Model:
    """Units of one bf16 param each, with AdamW's states: `size` bytes on all ranks together."""

    def __init__(self, context: meron.Context, size: int, fill: bool = True) -> None:
        self.context = context
        elements = min(ELEMENTS, max(4096, size // BYTES // 4 // 4096 * 4096))
        count = max(1, round(size / BYTES / elements))
        self.random = np.random.default_rng(7)
        # A second moment is no less than 0.
        self.block = np.abs(self.random.standard_normal(elements, np.float32))
        self.params = [context.param(f"h.{i}.w", (elements,), "bf16") for i in range(count)]
        self.units = [context.unit(f"h.{i}", [param]) for i, param in enumerate(self.params)]
        self.optimizer = context.adamw(self.units)
        self.bytes = count * elements * BYTES
        if fill:
            self.fill()

    def fill(self) -> None:
        for number, (unit, param) in enumerate(zip(self.units, self.params, strict=True)):
            with self.context.update([unit]) as update:
                update.write(param, np.roll(self.block, number))
            for state, shift in STATES.items():
                self.optimizer.write_state(param, state, self.part(param, number + shift))

    def part(self, param: meron.Param, shift: int) -> Any:
        shard_range = param.shard_range
        return np.roll(self.block, shift)[shard_range.start : shard_range.stop]

    def check(self) -> None:
        """That a load gave every state, master and value what was saved."""
        for number, (unit, param) in enumerate(zip(self.units, self.params, strict=True)):
            for state, shift in {"master": 0, **STATES}.items():
                found = self.optimizer.read_state(param, state)
                if not np.array_equal(found, self.part(param, number + shift)):
                    raise SystemExit(f"{param}: another {state} was loaded than saved")
            with unit.gather() as full:
                saved = meron.from_float32(np.roll(self.block, number), "bf16")
                if not np.array_equal(full[param], saved):
                    raise SystemExit(f"{param}: other values were loaded than saved")

    def clear(self) -> None:
        for unit, param in zip(self.units, self.params, strict=True):
            with self.context.update([unit]) as update:
                update.write(param, np.zeros(len(self.block), np.float32))
            zero = np.zeros(len(param.shard_range), np.float32)
            for state in STATES:
                self.optimizer.write_state(param, state, zero)

    def compute(self, work: int) -> float:
        """Arithmetic in place of forward and backward; its seconds."""
        begin = time.perf_counter()
        matrix = np.resize(self.block, (256, 256))
        for _ in range(work):
            matrix = np.tanh(matrix @ matrix * 0.01)
        return time.perf_counter() - begin

    def micro_batch(self, work: int, seconds: float) -> None:
        """A step of so much work of this rank's processor, and of so long a wait for a device."""
        self.compute(work)
        time.sleep(seconds)
        for unit, param in zip(self.units, self.params, strict=True):
            unit.gradient(param, overwrite=True)[:] = 0
            unit.reduce()
        self.optimizer.step()


def all_max(context: meron.Context, value: float) -> float:
    values = np.zeros(context.world_size, np.float32)
    values[context.rank] = value
    context.world.all_reduce(values)
    return float(values.max())


def all_sum(context: meron.Context, value: float) -> float:
    values = np.array([value / (1 << 20)], np.float32)  # in MiB, exact enough
    context.world.all_reduce(values)
    return float(values[0]) * (1 << 20)


def timed(context: meron.Context, call: Any) -> tuple[float, float, Any]:
    """Seconds and peak of the slowest and largest rank."""
    context.world.barrier()
    with measured() as result:
        value = call()
    return all_max(context, result.seconds), all_max(context, result.extra_bytes), value


def save(context: meron.Context, model: Model, folder: Path) -> dict[str, Any]:
    seconds, extra, _ = timed(context, lambda: context.save(folder, "one", [model.optimizer]))
    return {"save_seconds": seconds, "save_extra_bytes": extra}


def load(context: meron.Context, model: Model, folder: Path) -> dict[str, Any]:
    model.clear()
    if context.rank == 0:
        evict(folder)
    drive = read_from_drive()
    seconds, extra, loaded = timed(context, lambda: context.load(folder, "one", [model.optimizer]))
    drive = read_from_drive() - drive
    model.check()
    return {
        "load_seconds": seconds,
        "load_extra_bytes": extra,
        "file_bytes": bytes_below(folder / "one"),
        "bytes_read": all_sum(context, loaded.bytes_read),
        "drive_bytes_read": all_sum(context, drive),
    }


def export(context: meron.Context, folder: Path) -> dict[str, Any]:
    try:
        seconds, extra, _ = timed(context, lambda: context.export(folder / "export"))
    except meron.errors.UnsupportedError as error:
        return {"export": f"left out: {error}"}
    return {"export_seconds": seconds, "export_extra_bytes": extra}


def copy_seconds(context: meron.Context, model: Model) -> float:
    """Of one copy of all states, all ranks at a time."""
    source = np.ones(model.bytes // context.world_size, np.uint8)  # zeros would be one page
    target = np.ones_like(source)
    runs = []
    for _ in range(5):
        context.world.barrier()
        begin = time.perf_counter()
        np.copyto(target, source)
        runs.append(all_max(context, time.perf_counter() - begin))
    return statistics.median(runs)


def beside(
    context: meron.Context,
    model: Model,
    folder: Path,
    step_seconds: float,
    saves: int,
    device: bool,
) -> dict[str, Any]:
    """Steps that take `step_seconds`, alone and beside asynchronous saves.

    With `device` the processor is idle in forward and backward, as beside a GPU; else it computes.
    """

    def step(call: Any = lambda: None) -> tuple[float, Any]:
        context.world.barrier()
        begin = time.perf_counter()
        value = call()
        model.micro_batch(work, step_seconds if device else 0.0)
        return all_max(context, time.perf_counter() - begin), value

    each = all_max(context, model.compute(50) / 50)
    work = 0 if device else max(1, round(step_seconds / each))
    step()
    alone, stalls, after = [], [], []
    for number in range(saves):
        alone += [step()[0] for _ in range(4)]
        begin = functools.partial(context.save_begin, folder, f"async-{number}", [model.optimizer])
        seconds, saving = step(begin)
        stalls.append(seconds)
        after += [step()[0] for _ in range(10)]
        saving.wait()
    usual = statistics.median(alone)
    return {
        "copy_seconds": copy_seconds(context, model),
        "step_seconds": usual,
        "stall_seconds": statistics.median(stalls) - usual,
        "stalls_seconds": [seconds - usual for seconds in stalls],
        "next_steps_ratio": statistics.fmean(after) / statistics.fmean(alone),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("both", "save", "load", "beside"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--size", type=int, required=True, help="bytes of the state")
    parser.add_argument("--step-seconds", type=float, default=1.0)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--compute", choices=("processor", "device"), default="processor")
    arguments = parser.parse_args()
    with meron.open(plan="zero3") as context:
        cpus = sorted(os.sched_getaffinity(0))
        context.world.barrier()
        model = Model(context, arguments.size)
        result: dict[str, Any] = {"bytes": model.bytes, "ranks": context.world_size}
        if arguments.mode in ("both", "save"):
            result |= save(context, model, arguments.folder)
        if arguments.mode in ("both", "load"):
            result |= load(context, model, arguments.folder)
        if arguments.mode == "both":
            result |= export(context, arguments.folder)
        if arguments.mode == "beside":
            device = arguments.compute == "device"
            if not device:
                with contextlib.suppress(AttributeError):
                    os.sched_setaffinity(0, {cpus[context.rank % len(cpus)]})
            seconds, saves = arguments.step_seconds, arguments.saves
            result |= beside(context, model, arguments.folder, seconds, saves, device)
        if context.rank == 0:
            print(json.dumps(result))


if __name__ == "__main__":
    main()
