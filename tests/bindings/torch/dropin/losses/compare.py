# SPDX-License-Identifier: Apache-2.0
"""Runs train.py on two ranks, and compares its runs with recorded ones.

compare.py [CASE ...]    in a Python that has DeepSpeed 0.19.8: records its runs
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
RECORDED = HERE / "deepspeed-0.19.8.json"
VERSION = "0.19.8"
RANKS = 2
Runs = dict[str, dict[str, Any]]


def train(folder: Path, python_path: str, *cases: str, timeout: float = 900) -> tuple[str, Runs]:
    """The version of the package, and the mean over ranks of the losses of each run."""
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
        command = [sys.executable, "-B", str(HERE / "train.py"), str(folder), *cases]
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


def record(*cases: str) -> None:
    """Writes the file of recorded losses; only these cases, if any are named, are new."""
    if not is_installed():
        sys.exit(f"record: DeepSpeed {VERSION} is not installed in {sys.executable}.")
    with tempfile.TemporaryDirectory() as folder:
        version, runs = train(Path(folder), os.environ.get("PYTHONPATH", ""), *cases)
    if cases:
        runs = {**recorded(), **runs}
    head = {
        "deepspeed": version,
        "torch": importlib.metadata.version("torch"),
        "made_by": "python tests/bindings/torch/dropin/losses/compare.py",
        "on": f"{RANKS} ranks on the CPU, gloo",
    }
    parts = []
    for name, run in rounded(runs).items():
        lines = [f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in run.items()]
        parts.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    text = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    RECORDED.write_text("{\n" + text + ' "runs": {\n' + ",\n".join(parts) + "\n }\n}\n")


def recorded() -> Runs:
    return json.loads(RECORDED.read_text())["runs"]  # type: ignore[no-any-return]


if __name__ == "__main__":
    record(*sys.argv[1:])
