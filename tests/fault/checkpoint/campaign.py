# SPDX-License-Identifier: Apache-2.0
"""The whole campaign of faults against checkpoints, and its table: tools/test --full fault.

Builds the preset dev, which has kill points and planned faults, and ends with the line of
tools/test: each class of faults counts as one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench" / "shared"))

import report  # noqa: E402
import results  # noqa: E402

# By class: the injected fault, and the required outcome.
CLASSES = {
    "killed": (
        "SIGKILL of one rank or all, at kill points of save and commit and at random times",
        "what was reported as saved loads exactly; nothing torn loads; leftovers are swept",
    ),
    "power cuts": (
        "ext4 shut down without its log, or its image copied, while ranks save",
        "the same, after the journal was replayed",
    ),
    "failing calls": (
        "the n-th open, mkdir, write, fsync, rename or read of a save fails, once or from then on",
        "all ranks get the error, which names the rank; the next save works; nothing is lost",
    ),
    "failing reads": (
        "the n-th read or open of a load fails, once or from then on",
        "all ranks get the error; nothing wrong is loaded as good",
    ),
    "full disks": (
        "a small ext4 is saved to until it is full",
        "all ranks get MERON_E_NO_SPACE; training goes on; with room again, saves do",
    ),
    "bit flips": (
        "one bit of the manifest, a header or the data",
        "the load names file or tensor",
    ),
    "truncations": (
        "a file is shortened, lengthened or removed",
        "the load names file or tensor",
    ),
    "files of another save": (
        "a file comes from another save of the same model",
        "the load names file or tensor",
    ),
}  # fmt: skip
Json = dict[str, Any]
COUNTED = ("trials", "saves", "loads")


def trials_of(counts: dict[str, int]) -> int:
    return sum(counts.get(key, 0) for key in COUNTED)


def build(preset: str) -> bool:
    configuring = ["cmake", "--preset", preset, f"-DMERON_PYTHON={sys.executable}"]
    building = ["cmake", "--build", "--preset", preset, "--target", "test_fault_checkpoint"]
    for command in (configuring, building):
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            print(f"{done.stdout}\n{' '.join(command)} failed")
            return False
    return True


def cases_of(program: Path) -> list[str]:
    listing = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True)
    cases, suite = [], ""
    for line in listing.stdout.splitlines():
        if line.endswith("."):
            suite = line
        elif line.startswith("  ") and suite:
            cases.append(suite + line.strip())
    return cases


def run_case(program: Path, case: str, share: float, seed: int) -> tuple[list[Json], int]:
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "report"
        environment = {
            **os.environ,
            "MERON_FAULT_SHARE": str(share),
            "MERON_FAULT_REPORT": str(lines),
            "MERON_TEST_SEED": str(seed),
        }
        done = subprocess.run(
            [program, "--gtest_brief=1", f"--gtest_filter={case}"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        text = lines.read_text() if lines.exists() else ""
    print(f"{case}: exit status {done.returncode}", flush=True)
    if done.returncode != 0:
        print(done.stdout, flush=True)
    return [json.loads(line) for line in text.splitlines()], done.returncode


def run(build: Path, share: float, seed: int) -> tuple[list[Json], int, float]:
    """The classes, how many cases failed, and seconds. Most of a trial is waiting: cases run beside
    each other."""
    program = build / "tests/fault/checkpoint/test_fault_checkpoint"
    begin = time.monotonic()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) + 1) as pool:
        jobs = [pool.submit(run_case, program, case, share, seed) for case in cases_of(program)]
        done = [job.result() for job in jobs]
    classes = sorted((each for lines, _ in done for each in lines), key=order_of)
    return classes, sum(status != 0 for _, status in done), time.monotonic() - begin


def order_of(each: Json) -> int:
    return list(CLASSES).index(each["class"])


def bound(trials: int) -> str:
    """Of the rate of failures, at 95 %: the rule of three."""
    return f"{300 / trials:.2f} %" if trials else "none"


def write_table(path: Path, classes: list[Json], about: Json) -> None:
    machine = about["machine"]
    lines = [
        "# Faults against checkpoints",
        "",
        f"`tools/test --full fault` on {about['date']}, commit {about['commit']}, seed "
        f"{about['seed']}: {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, "
        f"{about['seconds']:.0f} s.",
        "",
        "| injected | required | trials | wrong | at most, of all (95 %) |",
        "|---|---|---:|---:|---:|",
    ]
    for each in classes:
        what, required = CLASSES[each["class"]]
        trials = trials_of(each["counts"])
        lines.append(f"| {what} | {required} | {trials} | {each['failures']} | {bound(trials)} |")
    lines += ["", "Outcomes of the trials:", ""]
    for each in classes:
        counts = ", ".join(
            f"{name} {count}" for name, count in each["counts"].items() if name not in COUNTED
        )
        if counts:
            lines.append(f"- {each['class']}: {counts}")
    path.write_text("\n".join(lines) + "\n")


def write_summary(path: Path, classes: list[Json], about: Json) -> None:
    """Writes what the table is made of as JSON, with one line per class."""
    rows = [
        {
            "class": each["class"],
            "trials": trials_of(each["counts"]),
            "wrong": each["failures"],
            "outcomes": {key: n for key, n in each["counts"].items() if key not in COUNTED},
        }
        for each in classes
    ]
    path.write_text(results.text_of({"bench": "fault", **about, "classes": rows}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="dev", help="a build with fault points (dev)")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--share", type=float, default=1.0, help="of the trials (1)")
    parser.add_argument("--seed", type=int, default=20261121)
    arguments = parser.parse_args()
    if not build(arguments.preset):
        print("0 passed, 1 failed, 0 skipped")
        return 1
    commit = report.commit()  # what was built
    folder = ROOT / "build" / arguments.preset
    classes, wrong, seconds = run(folder, arguments.share, arguments.seed)
    about = {
        "date": report.today(),
        "command": "tools/test --full fault",
        "commit": commit,
        "machine": report.machine(),
        "seed": arguments.seed,
        "seconds": round(seconds, 1),
    }
    if arguments.share >= 1:
        arguments.results.mkdir(parents=True, exist_ok=True)
        write_table(arguments.results / "fault.md", classes, about)
        write_summary(arguments.results / "fault.json", classes, about)
        print(f"The table is in {arguments.results}/fault.md and fault.json.")
    failed = sum(each["failures"] for each in classes)
    failed = max(failed, wrong)  # a crash leaves no line
    skipped = [name for name in CLASSES if name not in {each["class"] for each in classes}]
    for name in skipped:
        print(f"{name}: skipped, or not reached")
    print(f"{len(classes) - failed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
