# SPDX-License-Identifier: Apache-2.0
"""`python -m meron.convert`: checkpoints from and to other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from meron import errors
from meron.convert.content import Content, ConvertError
from meron.convert.detect import READERS
from meron.convert.export import export_checkpoint
from meron.convert.write import import_checkpoint

FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m meron.convert",
        description="Checkpoints from and to other programs.",
        epilog="`meron checkpoint inspect` shows the result; `meron checkpoint verify` proves it.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    take = commands.add_parser(
        "import",
        help="make a checkpoint of Meron",
        description="Makes a checkpoint of Meron of one of DeepSpeed (ZeRO-1, 2, 3, or universal), "
        "of torch.distributed.checkpoint, or of torch.save. No code in the files is run.",
    )
    take.add_argument("source", type=Path, help="a folder, or a file of torch.save")
    take.add_argument("folder", type=Path, help="of Meron's checkpoints; made if it is not there")
    take.add_argument("--name", help="of the new one; else step-N")
    take.add_argument("--from", dest="format", default="auto", choices=["auto", *READERS])
    take.add_argument("--tag", help="of DeepSpeed's checkpoint; else the latest")
    take.add_argument("--values-only", action="store_true", help="no states of optimizers")
    take.add_argument("--overwrite", action="store_true", help="replace one of that name")
    take.add_argument(
        "--trust",
        action="store_true",
        help="run what is pickled in the files: only if you made them",
    )
    give = commands.add_parser(
        "export",
        help="write one for another program",
        description="Writes a checkpoint of Meron for another program.",
    )
    give.add_argument("source", type=Path, help="a checkpoint, or a folder of them: the newest")
    give.add_argument("target", type=Path, help="a folder (torch: a file) that is not there yet")
    give.add_argument("--name", help="of the checkpoint in its folder")
    give.add_argument("--to", dest="format", required=True, choices=["dcp", "universal", "torch"])
    give.add_argument("--dtype", choices=FLOATS, help="of values, with --to torch")
    return top


def report(content: Content) -> None:
    count = len({found.name for found in content.tensors})
    print(f"{content.source}: {count} tensors at step {content.step}")
    kinds: dict[str, int] = {}
    for found in content.tensors:
        kinds[found.kind] = kinds.get(found.kind, 0) + 1
    for kind, number in sorted(kinds.items()):
        print(f"  {kind}: {number}")
    for each in content.left_out:
        print(f"  left out: {each}")


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        if given.command == "import":
            content = import_checkpoint(
                given.source,
                given.folder,
                given.name,
                format=given.format,
                tag=given.tag,
                trust=given.trust,
                values_only=given.values_only,
                overwrite=given.overwrite,
            )
            report(content)
        else:
            export_checkpoint(
                given.source,
                given.name,
                given.target,
                format=given.format,
                dtype=FLOATS.get(given.dtype),
            )
    except (ConvertError, errors.Error, OSError) as error:
        print(f"meron.convert: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
