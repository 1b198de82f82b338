# SPDX-License-Identifier: Apache-2.0
"""Example 06: weights that the trainer published are started from, trained further and published;
and what --from and --export refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LANGUAGES, ROOT, complaints, start

SIZES = ("--width", 32, "--layers", 2, "--context", 4, "--batch", 4, "--steps", 8)


def train(language: str, *options: object, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    done = start("language_model", language, *SIZES, *options, ranks=ranks)
    assert done.returncode == 0, done.stderr
    return done


def losses(file: Path) -> list[float]:
    values: list[float] = json.loads(file.read_text())["losses"]
    return values


def test_published_weights_are_trained_further(language: str) -> None:
    script = ROOT / "examples/06_pretrained/publish_and_tune.py"
    command = [sys.executable, "-B", str(script), "--lang", language]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  yes  ") == 4


def test_each_language_starts_from_what_the_other_published(tmp_path: Path) -> None:
    for publisher, reader in (LANGUAGES, LANGUAGES[::-1]):
        folder = tmp_path / publisher
        train(publisher, "--export", folder)
        found = []
        for language in (publisher, reader):
            file = tmp_path / f"{publisher}-{language}.json"
            done = train(language, "--from", folder, "--plan", "zero1", "--json", file, ranks=1)
            assert done.stdout.splitlines()[0] == f"started from the weights of {folder}"
            found.append(losses(file))
        assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_an_export_replaces_a_model(tmp_path: Path, language: str) -> None:
    train(language, "--export", tmp_path)
    first = (tmp_path / "model.safetensors").read_bytes()
    train(language, "--from", tmp_path, "--export", tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() != first
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_the_optimizer_starts_anew(tmp_path: Path, language: str) -> None:
    """From initial values that were published, a run is the one from the initial values."""
    tiny = ("--lr", 1e-30, "--steps", 1)  # no value changes
    train(language, *tiny, "--export", tmp_path / "initial")
    files = [tmp_path / "new.json", tmp_path / "from.json"]
    train(language, "--json", files[0])
    train(language, "--from", tmp_path / "initial", "--json", files[1])
    assert losses(files[1]) == losses(files[0])


@pytest.mark.parametrize("dtype", ("bf16", "f16"))
def test_sixteen_bits(tmp_path: Path, language: str, dtype: str) -> None:
    train(language, "--dtype", dtype, "--export", tmp_path / "published")
    train(language, "--dtype", dtype, "--from", tmp_path / "published")
    train(language, "--from", tmp_path / "published")  # into parameters of 32 bits


BAD = {
    "a mistyped directory": (("--from", "{folder}/none"), "--from {folder}/none", "Check the path"),
    "a directory without a model": (("--from", "{folder}"), "--from {folder}", "model.safetensors"),
    "another model": (("--from", "{folder}/model", "--width", "64"), "layers.0.bytes", "here"),
    "a foreign model": (("--from", "{folder}/foreign"), "layers.0.bytes", "missing"),
    "a checkpoint too": (("--from", "{folder}", "--resume", "{folder}"), "--from and --resume", ""),
    "an option without value": (("--export",), "--export", "--help"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(tmp_path: Path, language: str, case: str) -> None:
    train(language, "--export", tmp_path / "model", ranks=1)
    shutil.copytree(tmp_path / "model", tmp_path / "foreign")
    file = tmp_path / "foreign/model.safetensors"
    file.write_bytes(file.read_bytes().replace(b"transformer.wte", b"transformer.wpe"))
    arguments, *expected = BAD[case]
    filled = [argument.format(folder=tmp_path) for argument in arguments]
    done = start("language_model", language, *SIZES, *filled, ranks=3)
    assert (done.returncode, done.stdout) == (2, "")
    said = [line for line in complaints(done) if not line.startswith("meron run: ")]
    assert len(said) == 1, done.stderr
    for text in expected:
        assert text.format(folder=tmp_path) in said[0]
