# SPDX-License-Identifier: Apache-2.0
"""Checkpoints whose files are in folders of the nodes that saved them, as Python reads them."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from typing import Any

import torch

import meron
from meron import errors
from meron.checkpoint import Checkpoint, open_checkpoint
from meron.torch.checkpoint.agreement import from_rank, tensor_from_rank, texts_of_all, together
from meron.torch.checkpoint.files import TORCH_DTYPES, bytes_of
from meron.torch.checkpoint.reading import PIECE, Contents, Reader

logger = logging.getLogger("meron.torch")

MANIFEST = "meron.json"
HISTORY = "history.json"
MOST_HISTORY_BYTES = 4096


class NodeReader(Reader):
    """Reads parts of tensors, each by the rank that has the file. Its methods are collective."""

    def __init__(self, context: meron.Context, checkpoint: Checkpoint, readers: list[int]) -> None:
        super().__init__(context, checkpoint, rank0_only=False)
        self.collective = context.world_size > 1
        self.readers = readers

    def part(self, name: str, kind: str, own: range) -> torch.Tensor:
        if not self.collective:
            return super().part(name, kind, own)
        entry = self.checkpoint.tensors[kind, name]
        out = torch.empty(len(own), dtype=TORCH_DTYPES[entry["dtype"]], device="cpu")
        for file, first, count, _ in entry["pieces"]:
            for begin in range(first, first + count, PIECE):
                size = min(PIECE, first + count - begin)
                piece = torch.empty(size, dtype=out.dtype, device="cpu")
                with together(self.context):
                    if self.context.rank == self.readers[file]:
                        self.checkpoint.read_into(
                            bytes_of(piece), name, kind, begin=begin, count=size
                        )
                tensor_from_rank(self.context, piece, self.readers[file])
                low, high = max(begin, own.start), min(begin + size, own.stop)
                if low < high:
                    out[low - own.start : high - own.start] = piece[low - begin : high - begin]
        return out


@dataclass
class Candidate:
    """A checkpoint as the folders of all nodes have it together."""

    name: str
    id: str
    created: str
    step: int
    nodes: int
    lineage: str  # the id of the first checkpoint of its line
    saved: int  # nanoseconds since 1970
    holders: dict[int, int] = field(default_factory=dict)  # by node, the first rank with its files

    @property
    def whole(self) -> bool:
        return len(self.holders) == self.nodes

    @property
    def age(self) -> tuple[int, str, int, str, str]:
        """Order in a line of checkpoints."""
        return self.step, self.created, self.saved, self.name, self.id


@dataclass
class Damage:
    """Why a checkpoint cannot be read, if not for missing files."""

    name: str
    rank: int  # in whose folder it is
    text: str
    status: int

    def __str__(self) -> str:
        return f"{self.name} in rank {self.rank}'s folder: {self.text}"


def entries_in(folder: str, name: str | None) -> list[dict[str, Any]]:
    """The checkpoints of this rank's folder, each with the nodes whose files are there. Local."""
    found = []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    for each in names:
        path = os.path.join(folder, each)
        if each.startswith(".") or name not in (None, each):
            continue
        try:
            manifest = manifest_in(path)
            files, there = manifest["files"], set(range(int(manifest["nodes"])))
            for one in files:
                where = os.path.join(path, one["name"])
                if not os.path.isfile(where) or os.path.getsize(where) != one["bytes"]:
                    there.discard(one["node"])
            keys = ("id", "created", "step", "nodes")
            own = {key: manifest[key] for key in keys}
            lineage, saved = history_in(path, manifest["id"])
            there_now = sorted(there)
            found.append(
                {"name": each, "there": there_now, "lineage": lineage, "saved": saved, **own}
            )
        except (FileNotFoundError, NotADirectoryError):
            continue  # no checkpoint
        except (errors.Error, OSError, ValueError, LookupError, TypeError) as error:
            status = getattr(error, "status", None) or errors.CorruptError.status
            text = f"{type(error).__name__}: {error}"
            found.append({"name": each, "defect": text, "status": status})
    return found


