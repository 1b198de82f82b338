# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of meron.torch: what is loaded goes on with the bits of what was saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import forked
import pytest
from conftest import run_ranks
from promises import check_promise, promises_of

HERE = Path(__file__).parent / "checkpoint"
PROMISES = [HERE / "promised.py", HERE / "resumed_states.py"]
Job = dict[str, Any]


def run(ranks: int, folder: Path, job: Job) -> list[Job]:
    out = folder / job["action"]
    out.mkdir()
    whole = {"first": 3, "last": 6, "total": 2, **job, "folder": str(folder), "out": str(out)}
    done = forked.run(ranks, HERE / "training.py", json.dumps(whole))
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((out / str(rank)).read_text()) for rank in range(ranks)]


def job_of(plan: str, rule: str, **others: Any) -> Job:
    return {"plan": plan, "rule": rule, **others}


# How many ranks save, and how; how many load, and how. Micro-batches of a step are two, whose mean
# is exact, so that training has the same bits at one rank and at two (in f32: one rank sums bf16
# gradients of its micro-batches in bf16).
@pytest.mark.parametrize(
    ("ranks", "saved", "others", "loaded"),
    [
        (2, job_of("zero3", "engine AdamW"), 2, job_of("zero3", "engine AdamW")),
        (2, job_of("zero3", "torch AdamW"), 1, job_of("zero0", "torch AdamW", units=False)),
        (1, job_of("zero2", "torch SGD"), 2, job_of("mics(1)", "torch SGD", units=False)),
        (2, job_of("zero0", "torch RMSprop", background=True), 2, job_of("zero3", "torch RMSprop")),
        (
            2,
            job_of("zero3", "engine AdamW", low=True),
            2,
            job_of("zero1", "engine AdamW", low=True),
        ),
        (2, job_of("zero3", "torch AdamW", low=True), 2, job_of("zero2", "torch AdamW", low=True)),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_training_goes_on_with_the_same_bits(
    tmp_path: Path, ranks: int, saved: Job, others: int, loaded: Job
) -> None:
    before = run(ranks, tmp_path, {"action": "save", **saved})
    after = run(others, tmp_path, {"action": "load", "seed": 1, **loaded})
    for key in ("digest", "after", "rates"):
        assert after[0][key] == before[0][key], key
    if ranks == others:
        for mine, theirs in zip(after, before):
            assert mine["random"] == theirs["random"]


@pytest.mark.parametrize(
    ("ranks", "saved", "others", "loaded"),
    [
        (3, "engine Adagrad", 2, "torch Adagrad"),
        (2, "torch SGD", 3, "engine SGD"),
        (2, "torch AdamW", 2, "engine AdamW"),
    ],
)
def test_states_move_between_torch_and_the_engine(
    tmp_path: Path, ranks: int, saved: str, others: int, loaded: str
) -> None:
    before = run(ranks, tmp_path, {"action": "save", **job_of("zero3", saved, low=True)})
    after = run(others, tmp_path, {"action": "load", **job_of("zero2", loaded, low=True)})
    assert after[0]["digest"] == before[0]["digest"]


# Each rank is a node that sees its own disk only: two nodes save, and come back in another order,
# or with a third.
@pytest.mark.parametrize(
    ("rule", "loaded", "disks"),
    [
        ("torch AdamW", "torch AdamW", [1, 0]),
        ("engine AdamW", "engine AdamW", [2, 0, 1]),
        ("torch AdamW", "engine AdamW", [1, 0]),
    ],
)
def test_a_folder_per_node(tmp_path: Path, rule: str, loaded: str, disks: list[int]) -> None:
    job = job_of("zero3", rule, low=True)
    before = run(2, tmp_path, {"action": "save", "disks": [0, 1], **job})
    assert len(list(tmp_path.glob("disk0/it/*-00000-of-*.safetensors"))) == 2
    assert not list(tmp_path.glob("disk0/it/*-00001-of-*.safetensors"))
    job["rule"] = loaded
    after = run(len(disks), tmp_path, {"action": "load", "seed": 1, "disks": disks, **job})
    assert after[0]["digest"] == before[0]["digest"]
    if len(disks) == 2 and loaded == rule:
        assert after[0]["after"] == before[0]["after"]
        assert [each["random"] for each in after] == [each["random"] for each in before]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("program", "promise"),
    [(program, promise) for program in PROMISES for promise in promises_of(program)],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_promise(program: Path, promise: str, ranks: int) -> None:
    check_promise(program, ranks, promise)


@pytest.mark.parametrize("weights", ["tied", "free"])
def test_a_llama_of_transformers(tmp_path: Path, weights: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    done = run_ranks(2, HERE / "llama.py", tmp_path, weights)
    assert done.returncode == 0, done.stderr[-3000:]
