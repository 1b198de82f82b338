# SPDX-License-Identifier: Apache-2.0
"""Keeps reports of benchmarks in bench/results, without samples. `tools/bench keep` starts this."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

import results
from report import BenchError, Json, exit_code_of

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
SAVED = ROOT / "build" / "results"

HELP = """\
Reads reports of earlier runs, replaces their samples by median, range and number, and writes the
summaries and the page of tables into bench/results. Nothing is measured:

  tools/bench torch          saves the report with all samples as build/results/torch.json
  tools/bench keep torch     writes bench/results/torch.json and bench/results/README.md
  tools/bench keep           writes the page alone
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/bench keep",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a benchmark, or the file of a report"
    )
    parser.add_argument(
        "--as", dest="name", metavar="NAME", help="name of the summary, if one report is given"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FOLDER", help="%(default)s"
    )
    arguments = parser.parse_args()
    if arguments.name is not None and len(arguments.names) != 1:
        parser.error("--as takes exactly one report")
    return arguments


def path_of(name: str) -> Path:
    return Path(name) if name.endswith(".json") else SAVED / f"{name}.json"


def read(path: Path) -> Json:
    """Returns the report with bench, date and command, which programs in C++ leave out."""
    try:
        report: Json = json.loads(path.read_text())
    except OSError as error:
        raise BenchError(
            f"cannot read {path}: {error.strerror}. Run the benchmark first"
        ) from error
    except ValueError as error:
        raise BenchError(f"{path} is not the report of a benchmark: {error}") from error
    if report.get("quick"):
        raise BenchError(
            f"{path} is the report of a run with --quick. Run the benchmark without it"
        )
    saved = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).date()
    bench = report.get("bench", path.stem)
    head = {"bench": bench, "date": saved.isoformat(), "command": f"tools/bench {bench}"}
    return {**head, **report}


def main() -> None:
    arguments = parse_arguments()
    for path in map(path_of, arguments.names):
        target = arguments.results / f"{arguments.name or path.stem}.json"
        target.write_text(results.text_of(results.summary(read(path))))
        print(target)
    page = arguments.results / results.PAGE
    page.write_text(results.page_of(results.reports_in(arguments.results)))
    print(page)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
