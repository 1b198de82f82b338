# SPDX-License-Identifier: Apache-2.0
"""Measures what plans save between two hosts with a slow link: a GPT's steps, and collectives."""

from __future__ import annotations

import json
import os
import shutil
import sys
from argparse import Namespace
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import report
from arguments import duration, names_of, whole
from plans import ARMS
from predicted import Predicted, step_times
from report import BenchError, Goal, Json, median
from shape import LAYERS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "distributed" / "hosts"))
import hosts
import namespaces
from hosts import Hosts

HERE = Path(__file__).resolve().parent
SKIPPED = 77
PER_HOST = 2
UNLIMITED = "none"
CASES = {
    "small": "GPT of 20 million parameters, 1 x 8 bytes a rank: nearly nothing but the link",
    "usual": "The same with 8 x 128 bytes a rank",
}
COLLECTIVES = {"gather": ("none", "int8", 1.9), "reduce": ("bf16", "int4", 3.7)}


class Bench:
    def __init__(self, arguments: Namespace) -> None:
        self.arguments = arguments
        self.rates: list[str] = arguments.rates.split(",")
        self.cases: list[str] = arguments.cases
        self.arms: list[str] = arguments.arms
        self.steps: dict[tuple[str, str, str], list[Json]] = defaultdict(list)  # rate, case, arm
        self.units: dict[tuple[str, str, str], list[Json]] = defaultdict(list)  # codec last
        self.traffic: list[Json] = []

    # ---- Measuring

    def measure(self) -> None:
        for rate in [UNLIMITED, *self.rates]:
            shape = {} if rate == UNLIMITED else {"rate": rate}
            with Hosts(2, cpus=processors(), **shape) as made:
                # Arms take turns within one program: they meet one machine, and start once.
                jobs = [[case, arm] for case in self.cases for arm in self.arms]
                for run in self.run(made, rate, "train.py", "--jobs", json.dumps(jobs)):
                    self.steps[rate, run["case"], run["arm"]].append(run)
                for run in self.run(made, rate, "units.py", ranks_per_host=1):
                    self.units[rate, run["collective"], run["codec"]].append(run)

    def run(
        self, made: Hosts, rate: str, program: str, *words: str, ranks_per_host: int = PER_HOST
    ) -> list[Json]:
        rounds, seconds = self.arguments.rounds, self.arguments.seconds
        if sys.stderr.isatty():
            print(f"\r{rate}: {program}        ", end="", file=sys.stderr, flush=True)
        command = [sys.executable, "-B", str(HERE / program), *words]
        command += ["--rounds", str(rounds), "--seconds", str(seconds)]
        if self.arguments.quick:
            command += ["--least", "1"]
        before = made.traffic()
        done = made.run(
            command,
            ranks_per_host=ranks_per_host,
            environment={"OMP_NUM_THREADS": "1"},
            timeout=self.arguments.patience,
        )
        grown = {name: asdict(count - before[name]) for name, count in made.traffic().items()}
        self.traffic.append({"rate": rate, "program": program, "hosts": grown})
        if sys.stderr.isatty():
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"series"')]
        if done.returncode != 0 or not lines:
            raise BenchError(f"{program} ended with exit code {done.returncode}:\n{done.stdout}")
        series: list[Json] = json.loads(lines[-1])["series"]
        return series

    # ---- Figures

    def ms(self, rate: str, case: str, arm: str) -> float:
        return median(median(run["ms"]) for run in self.steps[rate, case, arm])

    def figure(self, rate: str, case: str, arm: str, key: str) -> float:
        return median(run[key] for run in self.steps[rate, case, arm])

    def times(self, rate: str, case: str, arm: str) -> float:
        return self.ms(rate, case, ARMS[arm].base) / self.ms(rate, case, arm)

    def link_share(self, rate: str, case: str, arm: str) -> float:
        return 1 - self.ms(UNLIMITED, case, arm) / self.ms(rate, case, arm)

    def predicted(self, rate: str, case: str, arm: str) -> Predicted:
        chosen = ARMS[arm]
        return step_times(
            self.arguments.build / "tools" / "meron" / "meron",
            hosts.bits_per_second(rate),
            PER_HOST,
            int(self.figure(rate, case, arm, "elements")),
            LAYERS,
            chosen.micro_batches,
            self.ms(UNLIMITED, case, arm) / 1e3,
        )[chosen.predicted]

    def unit_ms(self, rate: str, collective: str, codec: str) -> float:
        return median(median(run["ms"]) for run in self.units[rate, collective, codec])

    def disturbed(self) -> float:
        runs = [run for table in (self.steps, self.units) for of in table.values() for run in of]
        return sum(run["others"] > 0.1 for run in runs) / len(runs)

    # ---- Tables

    def print_tables(self) -> None:
        print(f"Two hosts with {PER_HOST} ranks each, one thread a rank; medians over steps.")
        print(
            "x: step rate over zero3's of as many micro-batches. link: the share of the step that"
        )
        print("an unlimited link takes away. MiB per rank and step from the other host: counted,")
        print(
            "and predicted; on the device: all that a host has sent, over its ranks. predicted ms:"
        )
        print(
            "by meron plan --cluster, with perfect overlap of link and computation, and with none."
        )
        print()
        for rate in self.rates:
            for case in self.cases:
                print(f"{CASES[case]}; {rate}")
                print(report.columns(self.rows(rate, case)), end="\n\n")
        for rate in self.rates:
            print(f"Collectives: 8 units of 8 MiB at once, one rank a host; {rate}")
            print(report.columns(self.unit_rows(rate)), end="\n\n")

    def rows(self, rate: str, case: str) -> list[list[str]]:
        head = ["plan x micro-batches", "ms", "predicted ms", "x", "link", "unlimited ms"]
        rows = [[*head, "waiting ms", "CPU ms", "MiB", "predicted MiB", "on the device"]]
        for arm in self.arms:
            counted = self.figure(rate, case, arm, "gathered")
            counted += self.figure(rate, case, arm, "reduced")
            exact = all(run["as_predicted"] for run in self.steps[rate, case, arm])
            rows.append(
                [
                    arm,
                    f"{self.ms(rate, case, arm):.0f}",
                    " - ".join(f"{s * 1e3:.0f}" for s in self.predicted(rate, case, arm)),
                    f"{self.times(rate, case, arm):.2f}",
                    f"{self.link_share(rate, case, arm):.0%}",
                    f"{self.ms(UNLIMITED, case, arm):.0f}",
                    f"{self.figure(rate, case, arm, 'wait_ms'):.0f}",
                    f"{self.figure(rate, case, arm, 'processor_ms'):.0f}",
                    mib(counted),
                    "equal" if exact else mib(self.figure(rate, case, arm, "predicted")),
                    mib(self.figure(rate, case, arm, "on_device") / PER_HOST),
                ]
            )
        return rows

    def unit_rows(self, rate: str) -> list[list[str]]:
        rows = [["collective", "codec", "ms", "x", "CPU ms", "counted MiB", "on the device"]]
        for collective, (base, coded, _) in COLLECTIVES.items():
            for codec in (base, coded):
                runs = self.units[rate, collective, codec]
                own = self.unit_ms(rate, collective, codec)
                rows.append(
                    [
                        collective,
                        codec,
                        f"{own:.0f}",
                        f"{self.unit_ms(rate, collective, base) / own:.2f}",
                        f"{median(run['processor_ms'] for run in runs):.0f}",
                        mib(median(run["gathered"] + run["reduced"] for run in runs)),
                        mib(median(run["on_device"] for run in runs)),
                    ]
                )
        return rows

    def goals(self) -> list[Goal]:
        goals = []
        for rate in self.rates:
            if "small" in self.cases:
                share = self.link_share(rate, "small", "zero3")
                goals.append(Goal(f"{rate}: zero3, share of the link", share, 0.9))
                for name in self.arms:
                    goal = ARMS[name].goal
                    if goal is not None:
                        times = self.times(rate, "small", name)
                        goals.append(Goal(f"{rate}: {name}, x zero3", times, goal))
            for collective, (base, coded, goal) in COLLECTIVES.items():
                own = self.unit_ms(rate, collective, coded)
                times = self.unit_ms(rate, collective, base) / own
                goals.append(Goal(f"{rate}: {collective} in {coded}, x its own bf16", times, goal))
        return goals

    # ---- For programs

    def series(self) -> list[Json]:
        """Results per rate, case and arm. `measured` is the reference for predicted step times."""
        found = []
        for (rate, case, arm), runs in self.steps.items():
            measured: Json = {
                "step_ms": self.ms(rate, case, arm),
                "link_bits_per_second": None if rate == UNLIMITED else hosts.bits_per_second(rate),
                "compute_ms": self.ms(UNLIMITED, case, arm),
            }
            if rate != UNLIMITED:
                perfect, none = self.predicted(rate, case, arm)
                measured["predicted_ms"] = [perfect * 1e3, none * 1e3]
            described: Json = {"plan": ARMS[arm].plan, "micro_batches": ARMS[arm].micro_batches}
            found.append(
                {"rate": rate, "case": case, "arm": arm}
                | described
                | {"measured": measured, "runs": runs}
            )
        return found

    def unit_series(self) -> list[Json]:
        return [
            {"rate": rate, "collective": collective, "codec": codec, "runs": runs}
            for (rate, collective, codec), runs in self.units.items()
        ]


