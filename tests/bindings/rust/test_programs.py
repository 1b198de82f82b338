# SPDX-License-Identifier: Apache-2.0
"""A trainer in Rust between processes: example 02 has the losses of C, to the last bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import EXAMPLE, ROOT, TRANSPORT, cargo, loader_path, run

SMALL = ["--width", "64", "--layers", "2", "--context", "8", "--batch", "16", "--steps", "25"]


@pytest.fixture(scope="module")
def program() -> Path:
    if "MERON_COMMAND" not in os.environ:
        pytest.skip("this build has no `meron` command")
    cargo("build", "--offline", "--release", folder=EXAMPLE)
    return Path(os.environ["CARGO_TARGET_DIR"]) / "release" / "language_model"


def start(program: Path, folder: Path, ranks: int, arguments: list[str]) -> Any:
    words: list[str | Path] = [os.environ["MERON_COMMAND"], "run", "-n", str(ranks)]
    words += ["--timeout", "60", "--", program, *arguments]
    return run(words, folder, loader_path())


def train(program: Path, folder: Path, ranks: int, arguments: list[str]) -> dict[str, Any]:
    file = folder / f"{program.parent.parent.name}.json"
    done = start(program, folder, ranks, [*SMALL, *arguments, "--quiet", "--json", str(file)])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    result: dict[str, Any] = json.loads(file.read_text())
    return result


# ranks, plan, more options
WORKLOADS = (
    (1, "zero3", ""),
    (1, "zero0", "--accumulate 2"),
    (2, "zero0", ""),
    (2, "zero1", ""),
    (2, "zero2", ""),
    (2, "zero3", ""),
    (2, "zero1", "--dtype f16"),
    (2, "zero3", "--dtype bf16"),
    (3, "zero0", "--dtype bf16"),
    (3, "zero2", "--accumulate 2"),
    (3, "zero3", "--dtype f16 --accumulate 2"),
)


@pytest.mark.parametrize(("ranks", "plan", "more"), WORKLOADS)
def test_rust_has_the_results_of_c(
    program: Path, tmp_path: Path, ranks: int, plan: str, more: str
) -> None:
    arguments = ["--plan", plan, *more.split()]
    in_rust = train(program, tmp_path, ranks, arguments)
    c_program = Path(os.environ["MERON_EXAMPLE_LANGUAGE_MODEL"])
    in_c = train(c_program, tmp_path, ranks, [*arguments, "--product", "plain"])
    assert in_rust["language"] == "rust"
    assert in_rust["bytes_equal"] is True
    assert list(in_rust) == list(in_c)
    for row in in_rust["per_rank"] + in_c["per_rank"]:
        del row["arena_pages_bytes"]  # the kernel's business
    for key in set(in_c) - {"language", "seconds", "steps_per_second"}:
        assert in_rust[key] == in_c[key], key


def test_the_output_for_people(program: Path, tmp_path: Path) -> None:
    done = start(program, tmp_path, 2, SMALL)
    assert done.returncode == 0, done.stderr
    assert "units over 2 ranks, plan zero3, transport shm" in done.stdout
    assert done.stdout.count("equal") == 6
    assert done.stderr.splitlines()[-1].startswith("100 %  step 25/25  loss ")


def test_bad_input_is_reported_once(program: Path, tmp_path: Path) -> None:
    for arguments, expected in (
        (["--steps", "0"], "--steps 0: must be a whole number from 1 to"),
        (["--plan", "zero9"], "zero3"),
        (["--data", "/nonexistent"], "cannot read /nonexistent: No such file or directory;"),
        (["--width", "100"], "take 112"),
    ):
        done = start(program, tmp_path, 3, arguments)
        assert done.returncode == 2
        said = [line for line in done.stderr.splitlines() if not line.startswith("meron run: ")]
        assert len(said) == 1, done.stderr
        assert expected in said[0]


@pytest.mark.parametrize(
    "driver", ("05_checkpoint/kill_and_resume.py", "06_pretrained/publish_and_tune.py")
)
def test_checkpoints_and_published_weights(program: Path, tmp_path: Path, driver: str) -> None:
    words: list[str | Path] = [sys.executable, "-B", ROOT / "examples" / driver, "--lang", "rust"]
    done = run(words, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ctrl_c_ends_a_job(program: Path, tmp_path: Path) -> None:
    words = [os.environ["MERON_COMMAND"], "run", "-n", "2", "--", program, "--steps", "100000"]
    with subprocess.Popen(
        list(map(str, words)),
        env={**os.environ, **loader_path()},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as job:
        assert job.stdout is not None
        assert "parameters" in job.stdout.readline()  # it trains
        begin = time.monotonic()
        job.send_signal(signal.SIGINT)
        assert job.wait(timeout=30) != 0
        assert time.monotonic() - begin < 10


@pytest.mark.parametrize("ranks", (1, 3))
def test_the_custom_transport(tmp_path: Path, ranks: int) -> None:
    if "MERON_COMMAND" not in os.environ:
        pytest.skip("this build has no `meron` command")
    cargo("build", "--offline", "--release", folder=TRANSPORT)
    transport = Path(os.environ["CARGO_TARGET_DIR"]) / "release" / "custom_transport"
    done = start(transport, tmp_path, ranks, [str(tmp_path)])
    assert (done.returncode, done.stderr) == (0, "")
    lines = sorted(done.stdout.splitlines())
    assert [line[:6] for line in lines] == [f"rank {rank}" for rank in range(ranks)]
    assert all("over sockets" in line for line in lines)
