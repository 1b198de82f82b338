# SPDX-License-Identifier: Apache-2.0
"""Commands that start Python run no code of the current folder, which may be a download."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from command import meron

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = str(ROOT / "docs" / "clusters" / "h100_100g.json")
PLAN = ("plan", "--parameters", "70B", "--layers", "80", "--cluster", CLUSTER, "--tokens", "4096")
MODULES = ("json", "os", "numpy", "torch", "matplotlib", "runpy", "typing", "argparse", "meron")


@pytest.fixture
def download(tmp_path: Path) -> Path:
    """A folder whose modules and whose .venv leave a file `ran` if they run."""
    folder = tmp_path / "model"
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in MODULES[:-1]:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (folder / "meron").mkdir()
    (folder / "meron" / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    python = folder / ".venv" / "bin" / "python3"
    python.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    python.chmod(0o755)
    (folder / "pytorch_model.bin").write_bytes(b"no checkpoint")
    return folder


def python_on_path(folder: Path) -> dict[str, str]:
    """An environment whose python3 is that of the tests."""
    (folder / "bin").mkdir()
    python = folder / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    path = os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    environment["PYTHONPATH"] = f"{path}:"  # an empty entry, which is the current folder
    environment.pop("VIRTUAL_ENV", None)
    return environment


@pytest.mark.parametrize(
    "words",
    [
        ("checkpoint", "import", "pytorch_model.bin", "out"),
        (*PLAN, "--plot", "x.png"),
        ("run", "-n", "1", "--as-deepspeed", "--", "true"),
    ],
    ids=["import", "plot", "as-deepspeed"],
)
def test_runs_no_code_of_the_current_folder(
    words: tuple[str, ...], download: Path, tmp_path: Path
) -> None:
    done = meron(*words, cwd=download, env=python_on_path(tmp_path))
    assert not (tmp_path / "ran").exists(), done.stderr
    assert "Traceback" not in done.stderr


def test_the_helpers_find_packages_of_pythonpath(tmp_path: Path) -> None:
    """Entries of PYTHONPATH other than the current folder count."""
    environment = python_on_path(tmp_path)
    package = tmp_path / "packages" / "meron" / "zero" / "dropin"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys; print(sys.argv[1:] + ['found'])\n")
    environment["PYTHONPATH"] = str(tmp_path / "packages")
    code = "echo $PYTHONPATH"
    words = ("run", "-n", "1", "--as-deepspeed", "--", "sh", "-c", code)
    done = meron(*words, cwd=tmp_path, env=environment)
    assert json.loads(done.stdout.split(":")[0].replace("'", '"')) == ["found"], done.stderr
