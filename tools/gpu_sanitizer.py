# SPDX-License-Identifier: Apache-2.0
"""Phases of tools/gpu-check: the GPU tests in C++ under tools of compute-sanitizer."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gpu_machine
from gpu_phases import BUILD, LABEL, SKIPPED, Check, Outcome

SANITIZER_FOUND = 86
# Without cases that are too long under compute-sanitizer; GTEST_FILTER is another choice.
SHORT_CASES = "-*Long*:*Large*"


@dataclass(frozen=True)
class Program:
    name: str
    path: Path
    environment: dict[str, str]
    folder: Path


def programs_of(listing: str) -> list[Program]:
    """The tests in C++ of `ctest --show-only=json-v1`, of those that were built."""
    found = []
    for test in json.loads(listing).get("tests", []):
        command = test.get("command") or [""]
        path = Path(command[0])
        if not path.name.startswith("test_") or not os.access(path, os.X_OK):
            continue
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        variables = dict(entry.split("=", 1) for entry in properties.get("ENVIRONMENT", []))
        folder = Path(properties.get("WORKING_DIRECTORY", path.parent))
        found.append(Program(test["name"], path, variables, folder))
    return found


# The smallest program that a sanitizer of devices has something to see in.
TRIVIAL = "__global__ void set(int* x) { *x = 1; }\nint main() {\n  int* x;\n" + (
    "  if (cudaMalloc(&x, 4) != cudaSuccess) return 1;\n  set<<<1, 1>>>(x);\n"
    "  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;\n}\n"
)


def why_no_sanitizer(check: Check, seconds: float) -> str | None:
    machine = check.machine
    if machine.sanitizer is None:
        return "compute-sanitizer is not on this machine"
    if machine.nvcc is None:
        return "without nvcc there is no test in C++"
    source, program = BUILD / "trivial.cu", BUILD / "trivial"
    if not program.exists():
        source.write_text(TRIVIAL)
        architecture = machine.architectures.partition(";")[0]
        target = [f"-arch=sm_{architecture}"] if architecture else []
        made = check.run([machine.nvcc, *target, "-o", program, source], seconds / 2)
        if made.status != 0:
            return made.fault("nvcc, for a trivial program,")
    ended = check.run([machine.sanitizer, "--error-exitcode", "86", program], seconds / 2)
    if ended.status != 0:
        said = next((line for line in ended.lines if "rror" in line), "")
        return f"compute-sanitizer does not work here: {said or ended.fault('it')}"
    return None


def sanitize(tool: str, pattern: str) -> Callable[[Check, float], Outcome]:
    """A phase: the tests in C++ whose names match, under a tool of compute-sanitizer."""

    def run(check: Check, seconds: float) -> Outcome:
        end = time.monotonic() + seconds
        listing = gpu_machine.output_of(
            ["ctest", "--test-dir", str(BUILD), "-L", LABEL, "--show-only=json-v1"]
        )
        programs = [test for test in programs_of(listing or "{}") if re.search(pattern, test.name)]
        if not programs:
            return Outcome("skipped", "there is no such test in this build")
        fault = why_no_sanitizer(check, seconds)
        if fault is not None:
            return Outcome("skipped", fault)
        clean: list[str] = []
        found: list[str] = []
        late: list[str] = []
        without: list[str] = []
        for position, program in enumerate(programs):
            left = end - time.monotonic()
            if position + 1 < len(programs):
                left /= 2  # a slow one leaves some to the others
            if left < 2:
                late.append(program.name)
                continue
            environment = {"GTEST_FILTER": SHORT_CASES, **os.environ, **program.environment}
            assert check.machine.sanitizer is not None
            command: list[str | Path] = [check.machine.sanitizer, "--tool", tool]
            if tool == "memcheck":  # tests call what is refused, too
                command += ["--report-api-errors", "no"]
            command += ["--error-exitcode", str(SANITIZER_FOUND), program.path, "--gtest_brief=1"]
            ended = check.run(command, left, environment=environment, folder=program.folder)
            if ended.status is None:
                late.append(program.name)
            elif ended.status == SKIPPED:
                without.append(program.name)
            else:
                (clean if ended.status == 0 else found).append(program.name)
            check.say(f"  {program.name}: {verdict_of(ended.status)}")
        check.failures += [f"{tool}: {name}" for name in found]
        note = f"{len(clean)} of {len(programs)} clean"
        note += f"; no time for {', '.join(late)}" if late else ""
        note += f"; without a device: {', '.join(without)}" if without else ""
        if found:
            return Outcome("failed", f"{note}; not: {', '.join(found)}")
        return Outcome("passed" if clean else "skipped", note)

    return run


def verdict_of(status: int | None) -> str:
    known = {0: "clean", SKIPPED: "skipped", SANITIZER_FOUND: "FOUND SOMETHING", None: "no time"}
    return known.get(status, f"FAILED with exit status {status}")
