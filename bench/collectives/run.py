# SPDX-License-Identifier: Apache-2.0
"""All-gather and reduce-scatter on one host, against Open MPI's best algorithm and memcpy."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import report
from arguments import whole
from report import Goal, Json, median

KIB, MIB = 1024, 1024 * 1024
SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
QUICK_SIZES = (64 * KIB, MIB)

# Open MPI chooses its algorithms by rules of thumb; here each is forced in turn. The numbers are
# those of `ompi_info --param coll tuned --level 9`: per collective, how many there are.
ALGORITHMS = {"allgather": 6, "reduce_scatter": 4, "reduce_scatter_block": 4}

# Arms of Meron in the order of the table, with the MPI arms that each is compared with.
GATHER, GATHER_PASS, REDUCE = ("gather",), ("gather + pass",), ("reduce", "reduce block")
MERON_ARMS = {
    "gather mapped": GATHER,
    "gather private": GATHER,
    "gather mapped + pass": GATHER_PASS,
    "reduce registered": REDUCE,
    "reduce staged": REDUCE,
}
GOALS = (
    ("gather mapped", MIB, 20),
    ("gather mapped + pass", 64 * MIB, 3),
    ("reduce registered", MIB, 5),
    ("reduce registered", 64 * MIB, 10),
    *(("reduce staged", size, 1.5) for size in SIZES),
)

# (arm, bytes) -> the median of each run, in microseconds
Medians = dict[tuple[str, int], list[float]]


class Collected:
    def __init__(self) -> None:
        self.meron: Medians = defaultdict(list)
        self.mpi: dict[str, Medians] = defaultdict(lambda: defaultdict(list))  # by algorithm
        self.disturbed: list[float] = []

    def add(self, into: Medians, result: Json) -> None:
        for series in result["series"]:
            into[series["arm"], series["bytes"]].append(median(series["us"]))
        self.disturbed.append(result["disturbed"])

    def best_mpi(self, arms: tuple[str, ...], size: int) -> tuple[float, str] | None:
        """The fastest algorithm's time, and which it was."""
        found = [
            (median(medians[arm, size]), f"{arm} {algorithm}")
            for algorithm, medians in self.mpi.items()
            for arm in arms
            if medians[arm, size]
        ]
        return min(found, default=None)


def mpi_words(arguments: argparse.Namespace, algorithm: int) -> list[str | Path] | None:
    """The mpirun that forces one algorithm of each collective; 0 leaves the choice to Open MPI."""
    if algorithm > max(ALGORITHMS.values()):
        return None
    words: list[str | Path] = ["mpirun", "-n", str(arguments.ranks), "--bind-to", "none"]
    if arguments.ranks > len(os.sched_getaffinity(0)):
        words.append("--oversubscribe")  # makes waiting ranks yield, so only if it is needed
    if algorithm > 0:
        words += ["--mca", "coll_tuned_use_dynamic_rules", "1"]
        for collective, count in ALGORITHMS.items():
            if algorithm <= count:
                words += ["--mca", f"coll_tuned_{collective}_algorithm", str(algorithm)]
    return [*words, arguments.build / "bench/collectives/bench_collectives_mpi"]


def why_no_mpi(arguments: argparse.Namespace) -> str | None:
    if shutil.which("mpirun") is None:
        return "Open MPI is not installed (tools/setup --bench brings it)"
    if not (arguments.build / "bench/collectives/bench_collectives_mpi").exists():
        return "the program for Open MPI was not built (is libopenmpi-dev installed?)"
    return None


def measure(arguments: argparse.Namespace, sizes: tuple[int, ...], with_mpi: bool) -> Collected:
    collected = Collected()
    rounds = 1 if arguments.quick else arguments.rounds
    algorithms = range(1 if arguments.quick else max(ALGORITHMS.values()) + 1)
    size_words = (["--quick"] if arguments.quick else []) + [str(size) for size in sizes]
    meron = [arguments.build / "tools/meron/meron", "run", "-n", str(arguments.ranks), "--"]
    meron += [arguments.build / "bench/collectives/bench_collectives", *size_words]
    # mpirun runs as root only if both variables are set.
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for number in range(rounds):
        for algorithm in algorithms if with_mpi else [0]:
            step = f"round {number + 1} of {rounds}, algorithm {algorithm}"
            if sys.stderr.isatty():
                print(f"\r{step} ", end="", file=sys.stderr, flush=True)
            # Runs of Meron and MPI alternate, so that both see the same state of the machine.
            collected.add(collected.meron, report.run_ranks(meron))
            words = mpi_words(arguments, algorithm) if with_mpi else None
            if words is not None:
                name = "default" if algorithm == 0 else str(algorithm)
                result = report.run_ranks([*words, *size_words], as_root)
                collected.add(collected.mpi[name], result)
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return collected


