# SPDX-License-Identifier: Apache-2.0
"""The training text: some files, one after the other."""

from __future__ import annotations

from pathlib import Path

from .command_line import BadInput

# Debian's folder of common licences, the default text.
DEFAULT_FOLDER = Path("/usr/share/common-licenses")


def load(paths: list[str], least: int) -> bytearray:
    """The bytes of the files, or of those of DEFAULT_FOLDER when none is named; `least` of them
    make an example."""
    text = bytearray().join(read(Path(path)) for path in paths or default_files())
    if not text:
        raise BadInput(f"--data: this machine has no texts in {DEFAULT_FOLDER}: name files")
    if len(text) < least:
        raise BadInput(
            f"--data: the text has {len(text)} bytes, and one example takes {least}; name more "
            "text, or lower --context"
        )
    return text


def read(path: Path) -> bytes:
    reason = f"{path} is empty"
    try:
        if piece := path.read_bytes():
            return piece
    except OSError as error:
        reason = f"cannot read {path}: {error.strerror}"
    raise BadInput(
        f"--data: {reason}; name files that have text in them, or leave --data out to train on the "
        f"licences in {DEFAULT_FOLDER}"
    )


def default_files() -> list[Path]:
    """In the order of their names; a file that has a second name by a link counts once."""
    files: dict[tuple[int, int], Path] = {}
    for path in sorted(DEFAULT_FOLDER.glob("*")):
        status = path.stat()
        if path.is_file() and status.st_size:
            files.setdefault((status.st_dev, status.st_ino), path)
    return list(files.values())
