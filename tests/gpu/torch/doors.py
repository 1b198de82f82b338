# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of the doors on a GPU: Lightning, Trainer and accelerate, one process each.

    python3 tests/gpu/torch/doors.py

Their programs are unchanged, and all run at the same time. Each must end, and must have learned. An
example with a missing package is skipped, with a message. Exit status 77: PyTorch or a GPU is
missing, or all those packages are. tools/gpu-check runs it; with --anywhere it runs without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from train import SKIPPED, why_not

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
LIMIT = 80  # seconds for all


@dataclass(frozen=True)
class Door:
    name: str
    package: str
    words: tuple[str, ...]
    shown: str  # what of its output proves that it learned, with the number in a group
    below: float
    drop_in: bool = False


def lightning(name: str, precision: str) -> Door:
    words = (str(EXAMPLES / "07_lightning/train.py"), "--strategy", name, "--precision", precision)
    words += ("--steps", "60", "--width", "128", "--layers", "2", "--heads", "4", "--lr", "0.002")
    return Door(f"{name}, {precision}", "lightning", words, r"loss [\d.]+ -> ([\d.]+)", 3.5)


def trainer(stage: int) -> Door:
    words = (str(EXAMPLES / "09_trainer/train.py"), "--stage", str(stage), "--folder", "FOLDER")
    shown = r"loss of evaluation ([\d.]+)"
    return Door(f"Trainer, stage {stage}", "transformers", words, shown, 3.5, drop_in=True)


ACCELERATE = Door(
    "accelerate, stage 3",
    "accelerate",
    (
        *("-m", "accelerate.commands.launch", "--use_deepspeed", "--zero_stage", "3"),
        *("--zero3_save_16bit_model", "true"),
        *(
            "--main_process_port",
            "PORT",
            "--num_processes",
            "1",
            str(EXAMPLES / "10_accelerate/train.py"),
            "--folder",
            "FOLDER",
        ),
    ),
    r"loss [\d.]+ -> ([\d.]+)",
    0.05,
    drop_in=True,
)
DOORS = (
    lightning("meron_stage_2", "32-true"),
    lightning("meron_stage_3", "bf16-mixed"),
    lightning("meron_stage_3_offload", "bf16-mixed"),
    *map(trainer, (1, 2, 3)),
    ACCELERATE,
)


def start(door: Door, folder: Path, port: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "2"}
    if door.drop_in:
        asked = [sys.executable, "-m", "meron.zero.dropin"]
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        environment["PYTHONPATH"] = f"{found}:{environment.get('PYTHONPATH', '')}"
    words = [word.replace("FOLDER", str(folder)).replace("PORT", str(port)) for word in door.words]
    return subprocess.Popen(
        [sys.executable, *words],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def judge(door: Door, process: subprocess.Popen[str], end: float) -> str | None:
    """Returns the error, or None."""
    try:
        said, _ = process.communicate(timeout=max(end - time.monotonic(), 1))
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        return f"took more than {LIMIT} s\n{said[-3000:]}"
    found = re.search(door.shown, said)
    if process.returncode != 0 or found is None:
        return f"ended with exit status {process.returncode}\n{said[-3000:]}"
    loss = float(found[1])
    print(f"{door.name}: {found[0]}", flush=True)
    return None if loss < door.below else f"did not learn: {loss} is not below {door.below}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--anywhere", action="store_true", help="without a GPU too")
    options = parser.parse_args()
    missing = None if options.anywhere else why_not()
    if missing is not None:
        print(missing)
        return SKIPPED
    doors = [door for door in DOORS if importlib.util.find_spec(door.package)]
    for name in sorted({door.package for door in DOORS} - {door.package for door in doors}):
        print(f"without {name}: pip installs it")
    if not doors:
        return SKIPPED
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        end = time.monotonic() + LIMIT
        running = []
        try:
            for place, door in enumerate(doors):
                own = Path(folder, str(place))
                own.mkdir()
                running.append((door, start(door, own, 29600 + place)))
            for door, process in running:
                wrong = judge(door, process, end)
                if wrong is not None:
                    failed = True
                    print(f"FAILED: {door.name} {wrong}", flush=True)
        finally:
            for _, process in running:
                process.kill()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
