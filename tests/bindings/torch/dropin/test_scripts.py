# SPDX-License-Identifier: Apache-2.0
"""Scripts of the kind that libraries document train to the losses of DeepSpeed 0.19.8."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from losses import compare
from scripts.cases import CASES, HOME

from meron.zero import dropin

for package in ("accelerate", "datasets", "lightning", "peft", "transformers", "trl"):
    pytest.importorskip(package, reason=f"{package} is not installed (tools/setup --integrations)")

CLOSE = 2e-6  # of the largest value of a series
SCRIPTS = sorted({script for script, _ in CASES.values()})


def named(script: str) -> list[str]:
    return [name for name, (of, _) in CASES.items() if of == script]


def apart(found: compare.Runs, name: str) -> list[str]:
    """What differs from the record, by more than rounding."""
    expected = compare.recorded(HOME)[name]
    assert found[name].keys() == expected.keys()
    far = {key: compare.apart(found[name][key], series) for key, series in expected.items()}
    return [f"{name}: {key} differ by {value:.1e}" for key, value in far.items() if value > CLOSE]


@pytest.mark.parametrize("script", SCRIPTS)
def test_trains_to_the_losses_of_deepspeed(script: str, tmp_path: Path) -> None:
    path = dropin.python_path(os.environ.get("PYTHONPATH"))
    version, found = compare.train(tmp_path, path, *named(script), home=HOME, timeout=280)
    assert version == f"{compare.VERSION}+meron"
    assert sorted(found) == sorted(named(script))
    assert not [words for name in found for words in apart(found, name)]


@pytest.mark.parametrize("name", CASES)
def test_the_losses_of_each_case_are_recorded_and_change(name: str) -> None:
    losses = compare.recorded(HOME)[name]["losses"]
    assert len(losses) >= 4 and max(losses) - min(losses) > 100 * CLOSE * max(map(abs, losses))


@pytest.mark.skipif(
    not compare.is_installed(), reason=f"DeepSpeed {compare.VERSION} is not installed"
)
@pytest.mark.parametrize("script", SCRIPTS)
def test_deepspeed_has_the_recorded_losses(script: str, tmp_path: Path) -> None:
    path = os.environ.get("PYTHONPATH", "")
    version, found = compare.train(tmp_path, path, *named(script), home=HOME)
    assert version == compare.VERSION
    assert not [words for name in found for words in apart(found, name)]
