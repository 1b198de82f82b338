# SPDX-License-Identifier: Apache-2.0
"""Lightning finds the ranks of `meron run`, which sets torchrun's variables too."""

from __future__ import annotations

import pytest

pytest.importorskip("lightning")

from meron.lightning import environment
from meron.lightning.trees import tree

MERON = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
TORCHRUN = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4321"}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of rank 1 of 2; RANK and WORLD_SIZE are of an outer job."""
    for name, value in MERON.items():
        monkeypatch.setenv(f"MERON_{name}", value)
        monkeypatch.setenv(name, "7")
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)


def test_takes_rank_and_port_from_meron_run(launched: None) -> None:
    chosen = environment.chosen(tree("lightning"), None)
    assert chosen is not None and chosen.creates_processes_externally
    assert (chosen.global_rank(), chosen.local_rank(), chosen.world_size()) == (1, 1, 2)
    assert (chosen.main_address, chosen.main_port) == ("127.0.0.1", 4321)


def test_keeps_the_environment_of_the_caller(launched: None) -> None:
    given = object()
    assert environment.chosen(tree("lightning"), given) is given


def test_is_not_chosen_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MERON:
        monkeypatch.delenv(f"MERON_{name}", raising=False)
        monkeypatch.setenv(name, MERON[name])
    assert environment.chosen(tree("lightning"), None) is None
