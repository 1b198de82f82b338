# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that earlier versions wrote are loaded with their bits, at any number of ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import ranks
from cases import (
    CASES,
    EXTRA,
    NAME,
    SHAPES,
    VERSIONS,
    Case,
    begin,
    bits,
    build,
    expected_of,
    folder_of,
    train,
)

import meron

KEPT = [(version, name) for version in VERSIONS for name in CASES]


def test_each_version_kept_each_case() -> None:
    assert "0.2" in VERSIONS
    for version, name in KEPT:
        assert (folder_of(version, name) / "latest").exists(), f"keep.py {version}"


@pytest.mark.parametrize(("version", "name"), KEPT)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_kept_checkpoint_is_loaded_with_its_bits(version: str, name: str, count: int) -> None:
    case = CASES[name]
    whole = not case.save

    def body(context: meron.Context) -> dict[str, str]:
        model = build(context, case)
        begin(context, model)
        optimizers = [model.optimizer] if whole else []
        loaded = context.load(
            folder_of(version, name), optimizers=optimizers, values_only=not whole
        )
        with loaded:
            assert (loaded.step, loaded.extra) == (42, EXTRA)
            seen = loaded.read("seen", "extra")
        np.testing.assert_array_equal(seen, np.arange(20, dtype="<i8").reshape(4, 5))
        if whole:
            assert model.optimizer.steps == 3
            assert model.optimizer.param_steps(model.params["half"]) == 3
        found = bits(context, model, case)
        train(model, 1)  # it can go on
        return found

    expected = expected_of(version, name)
    for found in ranks.threads(count, body, plan=case.plan):
        for tensor, value in expected.items():
            if whole or "." not in tensor:
                assert found[tensor] == value, tensor


@pytest.mark.parametrize(("version", "name"), KEPT)
def test_a_kept_checkpoint_is_read_without_a_context(version: str, name: str) -> None:
    expected = expected_of(version, name)
    with meron.open_checkpoint(folder_of(version, name), NAME) as opened:
        for tensor, (shape, _) in SHAPES.items():
            values = opened.read(tensor)
            assert values.shape == shape
            assert np.ascontiguousarray(values).tobytes().hex() == expected[tensor]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_save_beside_a_kept_checkpoint_leaves_it(version: str, tmp_path: Path) -> None:
    """This version adds to a folder that an earlier one wrote."""
    case: Case = CASES["adamw"]
    folder = tmp_path / "run"
    shutil.copytree(folder_of(version, "adamw"), folder)

    def body(context: meron.Context) -> None:
        model = build(context, case)
        context.load(folder, optimizers=[model.optimizer]).release()
        train(model, 1)
        context.save(folder, "step-43", [model.optimizer], step=43)

    ranks.threads(2, body, plan=case.plan)
    for name, step in ((None, 43), (NAME, 42)):
        with meron.open_checkpoint(folder, name) as opened:
            assert opened.step == step
