# SPDX-License-Identifier: Apache-2.0
"""A trainer whose ranks meet in a directory gets the bits of `meron run` and leaves no file."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

COMMAND = os.environ["MERON_COMMAND"]
PROGRAM = os.environ["MERON_LANGUAGE_MODEL"]
PATIENCE = 120  # seconds after which a test that hangs fails
RANKS = 3
WORDS = ["--steps", "4", "--width", "96", "--layers", "1", "--product", "plain"]
WORDS += ["--quiet", "--json"]
VARIABLES = {
    "meron": ("MERON_RANK", "MERON_WORLD_SIZE"),
    "torchrun": ("RANK", "WORLD_SIZE"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS"),
    "PMI": ("PMI_RANK", "PMI_SIZE"),
}


def environment(store: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MERON_TOKEN")}
    return {**kept, "OMP_NUM_THREADS": "1", "MERON_STORE": str(store), **more}


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    path = tmp_path_factory.mktemp("run") / "run.json"
    words = [COMMAND, "run", "-n", str(RANKS), "--", PROGRAM, *WORDS, str(path)]
    subprocess.run(words, check=True, timeout=PATIENCE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    result: list[float] = json.loads(path.read_text())["losses"]
    return result


def check(path: Path, store: Path, losses: list[float]) -> None:
    report = json.loads(path.read_text())
    assert report["transport"] == "shm"
    assert report["losses"] == losses
    assert not list(store.iterdir())


def test_a_loop_of_the_shell(tmp_path: Path, losses: list[float]) -> None:
    """As docs/launchers.md has it."""
    store, path = tmp_path / "store", tmp_path / "loop.json"
    store.mkdir()
    script = f"""
        for rank in $(seq 0 {RANKS - 1}); do MERON_RANK=$rank "$@" & done
        for job in $(jobs -p); do wait $job || exit 1; done
    """
    words = ["bash", "-c", script, "loop", PROGRAM, *WORDS, str(path)]
    told = environment(store, MERON_JOB="first-try", MERON_WORLD_SIZE=str(RANKS))
    subprocess.run(words, check=True, timeout=PATIENCE, env=told)
    check(path, store, losses)


@pytest.mark.parametrize("launcher", VARIABLES)
def test_ranks_from_the_variables_of_launchers(
    tmp_path: Path, losses: list[float], launcher: str
) -> None:
    store, path = tmp_path / "store", tmp_path / "result.json"
    store.mkdir()
    rank_name, size_name = VARIABLES[launcher]
    ranks = [
        subprocess.Popen(
            [PROGRAM, *WORDS, str(path)],
            env=environment(store, **{rank_name: str(rank), size_name: str(RANKS)}),
        )
        for rank in range(RANKS)
    ]
    assert [rank.wait(timeout=PATIENCE) for rank in ranks] == [0] * RANKS
    check(path, store, losses)
