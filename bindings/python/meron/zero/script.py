# SPDX-License-Identifier: Apache-2.0
"""The script zero_to_fp32.py beside checkpoints."""

from __future__ import annotations

from pathlib import Path

from meron.zero import zero_to_fp32


def put_script(folder: Path) -> None:
    """Writes the script into a folder. It is complete or absent, replaces a link instead of
    following it, and has the permissions that the umask leaves. OSError of the drive."""
    with zero_to_fp32.replacing(folder / "zero_to_fp32.py", 0o777) as file:
        file.write(Path(zero_to_fp32.__file__).read_bytes())
