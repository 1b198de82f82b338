# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint on sharded models: the files are torch's own, and the bits stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import forked
import pytest

HERE = Path(__file__).parent / "checkpoint"


def run(ranks: int, folder: Path, action: str, **job: Any) -> None:
    whole = {"plan": "zero3", "total": 2, **job, "folder": str(folder), "action": action}
    done = forked.run(ranks, HERE / "dcp_world.py", json.dumps(whole))
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("saved", "loaded", "more"),
    [
        ({"rule": "torch AdamW"}, {"plan": "zero2"}, {}),
        ({"rule": "engine AdamW", "low": True}, {"plan": "zero1"}, {"background": True}),
        (
            {"rule": "torch AdamW", "low": True, "plan": "mics(1)"},
            {"units": False},
            {"gloo": True, "background": True},
        ),
    ],
    ids=["torch", "engine-bf16-background", "replicated-bf16-gloo-async"],
)
def test_bits_stay_from_two_ranks_to_three_to_one(
    tmp_path: Path, saved: dict[str, Any], loaded: dict[str, Any], more: dict[str, Any]
) -> None:
    run(2, tmp_path, "save", to="saved1", **{**saved, **more})
    run(3, tmp_path, "load", to="saved2", **{"from": "saved1", **saved, **more, **loaded})
    run(1, tmp_path, "load", **{"from": "saved2", "and plain": not saved.get("low"), **saved})


def test_checkpoints_of_fsdp2_load(tmp_path: Path) -> None:
    run(2, tmp_path, "fsdp2", to="saved")
    theirs = {"from": "saved", "from fsdp2": True}
    run(3, tmp_path, "load", **theirs, rule="torch AdamW")
    run(2, tmp_path, "load", **theirs, rule="engine AdamW", gloo=True)


def test_a_rank_that_calls_alone_is_told(tmp_path: Path) -> None:
    run(2, tmp_path, "alone", rule="torch AdamW")
