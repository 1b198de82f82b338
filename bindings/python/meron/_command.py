# SPDX-License-Identifier: Apache-2.0
"""The command `meron`, as a wheel installs it: hands over to the program that the wheel carries."""

from __future__ import annotations

import os
import sys

from meron._library import CARRIED


def main() -> None:
    program = str(CARRIED / "bin" / "meron")
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(
            f"meron: this installation of the Python package carries no command ({program}: "
            f"{error.strerror}). Install the wheel that `tools/package wheel` makes, or use the "
            "command of a build: build/release/tools/meron/meron"
        )
