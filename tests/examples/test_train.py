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

C_ONLY = {"--product"}
NOT_TORCH = {"--save", "--resume", "--from", "--export"}
TORCH_ONLY = {
    "--activation",
    "--api",
    "--size",
    "--heads",
    "--clip",
    "--device",
    "--compare",
    "--nvme",
}


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
    assert listed - set(known) <= {"--lang", "--plot", *C_ONLY, *TORCH_ONLY}


@needs_torch
def test_help_tells_of_every_option_of_the_gpt() -> None:
    listed = set(re.findall(r"^ +(--[a-z]+)", tools_train("--help").stdout, re.MULTILINE))
    known = re.findall(r"^ +(--[a-z]+)", start("gpt", "torch", "--help", ranks=1).stdout, re.M)
    assert set(known) <= listed
    assert listed - set(known) == {"--lang", *C_ONLY, *NOT_TORCH}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--lang", "cobol"), "the languages are"),
        (("--lang",), "--lang needs a value"),
        (("-n", "0"), "-n 0"),
        (("-n", "two"), "-n two"),
        (("--plot", "/nowhere/loss.png"), "there is no such folder"),
        (("--plot", "loss.txt"), ".png, .pdf or .svg"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], expected: str) -> None:
    done = tools_train(*arguments)
    assert done.returncode == 2
    assert expected in done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What --json wrote."""
    file = tmp_path_factory.mktemp("run") / "run.json"
    sizes = ("--width", "32", "--layers", "1", "--context", "4", "--batch", "4", "--steps", "20")
    assert start("language_model", "c", *sizes, "--quiet", "--json", file).returncode == 0
    return file


def plot(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", ROOT / "examples/common/plot.py", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def test_the_picture_has_a_curve_for_each_run_and_for_the_twin(tmp_path: Path, run: Path) -> None:
    pytest.importorskip("matplotlib")
    compared = json.loads(run.read_text())
    compared["ranks"], compared["twin"] = 7, {"losses": compared["losses"]}
    second = tmp_path / "second.json"
    second.write_text(json.dumps(compared))
    picture = tmp_path / "loss.svg"
    assert plot(picture, run, second).returncode == 0
    drawn = picture.read_text()  # texts stand beside their glyphs in comments
    for label in ("zero3, 2 ranks, f32 (c)", "zero3, 7 ranks, f32 (c)", "the same without Meron"):
        assert drawn.count(f"<!-- {label} -->") == 1


@pytest.mark.parametrize(
    ("picture", "file", "words"),
    [
        ("loss.txt", "run.json", ".png or .pdf or .svg"),
        ("loss.png", "nowhere.json", "cannot read"),
        ("loss.png", "list.json", "is not what"),
        ("loss.png", "text.json", "is not what"),
        ("nowhere/loss.png", "run.json", "cannot write"),
    ],
)
def test_what_cannot_be_drawn(
    tmp_path: Path, run: Path, picture: str, file: str, words: str
) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "text.json").write_text("losses: none")
    (tmp_path / "run.json").write_bytes(run.read_bytes())
    done = plot(tmp_path / picture, tmp_path / file)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and words in done.stderr