def mib(count: float) -> str:
    return f"{count / 2**20:.2f}"


def processors() -> str:
    """Half for each host, as taskset takes them."""
    cpus = sorted(os.sched_getaffinity(0))
    halves = [cpus[: len(cpus) // 2], cpus[len(cpus) // 2 :]] if len(cpus) > 1 else [cpus]
    return "/".join(",".join(map(str, half)) for half in halves)


def why_not(build: Path) -> str | None:
    if shutil.which("mpirun") is None:
        return "no program mpirun (tools/setup --mpi installs Open MPI)"
    if not any((build / "capi").glob("libmeron_mpi.so*")):
        return "libmeron_mpi.so was not built (tools/setup --mpi installs what it needs)"
    if not report.has_module("torch"):
        return report.WITHOUT_TORCH
    return namespaces.why_not()


def main() -> None:
    parser = report.parser("slow-link", __doc__ or "")
    parser.add_argument("--rates", default="1gbit,200mbit", help="of the link (%(default)s)")
    parser.add_argument(
        "--cases", type=names_of(CASES), default=",".join(CASES), help="batches (%(default)s)"
    )
    parser.add_argument(
        "--arms",
        type=names_of(ARMS),
        default=",".join(ARMS),
        metavar="A,B",
        help="and what they need",
    )
    parser.add_argument(
        "--rounds", type=whole, default=3, metavar="N", help="turns of all arms (3)"
    )
    parser.add_argument(
        "--seconds",
        type=duration,
        default=3,
        help="of steps per arm and round; 3 steps at least (3)",
    )
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    arguments.patience = 3600.0
    wanted = {*arguments.arms, *(ARMS[name].base for name in arguments.arms), "zero3"}
    arguments.arms = [name for name in ARMS if name in wanted]
    if arguments.quick:
        arguments.rates, arguments.rounds, arguments.seconds = "1gbit", 1, 0.1
    try:
        for rate in arguments.rates.split(","):
            hosts.bits_per_second(rate)
    except ValueError as problem:
        raise BenchError(str(problem)) from None
    reason = why_not(arguments.build)
    if reason is not None:
        print(f"slow-link: skipped: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)
    bench = Bench(arguments)
    bench.measure()
    bench.print_tables()
    report.finish(
        "slow-link",
        arguments,
        bench.goals(),
        bench.disturbed(),
        ranks_per_host=PER_HOST,
        series=bench.series(),
        collectives=bench.unit_series(),
        traffic=bench.traffic,
    )


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
