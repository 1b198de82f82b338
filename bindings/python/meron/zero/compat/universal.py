# SPDX-License-Identifier: Apache-2.0
"""deepspeed.checkpoint.ds_to_universal: a copy of a checkpoint.

    python -m deepspeed.checkpoint.ds_to_universal --input_folder A --output_folder A_universal

A checkpoint of Meron loads at any number of ranks and any stage, so it is universal as it is. The
copy is for scripts that load the tag of the output folder, or the tag in `latest_universal`.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
from pathlib import Path
from typing import Any

from meron import errors
from meron.zero.zero_to_fp32 import MANIFEST, replacing

LATEST = "latest_universal"  # beside the output folder: its name


class FoldersError(errors.ArgumentError, FileNotFoundError):
    """Folders that cannot be copied. FileNotFoundError is what DeepSpeed raises."""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="Copies a checkpoint of Meron, which is universal")
    add = parser.add_argument
    add("--input_folder", required=True, help="a checkpoint, such as out/global_step12")
    add("--output_folder", required=True, help="the copy")
    add("--num_extract_workers", type=int, default=4, help="without effect")
    add("--num_merge_workers", type=int, default=2, help="without effect")
    add("--keep_temp_folder", action="store_true", help="without effect: there is none")
    add("--no_strict", dest="strict", action="store_false", help="without effect")
    add("--inject_missing_state", action="store_true", help="without effect: none can be missing")
    return parser.parse_args(arguments)


def main(args: Any = None) -> None:
    """Copies the checkpoint `args.input_folder` to `args.output_folder`, and writes the name of the
    copy to `latest_universal` beside it. Local: one rank calls it.

    The copy is complete or absent. A checkpoint that is there is replaced.

    Args:
        args: an object with the attributes `input_folder` and `output_folder`; default is the
            command line.

    Raises FoldersError (an ArgumentError and a FileNotFoundError) if the input is no checkpoint of
    Meron, or the output is something else than a checkpoint; OSError of the drive.
    """
    given = parse_arguments() if args is None else args
    source, target = Path(given.input_folder), Path(given.output_folder)
    try:
        check_folders(source, target)
    except FoldersError as error:
        if args is not None:
            raise
        sys.exit(f"ds_to_universal: {error}")
    if source.resolve() != target.resolve():
        copy(source, target)
    with replacing(target.parent / LATEST) as file:
        file.write(target.name.encode())


def check_folders(source: Path, target: Path) -> None:
    if not (source / MANIFEST).is_file():
        raise FoldersError(
            f"{source} is no checkpoint of Meron: it has no {MANIFEST}",
            subject="input_folder",
            advice="Name the folder of a tag, such as global_step12. `python -m meron.convert "
            "import` reads checkpoints of DeepSpeed.",
        )
    empty = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    if not empty and not (target / MANIFEST).is_file():
        raise FoldersError(
            f"{target} is there, and is no checkpoint",
            subject="output_folder",
            advice="Remove it, or name another folder.",
        )


def copy(source: Path, target: Path) -> None:
    """Copies a folder under another name, and then renames the copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mark = secrets.token_hex(4)
    part, old = (target.with_name(f".{target.name}.{mark}.{end}") for end in ("part", "old"))
    try:
        shutil.copytree(source, part)
        if target.exists():
            target.rename(old)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if old.exists() and not target.exists():  # the second rename failed
            old.rename(target)
        shutil.rmtree(old, ignore_errors=True)


__all__ = ["main", "parse_arguments"]
