# SPDX-License-Identifier: Apache-2.0
"""Predictions of `meron plan --cluster` for the two hosts, beside the measurements."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple


class Predicted(NamedTuple):
    """Seconds per step: with perfect overlap of computation and link, and with none."""

    perfect: float
    none: float


def step_times(
    command: Path,
    bits_per_second: float,
    ranks_per_host: int,
    elements: int,
    layers: int,
    micro_batches: int,
    computation: float,
) -> dict[str, Predicted]:
    """By the name of a plan there. `computation`: the step's seconds without a limit on the link.

    It holds all that is not the link's, so what the prediction adds for that costs nothing here.
    """
    cluster = {
        "nodes": 2,
        "devices_per_node": ranks_per_host,
        "between_nodes": {"rate": f"{bits_per_second / 8:.0f} B/s", "latency": "1 ms"},
        "inside_node": {"rate": "1000 TB/s", "latency": "0 s", "in_place": True},
        "device": {
            "memory": "1 TiB",
            "reserved": "0 B",
            "memory_rate": "1000 TB/s",
            "flops": "1000 TFLOP/s",
        },
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(cluster, file)
        file.flush()
        words = [str(command), "plan", "--parameters", str(elements), "--layers", str(layers)]
        words += ["--cluster", file.name, "--micro-batches", str(micro_batches)]
        words += ["--compute-seconds", f"{computation / micro_batches:.6f}", "--json"]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return {
        strategy["name"]: Predicted(
            strategy["perfect_overlap"]["step"]["seconds"],
            strategy["no_overlap"]["step"]["seconds"],
        )
        for strategy in json.loads(done.stdout)["strategies"]
    }
