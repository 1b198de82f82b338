# SPDX-License-Identifier: Apache-2.0
"""The scripts zero_to_fp32.py and zero_to_torch.py beside checkpoints."""

from __future__ import annotations

from pathlib import Path

from meron.zero import zero_to_fp32, zero_to_torch


def put_scripts(folder: Path) -> None:
    """Writes the scripts into a folder. Each is complete or absent, replaces a link instead of
    following it, and has the permissions that the umask leaves. OSError of the drive."""
    for module in (zero_to_fp32, zero_to_torch):
        source = Path(str(module.__file__))
        with zero_to_fp32.replacing(folder / source.name, 0o777) as file:
            file.write(source.read_bytes())
