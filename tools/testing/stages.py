# SPDX-License-Identifier: Apache-2.0
"""A run is a sequence of stages, the cheapest first. The first that fails ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tally import Tally, say


@dataclass(frozen=True)
class Stage:
    name: str
    run: Callable[[], Tally]


@dataclass
class Stages:
    """The results of the stages so far."""

    keep_going: bool
    tally: Tally = field(default_factory=Tally)
    lines: list[str] = field(default_factory=list)
    failed: str = ""  # the first stage that failed

    def is_over(self) -> bool:
        return bool(self.failed) and not self.keep_going

    def run(self, stage: Stage, at_once: bool = False) -> None:
        """Runs a stage unless an earlier one has failed. Its result is a line of say_lines(), and
        if `at_once`, it is printed now."""
        if self.is_over():
            self.lines.append(f"{stage.name}: not run, because {self.failed} failed")
            return
        begin = time.monotonic()
        tally = stage.run()
        self.lines.append(f"{stage.name}: {tally} in {time.monotonic() - begin:.0f} s")
        if at_once:
            say(f"  {self.lines[-1]}")
        self.tally += tally
        if tally.failed and not self.failed:
            self.failed = stage.name

    def say_lines(self) -> None:
        say()
        for line in self.lines:
            say(line)
