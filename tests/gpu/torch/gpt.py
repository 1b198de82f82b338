# SPDX-License-Identifier: Apache-2.0
"""Trains example 03 with some 350 million parameters on a GPU, for a few steps.

    python3 tests/gpu/torch/gpt.py --ranks 1 --keep build/gpt
    python3 tests/gpu/torch/gpt.py --ranks 2 --keep build/gpt

One rank with its states on the host, then with all on the GPU; two ranks that share the GPU, on the
micro-batches of the one: with its losses, if that left its figures in the same folder. The
arguments after `--` go to the example. Exit status 77: PyTorch or a GPU is missing. tools/gpu-check
runs it; with --device emulated and a small model it runs anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from train import SKIPPED, require, why_not

ROOT = Path(__file__).resolve().parents[3]
MODEL = ["--size", "350m", "--context", "512", "--batch", "8", "--dtype", "bf16"]
TRAINING = ["--steps", "16", "--lr", "0.0003"]
THERE = {"tier": "device"}
PLANS: dict[str, dict[str, Any]] = {
    "host": {"preset": "zero3", "name": "states on the host"},
    "gpu": {
        "preset": "zero3",
        "name": "all on the GPU",
        "param": THERE,
        "gradient": THERE,
        "optimizer": THERE,
    },
}
BATCHES = 2  # of a step, over all ranks
FALLS = 0.9  # the last loss, of the first
# A GPU's sums may depend on what else it runs; equal bits are said to be.
CLOSE = 5e-3


def train(options: argparse.Namespace, where: str) -> dict[str, Any]:
    plan = options.keep / f"{where}.plan.json"
    plan.write_text(json.dumps(PLANS[where]))
    figures = options.keep / f"gpt-{where}-{options.ranks}.json"
    figures.unlink(missing_ok=True)
    texts = sorted(map(str, (ROOT / "docs").glob("*.md")))
    command = [options.meron, "run", "-n", str(options.ranks), "--"]
    command += [sys.executable, "-B", str(ROOT / "examples/03_gpt/train.py"), "--data", *texts]
    command += ["--device", options.device, "--plan", str(plan), "--json", str(figures), "--quiet"]
    command += ["--accumulate", str(BATCHES // options.ranks), *MODEL, *TRAINING, *options.others]
    # As many threads however many ranks: they cut the host's sums.
    threads = max(1, len(os.sched_getaffinity(0)) // BATCHES)
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    require(done.returncode == 0, f"the example ended with exit status {done.returncode}")
    run: dict[str, Any] = json.loads(figures.read_text())
    return run


def show(run: dict[str, Any]) -> None:
    tokens = BATCHES * run["batch"] * run["context"] / run["step_seconds"]
    peak = max(rank["device_peak_bytes"] for rank in run["per_rank"]) / 2**20
    ranks = "one rank" if run["ranks"] == 1 else f"{run['ranks']} ranks"
    print(
        f"{run['parameters'] / 1e6:.1f}M parameters, {run['dtype']}, {ranks}, "
        f"{run['plan']['name']}: loss {run['loss_first']:.3f} -> {run['loss_last']:.3f}, "
        f"{tokens:.0f} tokens/s, {peak:.0f} MiB of the GPU at most by a rank",
        flush=True,
    )
    require(run["loss_last"] < FALLS * run["loss_first"], "the loss did not fall")


def compare(run: dict[str, Any], file: Path) -> None:
    if not file.exists():
        print(f"without the losses of one rank: there is no {file.name}")
        return
    alone = json.loads(file.read_text())["losses"]
    if run["losses"] == alone:
        print("all losses have the bits of one rank's")
        return
    worst = max(abs(a - b) / b for a, b in zip(run["losses"], alone, strict=True))
    print(f"losses are off by {worst:.1e} at most from one rank's, relative")
    require(worst <= CLOSE, "two ranks do not learn what one learns")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, choices=(1, BATCHES), default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--keep", type=Path, default=Path("."), help="a folder for its figures")
    parser.add_argument("--meron", default=os.environ.get("MERON_COMMAND", "meron"))
    parser.add_argument("others", nargs="*", help="options of the example")
    options = parser.parse_args()
    missing = why_not() if options.device.startswith("cuda") else None
    if missing is not None:
        print(missing)
        return SKIPPED
    options.keep.mkdir(parents=True, exist_ok=True)
    run = train(options, "host")
    show(run)
    if options.ranks == 1:
        show(train(options, "gpu"))
    else:
        compare(run, options.keep / "gpt-host-1.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
