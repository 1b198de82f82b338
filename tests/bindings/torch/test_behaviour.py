# SPDX-License-Identifier: Apache-2.0
"""What meron.torch promises beside parity (SOURCES have a function for each
promise)."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_ranks
from promises import check_promise, promises_of

HARD = Path(__file__).parent / "hard"
SOURCES = [HARD / f"{name}.py" for name in ("training", "residency", "errors", "values")]


@pytest.mark.parametrize(
    ("source", "promise"),
    [
        pytest.param(source, promise, id=f"{source.stem}-{promise}")
        for source in SOURCES
        for promise in promises_of(source)
    ],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_promise(ranks: int, source: Path, promise: str) -> None:
    check_promise(source, ranks, promise)


WRITES_IN_FORWARD = """
import torch
import meron.torch as mt

class Clamps(torch.nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-1, 1)  # this line
        return super().forward(x)

mt.shard(Clamps(2, 2))(torch.ones(1, 2))
"""


WITHOUT_COPY_ON_WRITE = """
from meron.torch.residency import copy_on_write
copy_on_write.place_of = lambda address: None
"""


def test_where_pages_cannot_be_copied_a_write_to_a_param_in_use_names_its_line() -> None:
    """And a warning that it would be a fault comes first, once for a context."""
    source = WITHOUT_COPY_ON_WRITE + WRITES_IN_FORWARD
    done = run_ranks(1, source=source)  # two would write into each other's lines
    assert done.returncode != 0
    assert "Segmentation fault" in done.stderr
    line = 1 + source.splitlines().index("            self.weight.clamp_(-1, 1)  # this line")
    assert f"line {line} in forward" in done.stderr
    assert done.stderr.count("rank 0: writes to params in use cannot be undone") == 1, done.stderr
    assert "(/proc/self/maps has no shared mapping" in done.stderr


WITHOUT_PROC = """
import logging

import torch

import meron
import meron.torch as mt
from meron.torch.residency import copy_on_write

said = []
handler = logging.Handler()
handler.emit = lambda record: said.append((record.levelname, record.getMessage()))
logging.getLogger("meron.torch").addHandler(handler)
plain_open, plain_descriptor = copy_on_write.os.open, copy_on_write.descriptor_of


def run(reason):
    before = len(said)
    with meron.open() as context:
        models = [mt.shard(torch.nn.Linear(2, 2), context=context) for _ in range(2)]
        for model in models:
            model(torch.ones(1, 2))
    assert [level for level, _ in said[before:]] == ["WARNING"] * bool(reason), said
    assert all(reason in text and "segmentation fault" in text for _, text in said[before:]), said


def no_pagemap(path, *arguments):
    if path == "/proc/self/pagemap":
        raise PermissionError(1, "Operation not permitted")
    return plain_open(path, *arguments)


run("")
copy_on_write.os.open = no_pagemap
run("/proc/self/pagemap: Operation not permitted")
copy_on_write.os.open = plain_open
copy_on_write.descriptor_of = lambda place: None
run("/proc/self/fd has no descriptor")
run("/proc/self/fd has no descriptor")
"""


def test_a_system_without_copy_on_write_is_warned_of_once_for_a_context() -> None:
    done = run_ranks(1, source=WITHOUT_PROC)
    assert done.returncode == 0, done.stderr


def test_a_write_to_a_param_in_use_is_an_exception_where_writes_are_checked() -> None:
    trained = WRITES_IN_FORWARD.replace("self.weight.clamp_(-1, 1)  # this line", "pass")
    trained = trained.replace("(torch.ones(1, 2))", "(torch.ones(1, 2)).sum().backward()")
    for source, code in ((WRITES_IN_FORWARD, 1), (trained, 0)):
        done = run_ranks(1, source=source, MERON_CHECK_WRITES="1")
        assert done.returncode == code, done.stderr
        assert ("RuntimeError: Cannot access data pointer" in done.stderr) == (code == 1)
        assert ("clamp_(-1, 1)  # this line" in done.stderr or "in forward" in done.stderr) == (
            code == 1
        )


SKIPS_A_LAYER = """
import os
import time

import torch

import meron
import meron.torch as mt


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(6))

    def forward(self, x, skip=None):
        for i, layer in enumerate(self.layers):
            if i != skip:
                x = layer(x)
        return x


model = mt.shard(Model(), units=torch.nn.Linear, persist_elements=0, prefetch_elements=AHEAD)
optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(3):
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
begun = time.monotonic()
try:
    model(torch.ones(2, WIDTH), 3 if os.environ["MERON_RANK"] == "1" else None).sum().backward()
    optimizer.step()
except meron.MismatchError as error:
    assert "layers.3" in str(error) and str(error).count("layers.") == 2, error
    assert time.monotonic() - begun < 1
else:
    raise AssertionError("nobody was told")
"""


@pytest.mark.parametrize("ahead", [0, 10**6])
def test_ranks_that_run_different_layers_are_told_both(ahead: int) -> None:
    source = SKIPS_A_LAYER.replace("WIDTH", "8").replace("AHEAD", str(ahead))
    done = run_ranks(2, source=source)
    assert done.returncode == 0, done.stderr
