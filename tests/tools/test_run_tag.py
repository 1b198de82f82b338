# SPDX-License-Identifier: Apache-2.0
"""`meron run --tag`: lines that name their rank."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

from command import (
    MERON,
    PATIENCE,
    children_of,
    meron,
    python,
    start,
    supervisor_of,
    wait_until,
)


def test_tagged_lines_stay_whole():
    # Four ranks write in pieces that ignore the ends of lines, to both streams.
    code = """
import os
rank = os.environ["MERON_RANK"]
lines = "".join(f"{rank} {i} " + "x" * (i * 37 % 500) + "\\n" for i in range(2000)).encode()
for fd in (1, 2):
    for begin in range(0, len(lines), 997):
        os.write(fd, lines[begin : begin + 997])
"""
    done = meron("run", "-n", "4", "--tag", "--", *python(code))
    assert done.returncode == 0
    for text in (done.stdout, done.stderr):
        seen = {rank: 0 for rank in "0123"}
        for line in text.splitlines():
            match = re.fullmatch(r"\[(\d)\] (\d) (\d+) (x*)", line)
            assert match, line
            assert match[1] == match[2]
            assert int(match[3]) == seen[match[1]]
            assert len(match[4]) == int(match[3]) * 37 % 500
            seen[match[1]] += 1
        assert set(seen.values()) == {2000}


def test_a_tagged_line_without_an_end_gets_one():
    done = meron("run", "-n", "2", "--tag", "--", "sh", "-c", "printf 'no end'; echo; printf tail")
    assert sorted(done.stdout.splitlines()) == [
        "[0] no end",
        "[0] tail",
        "[1] no end",
        "[1] tail",
    ]


def test_a_very_long_tagged_line_is_not_lost():
    code = "import os; os.write(1, b'y' * 5_000_000)"
    done = meron("run", "-n", "1", "--tag", "--", *python(code))
    assert done.stdout.count("y") == 5_000_000


def test_a_slow_reader_of_tagged_output_holds_ranks_but_no_signals():
    code = "import os\nwhile True: os.write(1, b'z' * 1000 + b'\\n')"
    launcher = start("run", "-n", "2", "--tag", "--", *python(code), stdout=subprocess.PIPE)
    time.sleep(0.5)  # the pipe is full by now, and nobody reads
    status = Path(f"/proc/{supervisor_of(launcher)}/status").read_text()
    rss = int(re.search(r"VmRSS:\s+(\d+)", status)[1])
    assert rss < 64 * 1024
    launcher.send_signal(signal.SIGTERM)
    launcher.send_signal(signal.SIGTERM)
    supervisor = supervisor_of(launcher)
    wait_until("the ranks end", lambda: not children_of(supervisor))
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(PATIENCE) == 128 + signal.SIGTERM
    launcher.stdout.close()


def test_ranks_notice_that_the_reader_of_tagged_output_is_gone():
    command = f"{MERON} run -n 2 --tag -- yes 2>/dev/null | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=PATIENCE)
    assert re.fullmatch(rb"\[[01]\] y\n", done.stdout)
