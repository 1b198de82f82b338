# SPDX-License-Identifier: Apache-2.0
"""python -m meron.zero.dropin: prints the folder for PYTHONPATH, or says what is in use."""

from __future__ import annotations

import argparse
import sys

from meron.zero import dropin
from meron.zero.dropin import report


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m meron.zero.dropin",
        description="Prints a folder for PYTHONPATH in which `deepspeed` is Meron.",
        epilog="Examples: PYTHONPATH=$(python -m meron.zero.dropin) accelerate launch "
        "--use_deepspeed train.py; PATH=$(python -m meron.zero.dropin --bin):$PATH "
        "deepspeed --num_gpus 2 train.py",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="say which deepspeed this environment imports, and which libraries accept it; exit "
        "code 1 if it is not Meron's",
    )
    parser.add_argument(
        "--bin",
        action="store_true",
        help="print the folder for PATH with the commands deepspeed and ds_report",
    )
    options = parser.parse_args()
    if options.bin:
        print(dropin.bin_folder())
        return 0
    if options.check:
        lines, taken = report.lines()
        print("\n".join(lines))
        return 0 if taken else 1
    print(dropin.folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
