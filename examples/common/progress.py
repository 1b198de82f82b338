# SPDX-License-Identifier: Apache-2.0
"""Progress of a run."""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from types import TracebackType

try:
    from tqdm import tqdm
except ImportError:  # lines do without
    tqdm = None


class Progress:
    """A bar on a terminal, a line every tenth of the way in a log, or nothing; and the clock.

        with progress:
            for step in range(steps):
                progress(step + 1, loss)

    seconds: how long that took
    step_seconds: the median of what a step took
    """

    def __init__(self, steps: int, shown: bool, what: str = "") -> None:
        self.seconds = self.step_seconds = 0.0
        self._ends: list[float] = []
        self._steps, self._what, self._done = steps, what, 0
        self._log = shown and (tqdm is None or not sys.stderr.isatty())
        self._hidden = not shown or self._log

    def __enter__(self) -> Progress:
        self._bar = None
        if not self._hidden:
            self._bar = tqdm(total=self._steps, desc=self._what, unit="step", ncols=100)
        self._begin = time.perf_counter()
        return self

    def __call__(self, done: int, loss: float) -> None:
        """So many steps are done, the last of them with this loss."""
        steps, before, self._done = self._steps, self._done, done
        self._ends.append(time.perf_counter())
        if self._bar is not None:
            self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            self._bar.update(done - before)
        if self._log and 10 * done // steps > 10 * before // steps:
            rate = done / (time.perf_counter() - self._begin)
            what = f"{self._what} " if self._what else ""
            print(
                f"{what}{100 * done // steps:3d} %  step {done}/{steps}  loss {loss:.3f}  "
                f"{rate:.1f} steps/s  {(steps - done) / rate:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._begin
        ends = itertools.pairwise([self._begin, *self._ends])
        steps = [end - begin for begin, end in ends]
        self.step_seconds = statistics.median(steps) if steps else 0.0
        if self._bar is not None:
            self._bar.close()
