# SPDX-License-Identifier: Apache-2.0
"""What begin + wait + release of a unit that is at hand costs its caller, in C and Python."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import report
from report import Goal, Json, median

FOLDER = Path(__file__).resolve().parent
ARMS = ("leased already", "only lease")
GOALS = {"C": 1000, "Python": 5000}  # nanoseconds, for a unit that is leased already


def main() -> None:
    arguments = report.parser("overhead", __doc__ or "").parse_args()
    programs: dict[str, list[str | Path]] = {
        "C": [arguments.build / "bench/overhead/bench_overhead"]
    }
    missing = [name for name in ("numpy", "cffi") if importlib.util.find_spec(name) is None]
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
                result = report.run_ranks([*words, *(["--quick"] if arguments.quick else [])])
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
        for ranks in (1, 2)
        for time in [median(runs[language, ranks, "leased already"])]
    ]
    rows: list[Json] = [
        {"language": language, "ranks": ranks, "arm": arm, "ns": median(values), "runs": values}
        for (language, ranks, arm), values in runs.items()
    ]
    report.finish("overhead", arguments, goals, median(disturbed), rows=rows)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
