# SPDX-License-Identifier: Apache-2.0
"""Runs a program train.py on two ranks, and compares its runs with recorded ones.

compare.py [FOLDER] [CASE ...]    in a Python that has DeepSpeed 0.19.8: records the runs of
                                  FOLDER/train.py in FOLDER; by default, of this folder's
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSION = "0.19.8"
RECORDED = f"deepspeed-{VERSION}.json"
RANKS = 2
Runs = dict[str, dict[str, Any]]


def train(
    folder: Path, python_path: str, *cases: str, home: Path = HERE, timeout: float = 900
) -> tuple[str, Runs]:
    """The version of the package, and the mean over ranks of the losses of each run.

    Runs home/train.py, which writes into `folder`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(RANKS):
        environment = {
            **os.environ,
            "PYTHONPATH": python_path,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "LOCAL_WORLD_SIZE": str(RANKS),
            "LOCAL_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
        }
        command = [sys.executable, "-B", str(home / "train.py"), str(folder), *cases]
        output = (folder / f"{rank}.txt").open("w")
        processes.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))
    try:
        ends = [process.wait(timeout) for process in processes]
        if any(ends):  # the error of one may be that another has failed
            said = [
                f"rank {rank} ended with {end}:\n{(folder / f'{rank}.txt').read_text()[-3000:]}"
                for rank, end in enumerate(ends)
            ]
            raise RuntimeError("\n".join(said))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    first, *others = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS))
    for name, run in first["runs"].items():
        of_ranks = [run["losses"], *(other["runs"][name]["losses"] for other in others)]
        run["losses"] = [sum(losses) / RANKS for losses in zip(*of_ranks)]
    return first["version"], first["runs"]


def furthest(found: list[float | None], expected: list[float | None]) -> float:
    """The greatest relative difference; steps without a value in `expected` do not count."""
    assert len(found) == len(expected)
    return max(
        (abs(a - b) / abs(b) if a != b else 0.0 for a, b in zip(found, expected) if b is not None),
        default=0.0,
    )


def apart(found: list[float], expected: list[float]) -> float:
    """The greatest difference of two series, relative to the largest value of `expected`.

    For series whose values may be near 0.
    """
    assert len(found) == len(expected)
    return max(abs(a - b) for a, b in zip(found, expected)) / max(map(abs, expected))


def differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    """The distances of two runs.

    `losses`, `rates`, `norms`: the greatest relative difference of a step. `moved`: the greatest
    difference between changes of a parameter, relative to the length of the change.
    """
    moved = [
        abs(found["moved"][name][1] - product) / length
        for name, (length, product) in expected["moved"].items()
    ]
    per_step = {key: furthest(found[key], expected[key]) for key in ("losses", "rates", "norms")}
    return {**per_step, "moved": max(moved)}


def is_installed() -> bool:
    """True if this Python has DeepSpeed in the version of the recorded losses."""
    try:
        return importlib.metadata.version("deepspeed") == VERSION
    except importlib.metadata.PackageNotFoundError:
        return False


def rounded(value: Any) -> Any:
    """With 10 digits, which are more than f32 has."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def record(home: Path, *cases: str) -> None:
    """Writes the file of recorded losses; only these cases, if any are named, are new."""
    if not is_installed():
        sys.exit(f"record: DeepSpeed {VERSION} is not installed in {sys.executable}.")
    with tempfile.TemporaryDirectory() as folder:
        python_path = os.environ.get("PYTHONPATH", "")
        version, runs = train(Path(folder), python_path, *cases, home=home)
    if cases:
        runs = {**recorded(home), **runs}
    head = {
        "deepspeed": version,
        "torch": importlib.metadata.version("torch"),
        "made_by": "python tests/bindings/torch/dropin/losses/compare.py"
        + ("" if home == HERE else f" tests/bindings/torch/dropin/{home.name}"),
        "on": f"{RANKS} ranks on the CPU, gloo",
    }
    parts = []
    for name, run in rounded(runs).items():
        lines = [f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in run.items()]
        parts.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    text = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    (home / RECORDED).write_text("{\n" + text + ' "runs": {\n' + ",\n".join(parts) + "\n }\n}\n")


def recorded(home: Path = HERE) -> Runs:
    return json.loads((home / RECORDED).read_text())["runs"]  # type: ignore[no-any-return]


if __name__ == "__main__":
    chosen = sys.argv[1:]
    named = [Path(chosen.pop(0)).resolve()] if chosen and Path(chosen[0]).is_dir() else [HERE]
    record(*named, *chosen)