def history_in(path: str, checkpoint: str) -> tuple[str, int]:
    """The line of a checkpoint, and when it was saved. Without history.json, or with that of
    another checkpoint: the line of those that have none."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with open(os.open(os.path.join(path, HISTORY), flags), "rb") as file:
            history = json.loads(file.read(MOST_HISTORY_BYTES))
    except FileNotFoundError:
        return "", 0
    if history["id"] != checkpoint:
        return "", 0
    lineage, saved = history["lineage"], history["saved"]
    if not isinstance(lineage, str) or type(saved) is not int:
        raise ValueError(f"{HISTORY} has lineage {lineage!r} and saved {saved!r}")
    return lineage, saved


def manifest_in(path: str) -> dict[str, Any]:
    """The manifest of a directory, after its checksum was compared. Its files may be missing."""
    with open(os.path.join(path, MANIFEST), encoding="utf-8") as file:
        text = file.read()
    try:
        with open_checkpoint(path) as opened:
            return opened.manifest
    except errors.Error as error:
        if str(error.subject).endswith(MANIFEST):
            raise
        found: dict[str, Any] = json.loads(text)
        return found


def candidates_of(texts: list[str]) -> tuple[list[Candidate], list[Damage]]:
    """Newest first, as libmeron sorts them: the line that was saved to last, then the others. And
    what is wrong with others."""
    wrong: list[Damage] = []
    found: dict[tuple[str, str], Candidate] = {}
    for rank, text in enumerate(texts):
        for entry in json.loads(text):
            if "defect" in entry:
                wrong.append(Damage(entry["name"], rank, entry["defect"], entry["status"]))
                continue
            there = entry.pop("there")
            known = found.setdefault((entry["name"], entry["id"]), Candidate(**entry))
            for node in there:
                known.holders.setdefault(node, rank)
    last: dict[str, tuple[str, int]] = {}  # save to each line
    for each in found.values():
        before = last.get(each.lineage, ("", 0))
        last[each.lineage] = max(before, (each.created, each.saved))
    newest_first = sorted(
        found.values(), key=lambda each: (last[each.lineage], each.lineage, each.age), reverse=True
    )
    return newest_first, wrong


def open_on_nodes(
    context: meron.Context, folder: str | os.PathLike[str], name: str | None
) -> tuple[NodeReader, str]:
    """The checkpoint of that name, or the newest one whose files all exist in the nodes' folders.

    Returns a reader of it, and its name. The newest is that of the line that was saved to last, as
    in libmeron. The log names incomplete ones; a damaged one is an error. Collective. Raises
    NotFoundError, CorruptError, ParseError, VersionError.
    """
    root = os.fsdecode(folder)
    own = ""
    with together(context):
        own = json.dumps(entries_in(root, name))
    candidates, wrong = candidates_of(texts_of_all(context, own))
    if wrong and not name:
        raise errors.make(
            wrong[0].status,
            f"'{wrong[0].name}', which may be the newest checkpoint, cannot be loaded: in rank "
            f"{wrong[0].rank}'s folder: {wrong[0].text}",
            subject=root,
            advice="Mend it or move it elsewhere, or load another one by its name.",
        )
    lacking = [
        f"{each.name} lacks the files of node "
        + ", ".join(str(n) for n in range(each.nodes) if n not in each.holders)
        for each in candidates
        if not each.whole
    ]
    chosen = next((each for each in candidates if each.whole), None)
    if chosen is None:
        what = f" '{name}'" if name else ""
        raise errors.make(
            errors.NotFoundError.status,
            "; ".join(
                [
                    f"the nodes' folders together have no complete checkpoint{what}",
                    *lacking,
                    *map(str, wrong),
                ]
            ),
            subject=root,
            advice="Look at the path, or bring in the node that has the files.",
        )
    if context.rank == 0 and not name:
        warn_of_others(os.path.join(root, chosen.name), chosen, candidates, lacking)
    opened: Checkpoint | None = None
    with together(context):
        if context.rank in chosen.holders.values():
            opened = open_checkpoint(root, chosen.name)
    first = min(chosen.holders.values())
    text = json.dumps(opened.manifest) if opened is not None else ""
    text = from_rank(context, text, first)
    if opened is None:
        opened = Contents(text, os.path.join(root, chosen.name))
    files = json.loads(text)["files"]
    readers = [chosen.holders[file["node"]] for file in files]
    return NodeReader(context, opened, readers), chosen.name


def warn_of_others(
    path: str, chosen: Candidate, candidates: list[Candidate], lacking: list[str]
) -> None:
    """Logs why a checkpoint was taken, if one with a higher step may have been expected."""
    for each in candidates:
        if each.whole and each.lineage != chosen.lineage and each.step > chosen.step:
            logger.warning(
                "%s was taken, which is of the run that saved last. '%s' has a higher step and is "
                "of another run: load it by its name to continue that one",
                path,
                each.name,
            )
            break
    if lacking:
        logger.warning("%s was taken, and these were passed over: %s", path, "; ".join(lacking))
