# SPDX-License-Identifier: Apache-2.0
"""One rank of `deepspeed`: becomes the user's program, with what DeepSpeed's launcher gives it.

    python rank_program.py [--log FOLDER] [--cores LIST] [--local-rank] -- PROGRAM [ARGUMENTS...]

Launchers start the same command on every rank; this file adds what differs: `--local_rank=N` after
the script, a log file, cores; and it has the output of several ranks forwarded in whole lines. It
imports nothing but the standard library, as it runs before the program.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import sys
import time

STREAMS = (1, 2)  # standard output and error
# Seconds until an incomplete line, such as a prompt or a progress bar, is forwarded as it is.
PATIENCE = 0.2
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def own_cores(cores: list[int], index: int, count: int) -> list[int]:
    """The cores of one of `count` ranks, in order; ranks share cores if there are too few."""
    if len(cores) < count:
        return [cores[index % len(cores)]]
    size = len(cores) // count
    return cores[index * size : (index + 1) * size]


def main(arguments: list[str]) -> None:
    end = arguments.index("--")
    options, program = arguments[:end], arguments[end + 1 :]
    local_rank = int(os.environ["LOCAL_RANK"])
    if "--log" in options:
        folder = options[options.index("--log") + 1]
        os.makedirs(folder, exist_ok=True)
        name = os.path.join(folder, f"rank{os.environ['RANK']}.log")
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    elif int(os.environ["LOCAL_WORLD_SIZE"]) > 1:
        divert()
    if "--cores" in options:
        listed = [int(core) for core in options[options.index("--cores") + 1].split(",")]
        chosen = own_cores(listed, local_rank, int(os.environ["LOCAL_WORLD_SIZE"]))
        os.sched_setaffinity(0, chosen)
        os.environ["OMP_NUM_THREADS"] = str(len(chosen))
    if "--local-rank" in options:
        # After the script: `python -u SCRIPT` or `python -u -m MODULE`, or the program itself.
        place = int(options[options.index("--local-rank") + 1])
        program.insert(place, f"--local_rank={local_rank}")
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"deepspeed: cannot start {program[0]}: {error.strerror}")


# ---- Whole lines ---------------------------------------------------------------------------------


class Stream:
    """Reads a pipe, and writes lines to a descriptor."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self.rest = b""
        self.since = 0.0  # when `rest` began to wait

    def forward(self) -> bool:
        """Reads once, and writes the lines that are complete. False at the end of the pipe."""
        piece = os.read(self.source, 1 << 16)
        lines, newline, rest = piece.rpartition(b"\n")
        if newline:
            self.write(self.rest + lines + newline)
            self.rest = b""
        if rest and not self.rest:
            self.since = time.monotonic()
        self.rest += rest
        if not piece:
            self.flush()
        return bool(piece)

    def flush(self) -> None:
        """Writes the incomplete line."""
        rest, self.rest = self.rest, b""
        self.write(rest)

    def write(self, text: bytes) -> None:
        while text:
            try:
                text = text[os.write(self.target, text) :]
            except BlockingIOError:
                select.select([], [self.target], [])


def divert() -> None:
    """Has standard output and error of this process, and of the program that it becomes, forwarded
    in whole lines by a process beside it.

    `python -u` writes each argument of a print by itself, so lines of ranks would mix.
    """
    pipes = [os.pipe() for _ in STREAMS]
    child = os.fork()
    if child == 0:
        # Twice, so that the program has no child that it did not start.
        if os.fork() == 0:
            run(pipes)
        sys.exit(0)
    os.waitpid(child, 0)
    for (source, sink), stream in zip(pipes, STREAMS):
        os.dup2(sink, stream)
        os.close(source)
        os.close(sink)


def run(pipes: list[tuple[int, int]]) -> None:
    """Forwards until every process that writes has ended, then exits."""
    try:
        for number in IGNORED:  # they end the program, whose last lines are forwarded then
            signal.signal(number, signal.SIG_IGN)
        for _, sink in pipes:
            os.close(sink)
        forward([Stream(source, stream) for (source, _), stream in zip(pipes, STREAMS)])
    except OSError:
        pass  # whoever reads has gone: the program gets SIGPIPE, as without a pipe between
    finally:
        sys.exit(0)


def forward(streams: list[Stream]) -> None:
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.source, selectors.EVENT_READ, stream)
        while selector.get_map():
            waiting = [stream.since + PATIENCE for stream in streams if stream.rest]
            timeout = max(0.0, min(waiting) - time.monotonic()) if waiting else None
            for key, _ in selector.select(timeout):
                if not key.data.forward():
                    selector.unregister(key.fileobj)
            for stream in streams:
                if stream.rest and time.monotonic() - stream.since >= PATIENCE:
                    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
