# SPDX-License-Identifier: Apache-2.0
"""`tools/setup --torch`, with stand-ins for the package managers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"

PACKAGES = """\
#!/bin/sh
shift 2
for package; do echo "$package installed"; done
"""

# Unpacks a torch as pip does. While a file `slow` is there, it takes longer than the test waits.
PYTHON = """\
#!/bin/sh
case "$*" in
  *requirements-torch.txt*)
    mkdir -p .venv/lib/python3.11/site-packages/torch
    touch .venv/lib/python3.11/site-packages/torch/version.py
    echo torch >>calls
    if [ -e broken ]; then exit 1; fi
    if [ -e slow ]; then sleep 60; fi ;;
esac
"""


class Tree:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tools").mkdir()
        for file in (TOOLS / "setup", *TOOLS.glob("requirements*.txt")):
            shutil.copy(file, folder / "tools")
        self.add_program("bin/dpkg-query", PACKAGES)
        self.add_program(".venv/bin/python3", PYTHON)

    def add_program(self, name: str, text: str) -> None:
        program = self.folder / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)

    def start(self) -> subprocess.Popen[bytes]:
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        command = [str(self.folder / "tools/setup"), "--torch"]
        return subprocess.Popen(
            command, env={**os.environ, "PATH": path}, start_new_session=True, cwd=self.folder
        )

    def set_up(self) -> int:
        return self.start().wait(60)

    def installations(self) -> int:
        calls = self.folder / "calls"
        return len(calls.read_text().split()) if calls.exists() else 0


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_torch_is_installed_once(tree: Tree) -> None:
    assert tree.set_up() == 0
    assert tree.set_up() == 0
    assert tree.installations() == 1


def test_an_interrupted_installation_is_made_again(tree: Tree) -> None:
    (tree.folder / "slow").touch()
    setup = tree.start()
    deadline = time.monotonic() + 30
    while tree.installations() == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(setup.pid, signal.SIGINT)
    os.killpg(setup.pid, signal.SIGTERM)
    setup.wait(30)
    (tree.folder / "slow").unlink()
    assert tree.set_up() == 0
    assert tree.installations() == 2


def test_a_torch_of_the_users_own_stays(tree: Tree) -> None:
    own = tree.folder / ".venv/lib/python3.11/site-packages/torch/version.py"
    own.parent.mkdir(parents=True)
    own.touch()
    assert tree.set_up() == 0
    assert tree.installations() == 0


def test_a_torch_that_cannot_be_installed_is_an_error(tree: Tree) -> None:
    (tree.folder / "broken").touch()
    assert tree.set_up() == 1
