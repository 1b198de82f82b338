# SPDX-License-Identifier: Apache-2.0
"""Summaries of reports: bench/results keeps medians and spreads, not samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Json = dict[str, Any]

# Lists of numbers that are not samples of one quantity.
SERIES = {"sizes", "losses", "predicted_ms", "seconds_by_pass"}
PAGE = "README.md"
WIDTH = 600  # of a line; a longer dict of dicts has a line per key
INTRODUCTION = """\
# Results of the benchmarks

These are the measurements that the project quotes. Each JSON file has one run, a line per case.
`tools/bench keep` writes the files and this page. The [guide](../README.md) explains the figures.
[gpu](gpu/README.md) has runs on GPUs, [fault.md](fault.md) faults injected into checkpoints.
"""


# ---- Summaries ----------------------------------------------------------------------------------


def summary(report: Json) -> Json:
    """Returns the report with a spread in place of each list of samples.

    The dicts of a list `runs` become one, with the number of `turns`.
    """
    return {key: summary_of(key, value) for key, value in report.items()}


def summary_of(key: str, value: Any, in_runs: bool = False) -> Any:
    in_runs = in_runs or key == "runs"
    if isinstance(value, dict):
        return {name: summary_of(name, each, in_runs) for name, each in value.items()}
    if not isinstance(value, list) or not value:
        return value
    if is_samples(value):
        return value if key in SERIES else spread(value)
    if all(is_samples(each) for each in value):
        return [median(samples) for samples in zip(*value, strict=True)]
    if all(isinstance(each, dict) for each in value):
        return merged(value) if in_runs else [summary(each) for each in value]
    return value


def merged(runs: Sequence[Json]) -> Json:
    """Returns the runs of one case as one: what is equal in all of them once, else a spread."""
    keys = dict.fromkeys(key for run in runs for key in run)
    found = {key: merged_values(key, [run[key] for run in runs if key in run]) for key in keys}
    return {"turns": len(runs), **found}


def merged_values(key: str, values: list[Any]) -> Any:
    if key not in SERIES and all(is_samples(value) for value in values):
        return spread(*values)
    if all(value == values[0] for value in values):
        return summary_of(key, values[0])
    if all(map(is_number, values)):
        return spread(values)
    return values


def spread(*turns: Sequence[float]) -> Json:
    """Returns the median of the turns' medians, and the range and number of all samples."""
    samples = [sample for turn in turns for sample in turn]
    return {
        "median": median(map(median, turns)),
        "min": min(samples),
        "max": max(samples),
        "samples": len(samples),
    }


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_samples(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_number, value))


# ---- Files --------------------------------------------------------------------------------------


def text_of(report: Json) -> str:
    """Returns the report as JSON with one line per case."""
    return "\n".join(lines_of(report, "", top=True)) + "\n"


def lines_of(value: Any, indent: str, top: bool = False) -> Iterator[str]:
    if not top and not has_cases(value):
        yield indent + json.dumps(value, ensure_ascii=False)
        return
    is_list = isinstance(value, list)
    items = [("", each) for each in value] if is_list else [*value.items()]
    yield indent + ("[" if is_list else "{")
    for number, (key, each) in enumerate(items, 1):
        head, *rest = lines_of(each, indent + " ")
        if not is_list:
            head = f"{indent} {json.dumps(key)}: {head.lstrip()}"
        lines = [head, *rest]
        lines[-1] += "," if number < len(items) else ""
        yield from lines
    yield indent + ("]" if is_list else "}")


def has_cases(value: Any) -> bool:
    """True if the value takes several lines: it has a list of cases or texts, or is long."""
    if isinstance(value, dict):
        cases = list(value.values())
        is_long = len(json.dumps(value)) > WIDTH and all(isinstance(each, dict) for each in cases)
        return is_long or any(map(has_cases, cases))
    return isinstance(value, list) and any(isinstance(each, dict | str) for each in value)


def reports_in(folder: Path) -> dict[str, Json]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


# ---- The page -----------------------------------------------------------------------------------


def page_of(reports: dict[str, Json]) -> str:
    """Returns the page with one table per report, of the figures that have goals."""
    parts = [INTRODUCTION]
    for name, report in reports.items():
        if "benches" in report:
            table = compared_table(report)
        elif "goals" in report:
            table = goals_table(report["goals"])
        else:
            continue
        parts.append(f"## {name}\n\n{about(name, report)}\n\n{table}\n")
    return "\n".join(parts)


def about(name: str, report: Json) -> str:
    """Returns the sentence with command, date, commit and hardware of a run."""
    words = f"`{report['command']}` on {report['date']}"
    if "commits" in report:
        words += ", commits {before} and {now}".format(**report["commits"])
    elif "commit" in report:
        words += f", commit {report['commit']}"
    if "machine" in report:
        words += ", {cpu}, {cores} cores, Linux {kernel}".format(**report["machine"])
    return f"{words}: [{name}.json]({name}.json)."


def goals_table(goals: Iterable[Json]) -> str:
    rows = ["| figure | value | goal | |", "|---|---:|---:|---|"]
    for goal in goals:
        # Goals of C++ programs are lower bounds.
        sign = "≥" if goal.get("at_least", True) else "≤"
        verdict = "met" if goal["passed"] else "**missed**"
        rows.append(
            f"| {goal['name']} | {shown(goal['value'])} | {sign} {goal['goal']:g} | {verdict} |"
        )
    return "\n".join(rows)


def compared_table(report: Json) -> str:
    rows = ["| figure | before | now | gain | |", "|---|---:|---:|---:|---|"]
    for bench, figures in report["benches"].items():
        for figure in figures:
            before, now = (shown_spread(figure[side]) for side in ("before", "now"))
            gain = f"{figure['gain']:+.1%}" if "gain" in figure else ""
            verdict = figure.get("verdict", "")
            rows.append(f"| {bench}: {figure['name']} | {before} | {now} | {gain} | {verdict} |")
    return "\n".join(rows)


def shown_spread(value: Any) -> str:
    return shown(value["median"]) if value else ""


def shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
