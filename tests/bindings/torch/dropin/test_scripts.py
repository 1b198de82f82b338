# SPDX-License-Identifier: Apache-2.0
"""Scripts of the kind that libraries document train to the losses of DeepSpeed 0.19.8."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path

import pytest
from losses import compare
from scripts.cases import CASES, HOME, TOGETHER

from meron.zero import dropin

for package in ("accelerate", "datasets", "lightning", "peft", "transformers", "trl"):
    pytest.importorskip(package, reason=f"{package} is not installed (tools/setup --integrations)")

# Relative to the largest value of a series; rounding in f32 causes about a third of this.
CLOSE, CLOSE_NORMS = 2e-6, 5e-6


def named(scripts: tuple[str, ...]) -> list[str]:
    """The cases of scripts."""
    return [name for name, (script, _) in CASES.items() if script in scripts]


def far(found: compare.Runs) -> list[str]:
    """The series that differ from the record by more than rounding."""
    words = []
    for name, run in found.items():
        expected = compare.recorded(HOME)[name]
        assert run.keys() == expected.keys()
        for key, series in expected.items():
            close = CLOSE_NORMS if key == "norms" else CLOSE
            if (value := compare.apart(run[key], series)) > close:
                words.append(f"{name}: {key} differ by {value:.1e}")
    return words


@pytest.mark.parametrize("scripts", TOGETHER, ids=" ".join)
def test_train_to_the_losses_of_deepspeed(scripts: tuple[str, ...], tmp_path: Path) -> None:
    path, names = dropin.python_path(os.environ.get("PYTHONPATH")), named(scripts)
    version, found = compare.train(tmp_path, path, *names, home=HOME, timeout=280)
    assert version == f"{compare.VERSION}+meron"
    assert sorted(found) == sorted(names)
    assert not far(found)


def test_each_case_is_recorded_with_losses_that_change() -> None:
    recorded = compare.recorded(HOME)
    assert sorted(recorded) == sorted(named(tuple(chain(*TOGETHER))))
    for name, run in recorded.items():
        losses = run["losses"]
        least = 100 * CLOSE * max(map(abs, losses))
        assert len(losses) >= 4 and max(losses) - min(losses) > least, name


@pytest.mark.skipif(
    not compare.is_installed(), reason=f"DeepSpeed {compare.VERSION} is not installed"
)
def test_deepspeed_has_the_recorded_losses(tmp_path: Path) -> None:
    version, found = compare.train(tmp_path, os.environ.get("PYTHONPATH", ""), home=HOME)
    assert version == compare.VERSION
    assert not far(found)
