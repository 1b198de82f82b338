# SPDX-License-Identifier: Apache-2.0
"""Configures and builds presets, one at once and the others behind the tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from tally import say
from testing.project import ROOT, SANITIZERS


def configure(preset: str, prefix: Sequence[str] = ()) -> list[str] | None:
    """Configures a preset by a command that `prefix` starts. Returns None, or what is wrong."""
    # GCC's manual advises against -Werror with sanitizers, which cause false warnings.
    strict = "OFF" if preset in SANITIZERS else "ON"
    configuring = ["cmake", "--preset", preset, f"-DMERON_WERROR={strict}"]
    try:
        configured = subprocess.run(
            [*prefix, *configuring, f"-DMERON_PYTHON={sys.executable}"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        return [f"{preset}: configuring FAILED: cmake is not installed; tools/setup installs it"]
    if configured.returncode != 0:
        return [configured.stdout, f"{preset}: configuring FAILED"]
    return None


def build(
    preset: str,
    jobs: int,
    show: Callable[[str], None],
    prefix: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> list[str] | None:
    """Builds a configured preset, or some targets of it; `show` gets ninja's count. Returns None,
    or what is wrong."""
    words = ["cmake", "--build", "--preset", preset, "--parallel", str(jobs)]
    if targets:
        words += ["--target", *targets]
    process = subprocess.Popen(
        [*prefix, *words],
        cwd=ROOT,
        env={**os.environ, "NINJA_STATUS": "[%f/%t] "},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        count = re.match(r"\[(\d+)/(\d+)\] ", line)
        if count:
            show(f"{count[1]} of {count[2]}")
        else:
            said.append(line.rstrip("\n"))
    return None if process.wait() == 0 else [*said, f"{preset}: the build FAILED"]


def idle_prefix() -> list[str]:
    """Returns the words that start a command which runs only while a processor is idle."""
    if shutil.which("chrt"):
        return ["chrt", "--idle", "0"]
    return ["nice", "-n", "19"]


class Progress:
    """Shows a count: at once on a terminal, else every 20 seconds."""

    def __init__(self) -> None:
        self.shown = time.monotonic()

    def __call__(self, count: str) -> None:
        if sys.stdout.isatty():
            print(f"\r  {count} ", end="", flush=True)
        elif time.monotonic() - self.shown >= 20:
            self.shown = time.monotonic()
            say(f"  {count}")


class Builds:
    """The presets' builds, one after the other. The first runs at once. The others run while the
    tests of earlier presets leave a processor idle: many tests wait most of their time."""

    def __init__(self, presets: list[str], jobs: int) -> None:
        self.presets = presets
        self.jobs = jobs
        self.wrong: dict[str, list[str] | None] = {}
        self.ended = {preset: threading.Event() for preset in presets}
        self.count = ""
        threading.Thread(target=self.build_all, daemon=True).start()

    def build_all(self) -> None:
        prefix: list[str] = []
        for preset in self.presets:
            try:
                wrong = configure(preset, prefix)
                self.wrong[preset] = wrong or build(preset, self.jobs, self.take_count, prefix)
            except Exception as error:  # no other code reports it
                self.wrong[preset] = [f"{preset}: the build FAILED: {error}"]
            self.ended[preset].set()
            prefix = idle_prefix()

    def is_built(self, preset: str) -> bool:
        return preset in self.wrong and self.wrong[preset] is None

    def take_count(self, count: str) -> None:
        self.count = count

    def wait(self, preset: str) -> bool:
        """Waits for a preset. Returns True if it is built, else prints what is wrong."""
        say(f"== {preset}: building")
        begin = time.monotonic()
        show = Progress()
        while not self.ended[preset].wait(1):
            show(self.count)
        if sys.stdout.isatty():
            print("\r", end="")
        wrong = self.wrong[preset]
        for line in wrong or []:
            say(line)
        if wrong is None:
            say(f"  built; {time.monotonic() - begin:.0f} s were waited")
        return wrong is None
