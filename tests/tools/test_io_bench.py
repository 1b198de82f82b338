# SPDX-License-Identifier: Apache-2.0
"""Tests `meron io-bench`: its measurements and advice, the files that it leaves, and bad
folders."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command import PATIENCE, meron, start, wait_until

SIZE = ("--size", "4MiB", "--seconds", "0.5")
BLOCKS = {256 << 10, 1 << 20, 4 << 20}
TMPFS = Path("/dev/shm")

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


@pytest.fixture
def drive() -> Iterator[Path]:
    """An empty folder where the tests run, which is on a drive; /tmp need not be."""
    with TemporaryDirectory(dir=".", prefix="meron-io-bench-") as folder:
        kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True)
        if kind.stdout.strip() in ("tmpfs", "ramfs"):
            pytest.skip("the present folder is in memory: run on a drive")
        yield Path(folder).resolve()


def test_its_output_and_its_files(drive, tmp_path):
    all_rates, saved = tmp_path / "all.json", tmp_path / "best.json"
    done = meron("io-bench", str(drive), *SIZE, "--json", str(all_rates), "--save", str(saved))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # progress is for terminals
    assert list(drive.iterdir()) == []

    bench = json.loads(all_rates.read_text())
    assert bench["directory"] == str(drive)
    assert bench["size"] == 4 << 20
    measurements = bench["measurements"]
    assert len(measurements) == (24 if bench["io_uring"] else 12)
    assert {each["block"] for each in measurements} == BLOCKS
    assert {e["depth"] for e in measurements if e["backend"] == "io_uring"} in (
        {4, 8, 32, 128},
        set(),
    )
    assert {e["threads"] for e in measurements if e["backend"] == "threads"} == {1, 2, 4, 8}
    for each in measurements:
        for way in ("read", "write"):
            rate = each[way]
            assert 0 < rate["bytes"] <= 4 << 20
            assert rate["gb_per_second"] == pytest.approx(rate["bytes"] / rate["seconds"] / 1e9)

    # The table has the same rows.
    rows = re.findall(r"^(io_uring|threads) +.*iB +(\d+) +[\d.]+ +[\d.]+", done.stdout, re.M)
    assert len(rows) == len(measurements)
    best = bench["best"]
    assert best["nvme"]["path"] == str(drive)
    assert json.loads(saved.read_text()) == best
    assert '"nvme": ' + json.dumps(best["nvme"], separators=(",", ":")) in done.stdout
    assert '"aio": ' + json.dumps(best["aio"], separators=(",", ":")) in done.stdout


def test_the_advice_is_the_best_setting_and_a_plan_accepts_it(drive, tmp_path):
    out = tmp_path / "all.json"
    done = meron("io-bench", str(drive), *SIZE, "--json", str(out))
    assert done.returncode == 0, done.stderr
    bench = json.loads(out.read_text())
    backend = "io_uring" if bench["io_uring"] else "threads"

    def both(each: dict) -> float:
        return 2 / (1 / each["read"]["gb_per_second"] + 1 / each["write"]["gb_per_second"])

    shown = [each for each in bench["measurements"] if each["backend"] == backend]
    nvme, aio = bench["best"]["nvme"], bench["best"]["aio"]
    chosen = [
        each
        for each in shown
        if each["block"] == nvme["block"] and each.get("depth", nvme["depth"]) == nvme["depth"]
    ]
    assert max(map(both, chosen)) >= 0.97 * max(map(both, shown))
    assert aio["block_size"] == nvme["block"]
    assert aio["queue_depth"] == nvme["depth"]
    assert aio["intra_op_parallelism"] == nvme["threads"]

    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {"preset": "zero3", "optimizer": {"tier": "nvme"}, "nvme": bench["best"]["nvme"]}
        )
    )
    done = meron("plan", "--parameters", "1M", "--layers", "2", "--plan", str(plan))
    assert done.returncode == 0, done.stderr


def test_folders_that_will_not_do(drive, tmp_path):
    file = drive / "file"
    file.write_text("")
    cases = [
        (drive / "none", "make it, or name one that is there"),
        (file, "this is no directory"),
        (file / "below", "ENOTDIR"),
    ]
    if TMPFS.is_dir() and os.statvfs(TMPFS).f_bavail > 0:
        cases.append((TMPFS, "is in memory"))
    for folder, why in cases:
        done = meron("io-bench", str(folder), *SIZE)
        assert done.returncode == 1, folder
        assert str(folder) in done.stderr
        assert why in done.stderr
        assert done.stdout == ""
    done = meron("io-bench", str(drive), "--size", "900TiB")
    assert done.returncode == 1
    assert "are needed" in done.stderr and "free some space" in done.stderr
    done = meron("io-bench", str(drive), *SIZE, "--save", str(tmp_path / "none" / "best.json"))
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert [path.name for path in drive.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "directory"),
        ([".", "--size", "1KiB"], "--size"),
        ([".", "--size", "much"], "--size"),
        ([".", "--seconds", "0"], "--seconds"),
        ([".", "--seconds", "nan"], "--seconds"),
        ([".", "--plot", "picture"], ".png"),
    ],
)
def test_wrong_usage(words, why):
    done = meron("io-bench", *words)
    assert done.returncode == 2
    assert why in done.stderr


def test_killed_it_leaves_nothing(drive):
    with start("io-bench", str(drive), "--size", "64MiB", stdout=subprocess.DEVNULL) as bench:
        links = Path(f"/proc/{bench.pid}/fd")

        def has_a_file() -> bool:
            return any(os.readlink(link).startswith(str(drive)) for link in links.iterdir())

        wait_until("a file in the folder", has_a_file)
        assert list(drive.iterdir()) == []
        bench.send_signal(signal.SIGKILL)
        assert bench.wait(PATIENCE) == -signal.SIGKILL
    assert list(drive.iterdir()) == []


@needs_matplotlib
def test_a_picture(drive, tmp_path):
    picture = tmp_path / "drive.png"
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent)}
    done = meron("io-bench", str(drive), *SIZE, "--plot", str(picture), env=environment)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_help_explains():
    done = meron("io-bench", "--help")
    assert done.returncode == 0
    for word in ("--size", "--json", "--save", "--plot", "aio", "nvme", "Examples"):
        assert word in done.stdout
