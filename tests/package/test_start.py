# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/start keep their word: their programs, built and run by their commands against
an installed tree, print what the pages say. (The wheel's test has Python's page.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import BUILD, ROOT, blocks, run, shown

PAGE = (ROOT / "docs" / "start" / "c.md").read_text()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory in which the first step of the page was done."""
    place = tmp_path_factory.mktemp("home")
    run("cmake", "--install", BUILD, "--prefix", place / ".local", cwd=place)
    (place / "fit.c").write_text(blocks(PAGE, "c")[0])
    (place / "fit.cpp").write_text(blocks(PAGE, "cpp")[0])
    return place


def follow(home: Path, *commands: str) -> str:
    return run("bash", "-euc", "\n".join(commands), cwd=home, HOME=str(home))


def test_the_first_step_installs_what_the_tests_install() -> None:
    assert 'cmake --install build/release --prefix "$HOME/.local"' in blocks(PAGE, "sh")[0]


def test_c(home: Path) -> None:
    printed = follow(home, blocks(PAGE, "sh")[1])
    assert sorted(printed.splitlines()) == sorted(shown(PAGE))


def test_cxx(home: Path) -> None:
    environment = blocks(PAGE, "sh")[1].splitlines()[0]
    printed = follow(home, environment, blocks(PAGE, "sh")[2])
    losses = re.findall(r"loss ([\d.e-]+)", printed)
    expected = re.findall(r"loss ([\d.]+)", "\n".join(shown(PAGE)))
    assert [round(float(loss), 6) for loss in losses] == [float(loss) for loss in expected]
