# SPDX-License-Identifier: Apache-2.0
"""One rank of `deepspeed`: becomes the user's program, with what DeepSpeed's launcher gives it.

    python rank_program.py [--log FOLDER] [--cores LIST] [--local-rank] -- PROGRAM [ARGUMENTS...]

Launchers start the same command on every rank; this file adds what differs: `--local_rank=N` after
the script, a log file, cores. It imports nothing but the standard library, as it runs before the
program.
"""

from __future__ import annotations

import os
import sys


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


if __name__ == "__main__":
    main(sys.argv[1:])
