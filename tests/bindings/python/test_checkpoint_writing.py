# SPDX-License-Identifier: Apache-2.0
"""meron.write_checkpoint: tensors of the caller without a context, and an engine that loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
from checkpoint_tensors import WHOLE, documented_read, manifest_of, part

import meron


def test_write_checkpoint_needs_no_context(tmp_path: Path) -> None:
    optimizers = [
        {
            "rule": "adamw",
            "steps": 7,
            "groups": [
                {
                    "learning_rate": 0.5,
                    "beta1": 0.5,
                    "beta2": 0.25,
                    "epsilon": 0.125,
                    "weight_decay": 0,
                }
            ],
        }
    ]
    tensors = [
        part(WHOLE, 0, 7, name="w", kind="values"),
        part(WHOLE, 7, name="w", kind="values"),
        part(np.array(3.0, "<f4"), name="w", kind="state.step"),
    ]
    meron.write_checkpoint(
        tmp_path, "one", tensors, step=7, extra={"epoch": 1}, optimizers=optimizers
    )
    with meron.open_checkpoint(tmp_path) as opened:
        assert (opened.step, opened.world, opened.extra) == (7, 1, {"epoch": 1})
        assert opened.manifest["optimizers"] == optimizers
        np.testing.assert_array_equal(opened.read("w"), WHOLE)
        assert opened.read("w", "state.step") == 3
    with pytest.raises(meron.DuplicateError):
        meron.write_checkpoint(tmp_path, "one", tensors)
    meron.write_checkpoint(tmp_path, "one", tensors[2:], overwrite=True)
    assert [t["kind"] for t in manifest_of(tmp_path / "one")["tensors"]] == ["state.step"]


def test_write_checkpoint_rejects_the_same_as_a_save(tmp_path: Path) -> None:
    for tensors, options, words in [
        ([part(WHOLE, 0, 3)], {}, "no rank gives elements 3 to 19"),
        ([part(WHOLE, kind="extra.1")], {}, "extra"),
        ([], {"optimizers": [{"rule": "adamw"}]}, "optimizers"),
        ([], {"extra": {"a": float("nan")}}, "JSON"),
        ([part(WHOLE)], {"name": "a/b"}, "more than one component"),
    ]:
        arguments: dict[str, Any] = {"name": "one", **options}
        with pytest.raises(meron.Error, match=words):
            meron.write_checkpoint(tmp_path, tensors=tensors, **arguments)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    meron.write_checkpoint(tmp_path, "one", [])
    assert manifest_of(tmp_path / "one")["tensors"] == []


def test_write_checkpoint_streams_mapped_files(tmp_path: Path) -> None:
    source = np.memmap(tmp_path / "source", "<f4", "w+", shape=(3 << 20,))
    source[:] = np.arange(source.size)
    meron.write_checkpoint(tmp_path, "one", [part(source, name="w", kind="values")])
    np.testing.assert_array_equal(documented_read(tmp_path / "one", "values")["w"], source)


def test_states_of_the_caller_and_of_the_engine_are_the_same_kinds(tmp_path: Path) -> None:
    """An optimizer of the engine resumes from states that a caller wrote, and vice versa."""
    generator = np.random.default_rng(3)
    written = {kind: generator.random((6, 5)).astype("<f4") for kind in ("exp_avg", "exp_avg_sq")}
    values = generator.random((6, 5)).astype("<f4")
    numbers = {"learning_rate": 0.5, "beta1": 0.5, "beta2": 0.25, "epsilon": 0.125}
    meron.write_checkpoint(
        tmp_path,
        "written",
        [
            part(values, name="w", kind="values"),
            *(part(state, name="w", kind=kind) for kind, state in written.items()),
        ],
        optimizers=[{"rule": "adamw", "steps": 9, "groups": [{**numbers, "weight_decay": 0.0}]}],
    )

    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (6, 5))
        optimizer = ctx.adamw([ctx.unit("u", [param])], lr=0.1)
        assert ctx.load(tmp_path, "written", [optimizer]).missing == ()
        assert optimizer.steps == 9
        for kind, state in written.items():
            shard_range = state.reshape(-1)[param.shard_range.start : param.shard_range.stop]
            np.testing.assert_array_equal(optimizer.state(param, kind), shard_range)
        ctx.save(tmp_path, "saved", [optimizer])

    ranks.threads(3, body, plan="zero3")
    with meron.open_checkpoint(tmp_path, "saved") as opened:
        np.testing.assert_array_equal(opened.read("w"), values)
        for kind, state in written.items():
            np.testing.assert_array_equal(opened.read("w", kind), state)
