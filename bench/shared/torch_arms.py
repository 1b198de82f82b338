# SPDX-License-Identifier: Apache-2.0
"""How an arm of bench/pytorch is started, and what its host time is beyond plain torch's."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import report
from report import Json, median

RANK = Path(__file__).resolve().parents[1] / "pytorch" / "rank.py"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_arm(
    build: Path,
    model: str,
    arm: str,
    ranks: int,
    seconds: float,
    *,
    device: str = "cpu",
    **variables: str,
) -> Json:
    """The figures of the first rank. `variables`: of the environment, beside those of all arms."""
    words = [str(RANK), "--arm", arm, "--model", model, "--seconds", str(seconds)]
    words += ["--device", device]
    # Ranks of one host, whatever networks it has.
    environment = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    if device == "cpu":
        environment["OMP_NUM_THREADS"] = "1"
    command: list[str | Path] = [sys.executable, "-B", *words]
    if arm.startswith("meron"):
        command = [build / "tools/meron/meron", "run", "-n", str(ranks), "--", *command]
    elif arm != "plain" and ranks == 1:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        environment |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", **place}
    elif arm != "plain":
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1"]
        command += ["--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1"]
        command += ["--master-port", str(free_port()), *words]
    return report.run_ranks(command, environment | variables)


def host_us(runs: Sequence[Json], plain: Sequence[Json], key: str) -> float:
    """Per unit and step; `key`: "hooks_ms", or "ms" with the optimizer's step."""
    own, least = (median(median(run[key]) for run in arm) for arm in (runs, plain))
    return (own - least) * 1e3 / int(runs[0]["units"])
