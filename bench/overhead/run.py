# SPDX-License-Identifier: Apache-2.0
"""Measures the caller's cost of begin + wait + release of an available unit, per language."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import report
from report import Goal, Json, median

FOLDER = Path(__file__).resolve().parent
ARMS = ("leased already", "only lease")
GOALS = {"C": 1000, "Python": 5000}  # nanoseconds, for a unit that is leased already
JULIA_OVER_C = 50  # nanoseconds at most
RUST_OF_C = 1.05  # at most so many times as long as C


def rust_program(build: Path) -> Path | None:
    """Builds the program in rust/ against the library of `build`. Returns None if cargo is
    missing."""
    if shutil.which("cargo") is None:
        print("Without Rust: there is no cargo (tools/setup --rust).\n")
        return None
    build = build.resolve()
    target = build / "rust"
    command = ["cargo", "build", "--offline", "--release", "--quiet"]
    places = {"MERON_DIR": str(build), "CARGO_TARGET_DIR": str(target)}
    done = subprocess.run(
        command, cwd=FOLDER / "rust", env={**os.environ, **places}, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise report.BenchError(f"bench/overhead/rust cannot be built:\n{done.stderr.strip()}")
    return target / "release" / "overhead"


def julia_program(build: Path) -> list[str | Path] | None:
    """Compiles the package and returns the command for ranks.jl, or None if julia is missing."""
    if shutil.which("julia") is None:
        print("Without Julia: there is no julia (tools/setup --julia).\n")
        return None
    os.environ["JULIA_DEPOT_PATH"] = str(build.resolve() / "julia")
    project = FOLDER.parents[1] / "bindings" / "julia"
    command: list[str | Path] = ["julia", "--startup-file=no", f"--project={project}"]
    done = subprocess.run([*command, "-e", "using Meron"], capture_output=True, text=True)
    if done.returncode != 0:
        raise report.BenchError(f"Meron.jl cannot be loaded:\n{done.stderr.strip()}")
    return [*command, FOLDER / "ranks.jl"]


def main() -> None:
    arguments = report.parser("overhead", __doc__ or "").parse_args()
    programs: dict[str, list[str | Path]] = {
        "C": [arguments.build / "bench/overhead/bench_overhead"]
    }
    rust = rust_program(arguments.build)
    if rust is not None:
        programs["Rust"] = [rust]
    julia = julia_program(arguments.build)
    if julia is not None:
        programs["Julia"] = julia
    missing = [name for name in ("numpy", "cffi") if not report.has_module(name)]
    if missing:
        print(f"Without Python: {' and '.join(missing)} cannot be imported (tools/setup).\n")
    else:
        programs["Python"] = [sys.executable, "-B", FOLDER / "ranks.py"]
    rounds = 1 if arguments.quick else 3
    meron = arguments.build / "tools/meron/meron"

    # (language, ranks, arm) -> the median of each run, in nanoseconds
    runs: dict[tuple[str, int, str], list[float]] = {}
    disturbed = []
    for _ in range(rounds):
        for ranks in (1, 2):
            for language, program in programs.items():
                words = [meron, "run", "-n", str(ranks), "--", *program]
                result = report.run_ranks(
                    [*words, *(["--quick"] if arguments.quick else [])],
                    {"LD_LIBRARY_PATH": str(arguments.build.resolve() / "capi")},
                )
                disturbed.append(result["disturbed"])
                for series in result["series"]:
                    key = (language, ranks, series["arm"])
                    runs.setdefault(key, []).append(1000 * median(series["us"]))

    table = [["unit", "ranks", *programs]]
    for arm in ARMS:
        for ranks in (1, 2):
            cells = [f"{median(runs[language, ranks, arm]):.0f}" for language in programs]
            table.append([arm, str(ranks), *cells])
    print(f"Nanoseconds for begin + wait + release, medians\n{report.columns(table)}\n")
    goals = [
        Goal(
            f"{language}, {ranks} rank{'s' if ranks > 1 else ''}, ns", time, GOALS[language], False
        )
        for language in programs
        if language in GOALS
        for ranks in (1, 2)
        for time in [median(runs[language, ranks, "leased already"])]
    ]
    if rust is not None:
        for ranks in (1, 2):
            times = [median(runs[name, ranks, "leased already"]) for name in ("Rust", "C")]
            name = f"Rust / C, {ranks} rank{'s' if ranks > 1 else ''}"
            goals.append(Goal(name, times[0] / times[1], RUST_OF_C, False))
    if julia is not None:
        for ranks in (1, 2):
            times = [median(runs[name, ranks, "leased already"]) for name in ("Julia", "C")]
            name = f"Julia - C, {ranks} rank{'s' if ranks > 1 else ''}, ns"
            goals.append(Goal(name, times[0] - times[1], JULIA_OVER_C, False))
    rows: list[Json] = [
        {"language": language, "ranks": ranks, "arm": arm, "ns": median(values), "runs": values}
        for (language, ranks, arm), values in runs.items()
    ]
    report.finish("overhead", arguments, goals, median(disturbed), rows=rows)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
