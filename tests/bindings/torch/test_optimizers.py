# SPDX-License-Identifier: Apache-2.0
"""The engine's rules as optimizers of torch, on 1 to 4 ranks: the programs of the folder
optimizers."""

from __future__ import annotations

import os
from pathlib import Path

import forked
import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("program", "ranks"),
    [
        *(
            (program, ranks)
            for program in ("twins", "checkpoints", "groups")
            for ranks in (1, 2, 3)
        ),
        ("twins", 4),
        ("failing", 1),
        ("failing", 2),
    ],
)
def test_a_program(program: str, ranks: int) -> None:
    # The programs of zero lend how cases run.
    path = os.pathsep.join([str(HERE / "zero"), os.environ.get("PYTHONPATH", "")])
    done = forked.run(ranks, HERE / "optimizers" / f"{program}.py", PYTHONPATH=path)
    # Not an assertion's own display: what the ranks wrote says it all.
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    assert sorted(done.stdout.split("\n")[:-1]) == [f"rank {rank} done" for rank in range(ranks)]
