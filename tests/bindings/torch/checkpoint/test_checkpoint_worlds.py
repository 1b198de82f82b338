# SPDX-License-Identifier: Apache-2.0
"""A run that loads a checkpoint continues with the bits of the run that saved it.

The two runs differ in plan, optimizer, number of ranks, or disks.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from checkpoint_model import RANK, RANKS, Job, build, digest, train

import meron
import meron.torch as mt

SAVED, LAST = 3, 6  # steps


@dataclass
class Outcome:
    """State of a run on one rank when it saves or has loaded, and what follows."""

    digest: str
    random: float | None
    after: list[str]  # digests after later steps
    rates: list[float]


def be_a_node(folder: Path, disk: int, action: str) -> Path:
    """Makes this rank a node of its own. Returns the folder on its disk."""
    os.environ["MERON_NODE"] = str(RANK)
    os.environ["MERON_TORCH_TRANSPORT"] = "group"
    meeting = f"file://{folder}/{action}"
    torch.distributed.init_process_group("gloo", meeting, rank=RANK, world_size=RANKS)
    torch.distributed.barrier()  # the group breaks if a rank ends before the others are connected
    return folder / f"disk{disk}"


def save(
    job: Job, folder: Path, background: bool = False, disks: list[int] | None = None
) -> Outcome:
    """Trains, saves, and trains on."""
    if disks is not None:
        folder = be_a_node(folder, disks[RANK], "save")
    model, optimizer, scheduler = build(job)
    train(job, model, optimizer, scheduler, 0, SAVED)
    handle = mt.save(
        folder,
        "it",
        model,
        optimizer,
        step=SAVED,
        scheduler=scheduler,
        extra={"position": 7},
        tensors={"mine": torch.arange(5)},
        background=background,
        **options_of(disks),
    )
    saved, random = digest(model, optimizer), torch.rand(1).item()
    after = train(job, model, optimizer, scheduler, SAVED, LAST)
    handle.wait()
    return Outcome(saved, random, after, rates_of(optimizer))


def load(job: Job, folder: Path, disks: list[int] | None = None) -> Outcome:
    """Loads, and trains on."""
    if disks is not None:
        folder = be_a_node(folder, disks[RANK], "load")
    model, optimizer, scheduler = build(job)
    loaded = mt.load(folder, None, model, optimizer, scheduler=scheduler, **options_of(disks))
    assert (loaded.step, loaded.extra) == (SAVED, {"position": 7})
    assert torch.equal(loaded.tensors["mine"], torch.arange(5))
    assert int(model.passes) > 0
    found, random = digest(model, optimizer), torch.rand(1).item() if loaded.rng else None
    after = train(job, model, optimizer, scheduler, SAVED, LAST)
    return Outcome(found, random, after, rates_of(optimizer))


def options_of(disks: list[int] | None) -> dict[str, Any]:
    return {} if disks is None else {"per_node": True}


def rates_of(optimizer: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


def job_of(plan: str, rule: str, **others: Any) -> Job:
    """A job of two micro-batches per step: their mean is exact on one rank and on two."""
    return {"plan": plan, "rule": rule, "total": 2, **others}


# In bf16 the number of ranks stays: one rank sums the gradients of its micro-batches in bf16.
@pytest.mark.parametrize(
    ("saving", "saved", "background", "loading", "loaded"),
    [
        (2, job_of("zero3", "engine AdamW"), False, 2, job_of("zero3", "engine AdamW")),
        (2, job_of("zero3", "torch AdamW"), False, 1, job_of("zero0", "torch AdamW", units=False)),
        (1, job_of("zero2", "torch SGD"), False, 2, job_of("mics(1)", "torch SGD", units=False)),
        (2, job_of("zero0", "torch RMSprop"), True, 2, job_of("zero3", "torch RMSprop")),
        (
            2,
            job_of("zero3", "engine AdamW", low=True),
            False,
            2,
            job_of("zero1", "engine AdamW", low=True),
        ),
        (
            2,
            job_of("zero3", "torch AdamW", low=True),
            False,
            2,
            job_of("zero2", "torch AdamW", low=True),
        ),
    ],
    ids=[
        "engine_AdamW",
        "torch_AdamW_zero3_to_zero0_on_one_rank",
        "torch_SGD_zero2_to_mics_on_two_ranks",
        "torch_RMSprop_zero0_in_background_to_zero3",
        "engine_AdamW_bf16_zero3_to_zero1",
        "torch_AdamW_bf16_zero3_to_zero2",
    ],
)
def test_resumes_with_the_same_bits_under_another_plan(
    tmp_path: Path, saving: int, saved: Job, background: bool, loading: int, loaded: Job
) -> None:
    before = ranks.call(saving, save, saved, tmp_path, background)
    after = ranks.call(loading, load, {**loaded, "seed": 1}, tmp_path)
    assert after[0].digest == before[0].digest
    assert after[0].after == before[0].after
    assert after[0].rates == before[0].rates
    if saving == loading:
        assert [each.random for each in after] == [each.random for each in before]


@pytest.mark.parametrize(
    ("saving", "saved", "loading", "loaded"),
    [
        (3, "engine Adagrad", 2, "torch Adagrad"),
        (2, "torch SGD", 3, "engine SGD"),
        (2, "torch AdamW", 2, "engine AdamW"),
    ],
)
def test_states_move_between_torch_and_the_engine(
    tmp_path: Path, saving: int, saved: str, loading: int, loaded: str
) -> None:
    before = ranks.call(saving, save, job_of("zero3", saved, low=True), tmp_path)
    after = ranks.call(loading, load, job_of("zero2", loaded, low=True), tmp_path)
    assert after[0].digest == before[0].digest


# Each rank is a node with a disk of its own. Two nodes save; they load in another order, or with a
# third node.
@pytest.mark.parametrize(
    ("rule", "loaded", "disks"),
    [
        ("torch AdamW", "torch AdamW", [1, 0]),
        ("engine AdamW", "engine AdamW", [2, 0, 1]),
        ("torch AdamW", "engine AdamW", [1, 0]),
    ],
    ids=["two_nodes_swapped", "a_third_node", "another_optimizer"],
)
def test_loads_from_the_folders_of_all_nodes(
    tmp_path: Path, rule: str, loaded: str, disks: list[int]
) -> None:
    job = job_of("zero3", rule, low=True)
    before = ranks.call(2, save, job, tmp_path, disks=[0, 1])
    assert len(list(tmp_path.glob("disk0/it/*-00000-of-*.safetensors"))) == 2
    assert not list(tmp_path.glob("disk0/it/*-00001-of-*.safetensors"))
    after = ranks.call(len(disks), load, {**job, "rule": loaded, "seed": 1}, tmp_path, disks=disks)
    assert after[0].digest == before[0].digest
    if len(disks) == 2 and loaded == rule:
        assert after[0].after == before[0].after
        assert [each.random for each in after] == [each.random for each in before]


def go_back(folder: Path) -> list[str]:
    """Saves three steps, goes back to the first, and saves one more. Each rank is a node."""
    folder = be_a_node(folder, RANK, "save")
    model, optimizer, _ = build(job_of("zero3", "torch AdamW"))

    def save(name: str, step: int) -> None:
        mt.save(folder, name, model, optimizer, step=step, per_node=True)

    for step in (1, 2, 3):
        save(f"first-{step}", step)
    mt.load(folder, "first-1", model, optimizer, per_node=True)
    save("second-2", 2)
    return sorted(path.parent.name for path in folder.glob("*/meron.json"))


def load_newest(folder: Path, action: str, name: str | None = None) -> tuple[int, list[str]]:
    """The step of the newest checkpoint in the nodes' folders, and what was logged."""
    folder = be_a_node(folder, RANK, action)
    model, optimizer, _ = build(job_of("zero3", "torch AdamW"))
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("meron.torch").addHandler(handler)
    return mt.load(folder, name, model, optimizer, per_node=True).step, said


