# SPDX-License-Identifier: Apache-2.0
"""meron.zero on 1 to 4 ranks: the programs of the folder zero."""

from __future__ import annotations

import os
from pathlib import Path

import forked
import pytest

PROGRAMS = Path(__file__).parent / "zero"


@pytest.mark.parametrize(
    ("program", "ranks"),
    [
        ("engine", 1),
        ("engine", 2),
        ("engine", 3),
        ("steps", 1),
        ("steps", 3),
        ("accumulation", 2),
        ("precision", 1),
        ("precision", 2),
        ("reports", 2),
        ("gradients", 2),
        ("frozen", 2),
        ("build", 1),
        ("build", 3),
        ("params", 3),
        ("tiling", 2),
        ("generation", 1),
        ("generation", 2),
        ("groups", 3),
        ("groups", 4),
        ("mesh", 4),
        ("misuse", 2),
        ("optimizers", 1),
        ("optimizers", 2),
        ("optimizers", 3),
        ("offload", 1),
        ("offload", 3),
        ("dist_module", 1),
        ("dist_module", 3),
        ("pretrained", 1),
        ("pretrained", 2),
        ("checkpoint", 1),
        ("checkpoint", 2),
    ],
)
def test_a_program(program: str, ranks: int, tmp_path: Path) -> None:
    run_program(program, ranks, tmp_path)


def test_a_checkpoint_loads_at_other_numbers_of_ranks(tmp_path: Path) -> None:
    for ranks in (2, 3, 1):
        run_program("resume", ranks, tmp_path)


def test_models_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="from_pretrained: transformers is not installed")
    run_program("transformers_models", 2, tmp_path)


def run_program(program: str, ranks: int, tmp_path: Path) -> None:
    path = f"{PROGRAMS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = forked.run(
        ranks, PROGRAMS / f"{program}.py", PYTHONPATH=path, MEETING=str(tmp_path / "meeting")
    )
    # Not an assertion's own display: what the ranks wrote says it all.
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    # (Of other packages some print, too, such as a DeepSpeed that transformers finds.)
    lines = [line for line in done.stdout.splitlines() if line.startswith("rank ")]
    assert sorted(lines) == [f"rank {rank} done" for rank in range(ranks)]