def time_text(microseconds: float) -> str:
    return f"{microseconds:.2f}" if microseconds < 10 else f"{microseconds:.0f}"


def print_tables(
    collected: Collected, sizes: tuple[int, ...], arguments: argparse.Namespace
) -> None:
    titles = {
        "gather": "All-gather: a new version from every rank, whole on every rank",
        "gather + pass": "All-gather, and then every rank reads the whole result once",
        "reduce": "Reduce-scatter: the f32 sum of every rank's gradient, a part on each rank",
    }
    print(f"{arguments.ranks} ranks; microseconds, medians; x: times as fast as Open MPI's best\n")
    for mpi_arms in (GATHER, GATHER_PASS, REDUCE):
        arms = [arm for arm, peers in MERON_ARMS.items() if peers == mpi_arms]
        head = ["size", "memcpy", "Open MPI"]
        for arm in arms:
            head += [f"Meron {arm.split(' ', 1)[1]}", "x"]
        rows = [[*head, "fastest of Open MPI"]]
        for size in sizes:
            best = collected.best_mpi(mpi_arms, size)
            row = [report.readable_bytes(size), time_text(median(collected.meron["memcpy", size]))]
            row.append(time_text(best[0]) if best else "-")
            for arm in arms:
                own = median(collected.meron[arm, size])
                row += [time_text(own), f"{best[0] / own:.1f}" if best else "-"]
            rows.append([*row, best[1] if best else "-"])
        print(f"{titles[mpi_arms[0]]}\n{report.columns(rows)}\n")


def rows_for_json(collected: Collected, sizes: tuple[int, ...]) -> list[Json]:
    rows: list[Json] = []
    for size in sizes:
        rows.append({"bytes": size, "arm": "memcpy", "us": median(collected.meron["memcpy", size])})
        for arm, mpi_arms in MERON_ARMS.items():
            own = median(collected.meron[arm, size])
            row: Json = {"bytes": size, "arm": arm, "us": own, "runs": collected.meron[arm, size]}
            best = collected.best_mpi(mpi_arms, size)
            if best:
                row |= {"best_mpi_us": best[0], "best_mpi": best[1], "times": best[0] / own}
            rows.append(row)
    return rows


def mpi_for_json(collected: Collected) -> list[Json]:
    """One row per arm and size, with the microseconds of each run by algorithm."""
    rows: dict[tuple[str, int], Json] = defaultdict(dict)
    for algorithm, medians in collected.mpi.items():
        for (arm, size), runs in medians.items():
            if runs:
                rows[arm, size][algorithm] = runs
    return [
        {"arm": arm, "bytes": size, "us_by_algorithm": runs}
        for (arm, size), runs in sorted(rows.items())
    ]


def main() -> None:
    parser = report.parser("collectives", __doc__ or "")
    parser.add_argument("-n", dest="ranks", type=whole, default=2, metavar="N", help="ranks (2)")
    parser.add_argument(
        "--rounds", type=whole, default=3, metavar="N", help="turns of all arms (default 3)"
    )
    arguments = parser.parse_args()
    sizes = QUICK_SIZES if arguments.quick else SIZES
    reason = why_no_mpi(arguments)
    if reason is not None:
        print(f"Without Open MPI: {reason}.\n")
    collected = measure(arguments, sizes, with_mpi=reason is None)
    print_tables(collected, sizes, arguments)
    goals = [
        Goal(f"{arm}, {report.readable_bytes(size)}, x Open MPI", best[0] / own, times)
        for arm, size, times in GOALS
        if size in sizes and (best := collected.best_mpi(MERON_ARMS[arm], size))
        for own in [median(collected.meron[arm, size])]
    ]
    report.finish(
        "collectives",
        arguments,
        goals,
        median(collected.disturbed),
        ranks=arguments.ranks,
        open_mpi=reason or "measured",
        rows=rows_for_json(collected, sizes),
        mpi=mpi_for_json(collected),
    )


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
