# SPDX-License-Identifier: Apache-2.0
"""A checkpoint whose author is hostile or mistaken: load_checkpoint raises Meron's errors, and
nothing has changed."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from adam_engine import assert_same, made, state, steps

import meron
from meron.checkpoint import CheckpointTensor, open_checkpoint, write_checkpoint
from model import RANK, RANKS

pytestmark = pytest.mark.ranks(1, 2)

CLIENT_STATES: dict[str, Any] = {
    "a function as dtype": {"$tensor": ["load", [1], [1]]},
    "an unknown dtype": {"$tensor": ["nonesuch", [1], [1]]},
    "a large shape": {"$tensor": ["float32", [10**12], [1]]},
    "no number": {"$float": "x"},
    "an unhashable key": {"$dict": [[[1], 2]]},
    "an absent tensor": {"x": {"$dict": [["$meron.tensor", "nope"]]}},
    "an unknown object": {"$call": ["os.system", "true"]},
    "no JSON": "{",
    "deep": "[" * 100_000 + "]" * 100_000,
    "a list": [1, 2],
    "a number": 3,
}
SCHEDULER = json.dumps({"last_batch_iteration": "x"})


class Source:
    """A good checkpoint. Writes copies with another `extra`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        engine = made()
        steps(engine, 0, 1)
        engine.save_checkpoint(folder / "good", "a", client_state={"t": torch.ones(3)})
        engine.destroy()
        with open_checkpoint(folder / "good", "a") as found:
            self.extra = found.extra
            self.optimizers = found.manifest["optimizers"]
            self.tensors = [
                CheckpointTensor(
                    name, each["dtype"], tuple(each["shape"]), found.read(name, kind), 0, kind
                )
                for (kind, name), each in found.tensors.items()
            ]

    def write(self, engine: Any, extra: dict[str, Any]) -> Path:
        """All ranks share the folder, so rank 0 writes."""
        path = self.folder / "edited"
        world = engine.sharding.context.world
        world.barrier()
        if RANK == 0:
            shutil.rmtree(path, ignore_errors=True)
            write_checkpoint(
                path, "a", self.tensors, step=1, extra=extra, optimizers=self.optimizers
            )
            (path / "latest").write_text("a\n")
        world.barrier()
        return path


def refuses(engine: Any, path: Path, words: str) -> None:
    """load_checkpoint raises one of Meron's errors, and changes nothing."""
    before = state(engine), engine.get_lr(), engine.global_steps, torch.get_rng_state()
    with pytest.raises(meron.Error, match=words):
        pytest.fail(f"{words}: {engine.load_checkpoint(path)}")
    assert_same(state(engine), before[0])
    assert (engine.get_lr(), engine.global_steps) == before[1:3]
    assert torch.equal(torch.get_rng_state(), before[3])


def test_a_hostile_client_state_changes_nothing(tmp_path: Path) -> None:
    source = Source(tmp_path)
    engine = made(seed=3)
    for value in CLIENT_STATES.values():
        extra = copy.deepcopy(source.extra)
        text = value if isinstance(value, str) else json.dumps(value)
        extra["meron.zero"]["client_state"] = text
        refuses(
            engine, source.write(engine, extra), "client_state of the checkpoint cannot be read"
        )
    assert engine.load_checkpoint(source.write(engine, source.extra))[0] is not None
    engine.destroy()


def test_a_hostile_state_of_the_engine_changes_nothing(tmp_path: Path) -> None:
    source = Source(tmp_path)
    engine = made(seed=3)
    for owner, key, value, words in (
        ("meron.zero", "global_steps", "x", "a wrong counter"),
        ("meron.zero", "micro_steps", -1, "a wrong counter"),
        ("meron.zero", "loss_scale", {"value": "x"}, "state of the loss scale"),
        ("meron.torch", "version", "x", "'version'"),
        ("meron.torch", "optimizers", {}, "'optimizers'"),
        ("meron.torch", "optimizers", [{"class": "AdamW", "engine": True}], "'optimizers'"),
        ("meron.torch", "aliases", [1], "'aliases'"),
        ("meron.torch", "schedulers", ["{"], "the state of WarmupLR"),
        ("meron.torch", "schedulers", [SCHEDULER], "last_batch_iteration is 'x'"),
        ("meron.torch", "schedulers", ["[]"], "for WarmupLR lacks a dict"),
        ("meron.torch", "schedulers", 3, "'schedulers'"),
    ):
        extra = copy.deepcopy(source.extra)
        extra[owner][key] = value
        refuses(engine, source.write(engine, extra), words)
    extra = copy.deepcopy(source.extra)
    extra["meron.torch"]["optimizers"][0]["groups"][0]["lr"] = "fast"
    refuses(engine, source.write(engine, extra), "lr='fast'")
    for owner in ("meron.zero", "meron.torch"):
        path = source.write(engine, {**source.extra, owner: 3})
        refuses(engine, path, "of the checkpoint cannot be read")
    engine.destroy()


def test_a_wrong_random_state_changes_nothing(tmp_path: Path) -> None:
    source = Source(tmp_path)
    engine = made(seed=3)
    for number, each in enumerate(source.tensors):
        if each.name.startswith("meron.torch.rng") and RANKS == 1:
            short = CheckpointTensor(each.name, "U8", (100,), each.data.reshape(-1)[:100].copy())
            source.tensors[number] = short
            refuses(engine, source.write(engine, source.extra), "random numbers of cpu")
    engine.destroy()


def test_a_latest_that_names_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    source = Source(tmp_path)
    engine = made(seed=3)
    path = source.write(engine, source.extra)
    texts = (b"", b"\n", b"../good/a", b"/etc", b"..", b"\0", b"x" * 100_000, b"\xff\xfe")
    for text in texts:
        if RANK == 0:
            (path / "latest").write_bytes(text)
        engine.sharding.context.world.barrier()
        refuses(engine, path, "latest names no checkpoint")
    engine.destroy()
