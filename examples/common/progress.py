# SPDX-License-Identifier: Apache-2.0
"""How far a run is."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm


class Progress:
    """A bar on a terminal, a line every tenth of the way in a log, or nothing; and the clock.

        with progress:
            for step in range(steps):
                progress(step + 1, loss)

    seconds: how long that took
    """

    def __init__(self, steps: int, shown: bool, what: str = "") -> None:
        self.seconds = 0.0
        self._steps, self._what, self._done = steps, what, 0
        self._log = shown and not sys.stderr.isatty()
        self._hidden = not shown or self._log

    def __enter__(self) -> Progress:
        self._bar = tqdm(
            total=self._steps, desc=self._what, unit="step", disable=self._hidden, ncols=100
        )
        self._begin = time.perf_counter()
        return self

    def __call__(self, done: int, loss: float) -> None:
        """So many steps are done, the last of them with this loss."""
        steps, before, self._done = self._steps, self._done, done
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
        self._bar.close()
