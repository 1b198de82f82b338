# SPDX-License-Identifier: Apache-2.0
"""Reports of a run, of values that fp16 cannot hold, of unknown keys; activation checkpointing."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import math
import re
import sys
import types
from typing import Any

import pytest
import torch

import meron
from meron import zero
from model import RANK, Scale, config, data, engine_step, twins, whole

pytestmark = pytest.mark.ranks(2)


def run(steps: int, **options: Any) -> tuple[str, list[str]]:
    """Returns the output and the log lines of a number of steps."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    printed = io.StringIO()
    logger, handler = logging.getLogger("meron.zero"), Keep()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    generator = torch.Generator().manual_seed(1)
    try:
        with contextlib.redirect_stdout(printed):
            engine = zero.initialize(model=twins()[0], config=config(**options))[0]
            for _ in range(steps):
                engine_step(engine, [data(generator)])
            engine.destroy()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return printed.getvalue(), lines


def test_prints_times_of_phases() -> None:
    text, _ = run(4, wall_clock_breakdown=True, steps_per_print=2)
    titles = re.findall(r"rank 0, steps (\d) to (\d)", text)
    assert titles == ([("1", "2"), ("3", "4")] if RANK == 0 else []), text
    for name in ("forward", "backward", "step", "other", "total"):
        assert len(re.findall(rf"^  {name} +\d+\.\d\d +\d+%$", text, re.M)) == len(titles), text
    shares = [int(share) for share in re.findall(r"(\d+)%", text)]
    for at in range(0, len(shares), 5):
        assert abs(sum(shares[at : at + 4]) - 100) <= 4 and shares[at + 4] == 100
    # accelerate writes inf if the caller sets no value; the breakdown has its own default.
    text, _ = run(10, wall_clock_breakdown=True, steps_per_print=math.inf)
    assert text.count("steps 1 to 10") == (RANK == 0)
    assert run(3, steps_per_print=math.inf)[0] == ""


def test_prints_memory() -> None:
    text, _ = run(2, memory_breakdown=True, steps_per_print=2)
    found = {
        name: float(value) for name, value in re.findall(r"^  ([a-z, ]+?) +([\d.]+)$", text, re.M)
    }
    if RANK:
        assert text == ""
        return
    assert found["process, most"] >= found["process"] > 10 and "parameters" in found, text


def test_logs_a_line_per_period() -> None:
    _, lines = run(4, steps_per_print=2, fp16={"enabled": True, "initial_scale_power": 8})
    lines = [line for line in lines if line.startswith("step ")]
    assert len(lines) == (2 if RANK == 0 else 0), lines
    for line in lines:
        assert re.fullmatch(
            r"step \d, lr 0.1, gradient norm [\d.e-]+, skipped 0, loss scale 256", line
        ), line


def test_prints_the_config() -> None:
    text, _ = run(0, dump_state=True, zero_optimization={"stage": 2, "overlap_comm": True})
    assert ("keys without effect: zero_optimization.overlap_comm" in text) == (RANK == 0), text
    assert ('"overlap_comm": true' in text) == (RANK == 0)


def test_warns_of_unknown_keys_in_place_of_deepspeed() -> None:
    foreign = {"foreign": 1, "steps_per_prints": 2}
    with pytest.raises(meron.ArgumentError, match="2 unknown config keys: foreign"):
        run(0, **foreign)
    module: Any = types.ModuleType("deepspeed")
    module.DeepSpeedEngine = zero.Engine
    sys.modules["deepspeed"] = module
    try:
        _, lines = run(1, **foreign)
    finally:
        del sys.modules["deepspeed"]
    warned = [line for line in lines if "unknown keys" in line]
    assert len(warned) == (RANK == 0), lines
    assert all("foreign, steps_per_prints (did you mean steps_per_print?)" in w for w in warned)


def test_respects_the_log_level() -> None:
    _, lines = run(0, log_level="error", prescale_gradients=True)
    assert lines == []


def test_configures_activation_checkpointing() -> None:
    block = {"partition_activations": False, "cpu_checkpointing": True, "number_checkpoints": 3}
    if importlib.util.find_spec("meron.checkpointing") is None:
        _, lines = run(1, activation_checkpointing=block)
        told = any("activation_checkpointing" in line for line in lines)
        assert told == (RANK == 0), lines
        return
    module: Any = importlib.import_module("meron.checkpointing")
    assert run(1, activation_checkpointing=block)[0] == ""
    assert module.is_configured()
    module.reset()


@pytest.mark.parametrize("stage", [1, 3])
def test_a_value_too_large_for_fp16_is_an_error_and_no_overflow_of_the_loss_scale(
    stage: int,
) -> None:
    """A smaller loss scale would not help, so the step is not skipped as if it did."""
    model = Scale()
    with torch.no_grad():
        model.weight[3] = -65000.0
    settings = config(
        stage,
        optimizer={"type": "SGD", "params": {"lr": 600.0}},
        fp16={"enabled": True, "initial_scale_power": 2},
    )
    engine = zero.initialize(model=model, config=settings)[0]
    engine.backward(engine())
    with pytest.raises(
        meron.NonFiniteError, match=r"a value infinite or NaN in f16: .*weight.* element 3"
    ):
        engine.step()
    assert engine.skipped_steps == 0 and engine.cur_scale == 4
    assert float(whole(model.weight)[3]) == -65000.0
    engine.destroy()
