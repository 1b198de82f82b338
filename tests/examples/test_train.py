# SPDX-License-Identifier: Apache-2.0
"""tools/train's own command line; what it starts is tested beside this file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, needs_torch, start

TORCH_ONLY = {"--api", "--heads", "--clip", "--compare"}


def tools_train(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "tools/train", *arguments], capture_output=True, text=True)


def test_help_tells_of_every_option_of_the_programs(language: str) -> None:
    done = tools_train("--help")
    assert done.returncode == 0
    listed = set(re.findall(r"^ +(--[a-z]+)", done.stdout, re.MULTILINE))
    known = re.findall(
        r"^ +(--[a-z]+)", start("language_model", language, "--help", ranks=1).stdout, re.MULTILINE
    )
    assert set(known) <= listed
    assert listed - set(known) <= {"--lang", "--plot", *TORCH_ONLY}


@needs_torch
def test_help_tells_of_every_option_of_the_gpt() -> None:
    listed = set(re.findall(r"^ +(--[a-z]+)", tools_train("--help").stdout, re.MULTILINE))
    known = re.findall(r"^ +(--[a-z]+)", start("gpt", "torch", "--help", ranks=1).stdout, re.M)
    assert set(known) <= listed
    assert listed - set(known) == {"--lang"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--lang", "cobol"), "the languages are"),
        (("--lang",), "--lang needs a value"),
        (("-n", "0"), "-n 0"),
        (("-n", "two"), "-n two"),
        (("--plot", "/nowhere/loss.png"), "there is no such folder"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], expected: str) -> None:
    done = tools_train(*arguments)
    assert done.returncode == 2
    assert expected in done.stderr


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = tmp_path / "run.json"
    sizes = ("--width", "32", "--layers", "1", "--context", "4", "--batch", "4", "--steps", "20")
    assert start("language_model", "c", *sizes, "--quiet", "--json", run).returncode == 0
    assert json.loads(run.read_text())["language"] == "c"
    picture = tmp_path / "loss.png"
    script = ROOT / "examples/02_language_model/plot.py"
    subprocess.run([sys.executable, "-B", script, picture, run], check=True)
    assert picture.read_bytes().startswith(b"\x89PNG")
