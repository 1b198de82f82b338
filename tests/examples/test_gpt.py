# SPDX-License-Identifier: Apache-2.0
"""Example 03 learns as plain PyTorch does, and its counters equal the plan's."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ranks as on_ranks
from conftest import complaints, needs_torch, program, start

if importlib.util.find_spec("torch") is not None:
    import meron.torch
    import meron.zero  # noqa: F401  so that the ranks begin with it

pytestmark = needs_torch
SCRIPT = program("gpt", "torch")[-1]
SMALL = ("--width", 48, "--layers", 2, "--heads", 2, "--context", 32, "--lr", 0.003)


def train(
    folder: Path, *arguments: object, ranks: int = 2, steps: int = 30, api: str = "functional"
) -> dict[str, Any]:
    """Returns what --json wrote."""
    file = folder / "run.json"
    options = (*SMALL, "--steps", steps, "--api", api, "--quiet", "--json", file, *arguments)
    done = on_ranks.program(ranks, SCRIPT, *options)
    assert (done.returncode, done.stdout, complaints(done)) == (0, "", [])
    run: dict[str, Any] = json.loads(file.read_text())
    return run


def check(run: dict[str, Any], ranks: int, drop: float = 0.8) -> None:
    assert (run["ranks"], len(run["losses"]), len(run["per_rank"])) == (ranks, run["steps"], ranks)
    assert run["loss_first"] == pytest.approx(5.545, abs=0.2)  # ln 256: it knows nothing
    assert run["loss_last"] < drop * run["loss_first"]
    assert run["as_planned"] is True
    for row in run["per_rank"]:
        assert row["reduce_bytes"]["counted"] == run["steps"] * row["reduce_bytes"]["plan_per_step"]
        assert row["device_bytes"]["counted"] == row["device_bytes"]["plan"]
        if row["device_bytes"]["plan"] == 0:
            peak = row["peak_bytes"]
            assert peak["counted"] == pytest.approx(peak["plan"], rel=0.05)


@pytest.mark.parametrize(
    ("ranks", "plan", "accumulate"),
    [
        (1, "zero3", 1),
        (2, "zero0", 2),
        (2, "zero1", 1),
        (2, "zero3", 2),
        (3, "zero2", 1),
        (4, "mics(2)", 2),
        (4, "hpz(2)", 1),
    ],
)
def test_it_learns_what_plain_pytorch_learns(
    tmp_path: Path, ranks: int, plan: str, accumulate: int
) -> None:
    arguments = ("--plan", plan, "--accumulate", accumulate, "--compare")
    run = train(tmp_path, *arguments, ranks=ranks)
    check(run, ranks)
    assert run["plan"]["name"] == plan
    assert run["twin"]["largest_relative_difference"] <= (1e-6 if ranks == 3 else 0)
    assert run["twin"]["equal_bits"] or ranks == 3


@pytest.mark.parametrize(("api", "flags"), [("functional", "contiguous,cpu"), ("zero", "on")])
def test_activation_checkpointing_keeps_bits_and_less(tmp_path: Path, api: str, flags: str) -> None:
    expected = train(tmp_path, steps=6, api=api)
    run = train(tmp_path, "--activation-checkpointing", flags, steps=6, api=api)
    assert run["losses"] == expected["losses"] and run["as_planned"] is True
    inputs = run["layers"] * run["batch"] * run["context"] * run["width"] * 4
    assert all(row["activation_bytes"] == inputs for row in run["per_rank"])
    assert all(row["activation_bytes"] == 0 for row in expected["per_rank"])


@pytest.mark.parametrize(("plan", "accumulate"), [("zero1", 2), ("zero3", 1), ("mics(1)", 2)])
def test_deepspeeds_names(tmp_path: Path, plan: str, accumulate: int) -> None:
    """The engine's AdamW rounds otherwise than torch's."""
    arguments = ("--plan", plan, "--accumulate", accumulate, "--compare")
    run = train(tmp_path, *arguments, api="zero")
    check(run, 2)
    assert run["twin"]["largest_relative_difference"] <= 1e-5
    for row in run["per_rank"]:
        held = row["optimizer_bytes"]
        assert held["counted"] == held["plan"]


def test_codecs_keep_the_loss(tmp_path: Path) -> None:
    """int8 parameters and int4 gradients with feedback, between groups of two ranks."""
    last = []
    for plan in ("zero3", "zeropp(2)"):
        run = train(tmp_path, "--plan", plan, ranks=4, steps=100)
        check(run, 4)
        last.append(sum(run["losses"][-10:]) / 10)
    assert last[1] == pytest.approx(last[0], rel=0.01)


def test_states_in_8_bits_and_on_a_drive(tmp_path: Path) -> None:
    """The engine's optimizer does this, and torch's do not."""
    last = []
    nvme = {"path": str(Path.cwd())}
    for number, plan in enumerate(
        (
            {"preset": "zero3"},
            {"preset": "zero3", "optimizer": {"dtype": "int8"}},
            {"preset": "zero3", "optimizer": {"dtype": "int8", "tier": "nvme"}, "nvme": nvme},
        )
    ):
        file = tmp_path / f"{number}.plan.json"
        file.write_text(json.dumps(plan))
        run = train(tmp_path, "--plan", file, steps=100)
        check(run, 2)
        last.append(sum(run["losses"][-10:]) / 10)
    assert last[1] == pytest.approx(last[0], rel=0.01)
    assert last[2] == last[1]


def test_a_rank_holds_its_part_of_the_parameters(tmp_path: Path) -> None:
    run = train(tmp_path, ranks=3, steps=3)
    for row in run["per_rank"]:
        assert row["param_bytes"]["counted"] == pytest.approx(4 * run["parameters"] / 3, rel=0.06)


def test_bf16(tmp_path: Path) -> None:
    run = train(tmp_path, "--dtype", "bf16", "--compare")
    check(run, 2)
    assert run["twin"]["largest_relative_difference"] < 0.02


def test_on_a_device(tmp_path: Path) -> None:
    """The emulated device, whose tensors are those of the CPU."""
    for api in ("functional", "zero"):
        runs = [train(tmp_path, "--device", name, api=api) for name in ("cpu", "emulated")]
        check(runs[1], 2)
        assert runs[1]["losses"] == runs[0]["losses"]
        assert runs[1]["plan"]["param"]["tier"] == ("device" if api == "zero" else "host")


def test_gathers_within_a_window(tmp_path: Path) -> None:
    """Part of the values find room there; the losses have the same bits."""
    runs = []
    for window in ({}, {"gather_window": "400 kB"}):
        plan = {kind: {"tier": "device"} for kind in ("param", "gradient", "optimizer")}
        plan["param"].update(window)
        file = tmp_path / "plan.json"
        file.write_text(json.dumps({"preset": "zero3", **plan}))
        runs.append(train(tmp_path, "--device", "emulated", "--plan", file))
        check(runs[-1], 2)
    assert [run["plan"]["param"].get("gather_window") for run in runs] == [None, 400_000]
    assert runs[1]["losses"] == runs[0]["losses"]


def test_what_runs_on_a_gpu_runs_on_the_emulated_device(tmp_path: Path) -> None:
    """Phases of tools/gpu-check: one rank, its states on the host and on the device, then two."""
    script = Path(__file__).resolve().parents[1] / "gpu" / "torch" / "gpt.py"
    small = (*map(str, SMALL), "--batch", "4")
    for ranks, words in ((1, "all on the GPU: loss"), (2, "the bits of one rank's")):
        command = [sys.executable, "-B", str(script), "--ranks", str(ranks), "--keep", tmp_path]
        command += ["--device", "emulated", "--", *small]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert words in done.stdout and "states on the host: loss" in done.stdout


def test_the_output_for_people(tmp_path: Path) -> None:
    picture = tmp_path / "loss.png"
    done = start("gpt", "torch", *SMALL, "--steps", 10, "--compare", "--plot", picture)
    assert done.returncode == 0, done.stderr
    for words in ("parameters (f32) over 2 ranks", "loss ", "tokens/s", "equal bits", "reduced"):
        assert words in done.stdout
    assert "training 100 %  step 10/10" in done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--width", 97, "--heads", 6), "take 102"),
        (("--api", "magic"), "must be functional or zero"),
        (("--size", "1b"), "must be 11m or 350m"),
        (("--device", "tpu"), "--device tpu"),
        (("--api", "zero", "--plan", "mine.json"), "--api zero takes"),
        (("--api", "zero", "--plan", "mics(node)"), "mics(N)"),
        (("--plan", "zero9"), "zero9"),
        (("--plan", "/nowhere.json"), "cannot read /nowhere.json: No such file"),
        (("--steps", 0), "from 1 to"),
        (("--data", "/nowhere"), "/nowhere"),
        (("--data", "/dev/null"), "/dev/null is empty"),
        (("--context", 65536, "--data", __file__), "lower --context"),
        (("--lr", 0), "above 0"),
        (("--clip", -1), "0 or more"),
        (("--json", "/nowhere/run.json"), "/nowhere/run.json"),
        (("--plot", "loss.txt"), ".png or .pdf or .svg"),
    ],
)
def test_bad_input(arguments: tuple[object, ...], words: str) -> None:
    complain(1, arguments, words)


def test_bad_input_is_answered_once() -> None:
    complain(2, ("--depth", 3), "--depth")
    complain(2, ("--activation-checkpointing", "partition"), "'partition': must be a list of on")


def complain(ranks: int, arguments: tuple[object, ...], words: str) -> None:
    done = on_ranks.program(ranks, SCRIPT, *arguments)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and words in lines[0]