def test_folders_of_nodes_continue_the_run_that_saved_last(tmp_path: Path) -> None:
    names = ["first-1", "first-2", "first-3", "second-2"]
    assert ranks.call(2, go_back, tmp_path) == [names, names]
    found = ranks.call(2, load_newest, tmp_path, "load")
    assert [step for step, _ in found] == [2, 2]
    assert len(found[0][1]) == 1 and "'first-3' has a higher step" in found[0][1][0]
    for path in tmp_path.glob("disk*/*/history.json"):
        path.unlink()
    again = ranks.call(2, load_newest, tmp_path, "load again")
    assert [step for step, _ in again] == [3, 3]


def refuses_newest(folder: Path) -> str:
    with pytest.raises((meron.CorruptError, meron.ParseError)) as caught:
        load_newest(folder, "load")
    return str(caught.value)


@pytest.mark.parametrize("file", ["meron.json", "history.json"])
def test_a_damaged_checkpoint_in_a_nodes_folder_is_not_passed_over(
    tmp_path: Path, file: str
) -> None:
    ranks.call(2, go_back, tmp_path)
    path = tmp_path / "disk1" / "second-2" / file
    path.write_bytes(path.read_bytes()[:-20])
    for text in ranks.call(2, refuses_newest, tmp_path):
        assert "second-2" in text and "rank 1's folder" in text and "by its name" in text
    assert ranks.call(2, load_newest, tmp_path, "load by name", "first-3")[0][0] == 3


def test_an_incomplete_checkpoint_of_nodes_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    ranks.call(2, go_back, tmp_path)
    for path in (tmp_path / "disk1" / "second-2").glob("*.safetensors"):
        path.unlink()
    found = ranks.call(2, load_newest, tmp_path, "load")
    assert [step for step, _ in found] == [3, 3]
    assert len(found[0][1]) == 1 and "second-2 lacks the files of node 1" in found[0][1][0]
