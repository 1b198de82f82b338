# SPDX-License-Identifier: Apache-2.0
"""Configs of the kind that public repositories use train to the losses of DeepSpeed 0.19.8."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from losses import compare
from losses.configs import CASES

from meron.zero import dropin

# Relative; rounding in f32 causes about a third of this.
CLOSE = {"losses": 1e-6, "rates": 1e-9, "norms": 5e-6, "moved": 1e-4}
RUNS = [f"{name}, {word} the key" for name in CASES for word in ("with", "without")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> compare.Runs:
    """The runs with the package `deepspeed` of Meron."""
    path = dropin.python_path(os.environ.get("PYTHONPATH"))
    version, found = compare.train(tmp_path_factory.mktemp("losses"), path, timeout=280)
    assert version == f"{compare.VERSION}+meron"
    return found


def far(found: dict[str, float]) -> Iterator[str]:
    return (f"{key} differ by {value:.1e}" for key, value in found.items() if value > CLOSE[key])


@pytest.mark.parametrize("name", RUNS)
def test_trains_to_the_losses_of_deepspeed(name: str, runs: compare.Runs) -> None:
    assert not list(far(compare.differences(runs[name], compare.recorded()[name])))


@pytest.mark.parametrize("name", CASES)
def test_the_recorded_losses_depend_on_the_clipping_key(name: str) -> None:
    """Otherwise the comparison would not see an ignored key."""
    recorded = compare.recorded()
    clipped, default = (recorded[f"{name}, {word} the key"] for word in ("with", "without"))
    assert compare.differences(clipped, default)["losses"] > 10 * CLOSE["losses"]


@pytest.mark.parametrize("name", CASES)
def test_the_default_clips_in_each_run(name: str, runs: compare.Runs) -> None:
    """Otherwise the comparison would not see a default of 0."""
    assert max(runs[f"{name}, without the key"]["norms"]) > 1.01


@pytest.mark.skipif(
    not compare.is_installed(), reason=f"DeepSpeed {compare.VERSION} is not installed"
)
def test_deepspeed_has_the_recorded_losses(tmp_path: Path) -> None:
    version, found = compare.train(tmp_path, os.environ.get("PYTHONPATH", ""))
    assert version == compare.VERSION
    recorded = compare.recorded()
    assert sorted(found) == sorted(recorded) == sorted(RUNS)
    for name, run in found.items():
        assert not list(far(compare.differences(run, recorded[name]))), name
