#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""f32 weights out of a checkpoint of Meron, by DeepSpeed's names. Needs only torch and numpy.

    python zero_to_fp32.py CHECKPOINT_DIR OUTPUT_DIR [--safe_serialization] [-t TAG]

engine.save_checkpoint puts a copy of this file beside the checkpoints. Where a tensor has an f32
master, that is read. Tensors are read and written one at a time.

Bytes that are read are compared with the checksums of the checkpoint: by libmeron if the package
meron is installed, otherwise by NumPy.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import errno
import functools
import io
import itertools
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Callable, Union

import numpy as np
import torch

__all__ = [
    "convert_zero_checkpoint_to_fp32_state_dict",
    "get_fp32_state_dict_from_zero_checkpoint",
    "load_state_dict_from_zero_checkpoint",
]

PathLike = Union[str, "os.PathLike[str]"]
Report = Callable[[int], None]  # is told how many bytes were read
MANIFEST = "meron.json"
VERSIONS = (1, 2)  # 2 adds counts of steps, on which no weight depends
DTYPES = {
    "F64": ("<f8", torch.float64), "F32": ("<f4", torch.float32), "F16": ("<f2", torch.float16),
    "BF16": ("<i2", torch.bfloat16), "I64": ("<i8", torch.int64), "I32": ("<i4", torch.int32),
    "I16": ("<i2", torch.int16), "I8": ("i1", torch.int8), "U8": ("u1", torch.uint8),
    "BOOL": ("?", torch.bool),
}  # fmt: skip
NAMES = {dtype: name for name, (_, dtype) in DTYPES.items()}
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8,
         "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}  # fmt: skip
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
         "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip

MOST_MANIFEST_BYTES = 64 * 2**20
MOST_FILE_BYTES = 2**60
MOST_ELEMENTS = 2**48
CACHE_BYTES = 64 * 2**20  # of compared blocks
MANIFEST_END = re.compile(rb'"crc": "([0-9a-f]{8})"\n\}\n')


class Damaged(ValueError):
    """A checkpoint that is not as it was written. The message names the file."""


# ---- Reading: checksums -------------------------------------------------------------------------

POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected
LANES = (8192, 256, 16, 1)  # each divides the one before


def crc32c(data: np.ndarray[Any, Any]) -> int:
    """CRC-32C of bytes.

    It is linear: the words of the data are folded into 8192 sums, whose words lie 8192 apart; these
    into 256, and so on. Zeros in front do not change a sum that begins with 0, and the usual
    initial value is an XOR of the first four bytes.
    """
    if len(data) < 4:
        return crc32c_by_bit(data.tobytes())
    words = np.zeros(-(-len(data) // (4 * LANES[0])) * LANES[0], "<u4")
    own = words.view(np.uint8)[-len(data) :]
    own[:] = data
    own[:4] ^= 0xFF
    for lanes in LANES:
        low, high = advance_by(lanes)
        rows = words.reshape(-1, lanes)
        words = rows[0]
        for row in rows[1:]:
            words = low[words & 0xFFFF] ^ high[words >> 16] ^ row
    low, high = advance_by(1)
    last = int(words[0])
    return int(low[last & 0xFFFF] ^ high[last >> 16]) ^ 0xFFFFFFFF


def crc32c_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = shifted(crc ^ byte, 8)
    return crc ^ 0xFFFFFFFF


def shifted(crc: int, bits: int) -> int:
    for _ in range(bits):
        crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc


@functools.cache
def advance_by(words: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Tables that advance a sum by so many words of zeros: by its lower and its upper 16 bits."""
    images = np.array([shifted(1 << bit, 32) for bit in range(32)], np.uint32)  # of each bit
    for _ in range(words.bit_length() - 1):  # words is a power of two
        low, high = tables_of(images)
        images = low[images & 0xFFFF] ^ high[images >> 16]
    return tables_of(images)


def tables_of(images: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    tables = []
    for half in (images[:16], images[16:]):
        table = np.zeros(1, np.uint32)
        for image in half:
            table = np.concatenate([table, table ^ image])
        tables.append(table)
    return tables[0], tables[1]


# ---- Reading: files -----------------------------------------------------------------------------


def open_regular(path: Path) -> io.BufferedReader:
    """A regular file, for reading. Damaged for a link, a pipe or a device."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Damaged(f"{path} is a link: links in a checkpoint are refused") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Damaged(f"{path} is no regular file")
    return os.fdopen(fd, "rb")


class LibraryReader:
    """Reads a checkpoint by libmeron.

    Attributes:
        tensors: entries of the manifest, by kind and name.
        extra:   of the manifest.
    """

    def __init__(self, checkpoint: Any, report: Report | None = None) -> None:
        self.checkpoint = checkpoint
        self.tensors: dict[tuple[str, str], dict[str, Any]] = checkpoint.tensors
        self.extra: dict[str, Any] = checkpoint.extra
        self.report = report

    def read(self, kind: str, name: str) -> np.ndarray[Any, Any]:
        """All of a tensor, flat, after its checksums were compared. BF16 as integers."""
        found: np.ndarray[Any, Any] = self.checkpoint.read(name, kind).reshape(-1)
        if self.report is not None:
            self.report(found.nbytes)
        return found


class NumpyReader:
    """Reads a checkpoint by NumPy alone, with the same checks and attributes as LibraryReader.

    Raises Damaged, and OSError of the drive.
    """

    def __init__(self, folder: Path, compare: bool = True, report: Report | None = None) -> None:
        """`compare`: False leaves out the checksums of the data, not the manifest's."""
        self.folder = folder
        self.compare = compare
        self.report = report
        manifest = read_manifest(folder / MANIFEST)
        try:
            self.tensors = check_manifest(manifest)
        except Damaged as error:
            raise Damaged(f"{folder / MANIFEST}: {error}") from None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise Damaged(f"{folder / MANIFEST} is not of the format: {error!r}") from None
        self.files: list[dict[str, Any]] = manifest["files"]
        self.block_bytes: int = manifest["block_bytes"]
        self.extra: dict[str, Any] = manifest["extra"]
        self.cache: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
        if manifest["nodes"] == 1:  # otherwise other folders have the files of other nodes
            for number in range(len(self.files)):
                self.open(number).close()

    def open(self, number: int) -> io.BufferedReader:
        entry = self.files[number]
        path = self.folder / entry["name"]
        try:
            file = open_regular(path)
        except FileNotFoundError:
            raise Damaged(f"{path} is not there: copy all files of the checkpoint") from None
        size = os.fstat(file.fileno()).st_size
        if size != entry["bytes"]:
            file.close()
            raise Damaged(f"{path} has {size} bytes, and by the manifest {entry['bytes']}")
        return file

    def read(self, kind: str, name: str) -> np.ndarray[Any, Any]:
        entry = self.tensors[kind, name]
        size = SIZES[entry["dtype"]]
        data = np.empty(elements_of(entry["shape"]) * size, np.uint8)
        for file, begin, count, offset in entry["pieces"]:
            self.copy(file, offset, data[begin * size : (begin + count) * size])
        return data.view(f"<i{size}")

    def copy(self, number: int, offset: int, out: np.ndarray[Any, Any]) -> None:
        """The bytes of a file from `offset` on, into all of `out`."""
        if not self.compare:
            self.fill(number, offset, out)
            return
        done = 0
        while done < len(out):
            block, inside = divmod(offset + done, self.block_bytes)
            part = self.block(number, block)[inside : inside + len(out) - done]
            out[done : done + len(part)] = part
            done += len(part)

    def block(self, number: int, block: int) -> np.ndarray[Any, Any]:
        """A block of a file, after its checksum was compared."""
        found = self.cache.get((number, block))
        if found is not None:
            return found
        begin = block * self.block_bytes
        entry = self.files[number]
        data = np.empty(min(self.block_bytes, entry["bytes"] - begin), np.uint8)
        self.fill(number, begin, data)
        if f"{crc32c(data):08x}" != entry["crc"][8 * block : 8 * block + 8]:
            raise Damaged(
                f"{self.folder / entry['name']}: bytes {begin} to {begin + len(data)} do not have "
                "their checksum. The drive or a copy has changed them: copy the file anew"
            )
        while self.cache and (len(self.cache) + 1) * self.block_bytes > CACHE_BYTES:
            self.cache.pop(next(iter(self.cache)))
        self.cache[number, block] = data
        return data

    def fill(self, number: int, offset: int, out: np.ndarray[Any, Any]) -> None:
        with self.open(number) as file:
            file.seek(offset)
            if file.readinto(out.data) != len(out):
                raise Damaged(f"{file.name} has become shorter while it was read")
        if self.report is not None:
            self.report(len(out))


Reader = Union[LibraryReader, NumpyReader]


def read_manifest(path: Path) -> dict[str, Any]:
    with open_regular(path) as file:
        text = file.read(MOST_MANIFEST_BYTES + 1)
    if len(text) > MOST_MANIFEST_BYTES:
        raise Damaged(f"{path} has more than {MOST_MANIFEST_BYTES} bytes")
    end = MANIFEST_END.fullmatch(text, max(0, len(text) - 20))
    if end is None:
        raise Damaged(f"{path} does not end with its checksum: copy it anew")
    if f"{crc32c(np.frombuffer(text, np.uint8)[: end.start()]):08x}" != end[1].decode():
        raise Damaged(f"{path} does not have its checksum: it was changed. Copy it anew")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is no JSON: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != "meron-checkpoint":
        raise Damaged(f"{path} is no manifest of a checkpoint")
    if manifest.get("version") not in VERSIONS:
        raise Damaged(
            f"{path} is of version {manifest.get('version')}: this file reads "
            + " and ".join(map(str, VERSIONS))
        )
    return manifest


def check_manifest(manifest: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """The tensors by kind and name. Raises Damaged for what a reader must not trust."""
    block_bytes, files = manifest["block_bytes"], manifest["files"]
    if whole(block_bytes) not in {1 << bit for bit in range(17, 31)}:
        raise Damaged(f"block_bytes is {block_bytes}")
    if not isinstance(manifest["extra"], dict):
        raise Damaged("extra is no object")
    whole(manifest["nodes"])
    for file in files:
        name = file["name"]
        if os.path.basename(name) != name or not name or name[0] == "." or "\0" in name:
            raise Damaged(f"it names a file outside of its folder: {name!r}")
        if whole(file["bytes"]) > MOST_FILE_BYTES:
            raise Damaged(f"{name} has {file['bytes']} bytes")
        if len(file["crc"]) != -(-file["bytes"] // block_bytes) * 8:
            raise Damaged(f"{name} has {len(file['crc'])} digits of checksums")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for tensor in manifest["tensors"]:
        key = tensor["kind"], tensor["name"]
        if key in found:
            raise Damaged(f"{key[0]} of {key[1]!r} is there twice")
        found[key] = tensor
        check_pieces(tensor, files)
    return found


def check_pieces(tensor: dict[str, Any], files: list[dict[str, Any]]) -> None:
    """Damaged if the pieces do not cover all elements once, within their files."""
    size = SIZES[tensor["dtype"]]
    covered = 0
    for piece in tensor["pieces"]:
        file, begin, count, offset = map(whole, piece)
        if begin != covered:
            raise Damaged(f"{tensor['name']!r} lacks elements {covered} to {begin}")
        if offset % size or offset + count * size > files[file]["bytes"]:
            raise Damaged(f"a piece of {tensor['name']!r} is not within {files[file]['name']}")
        covered += count
    elements = elements_of(tensor["shape"])
    if covered != elements:
        raise Damaged(f"{tensor['name']!r} has {elements} elements, its pieces {covered}")


def elements_of(shape: list[int]) -> int:
    count = int(np.prod([whole(size) for size in shape], dtype=object)) if shape else 1
    if count > MOST_ELEMENTS:
        raise Damaged(f"a tensor has the shape {shape}")
    return count


def whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise Damaged(f"{value!r} is no whole number")
    return value


def open_reader(folder: Path, compare: bool = True, report: Report | None = None) -> Reader:
    """A checkpoint, by libmeron if it is installed; by NumPy otherwise, in a fork of a process that
    used libmeron, or without `compare`."""
    if compare:
        try:
            from meron.checkpoint import open_checkpoint
            from meron.errors import ForkedError
        except (ImportError, OSError):  # a copy of this file beside checkpoints
            pass
        else:
            with contextlib.suppress(ForkedError):
                return LibraryReader(open_checkpoint(folder), report)
    return NumpyReader(folder, compare, report)


class Lazy:
    """A tensor that is read when `contiguous()` is called."""

    def __init__(self, reader: Reader, entry: dict[str, Any]) -> None:
        self.reader = reader
        self.entry = entry
        self.shape = torch.Size(entry["shape"])
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{entry['name']!r} has dtype {entry['dtype']}, which is not read")
        stored = DTYPES[entry["dtype"]][1]
        self.dtype = torch.float32 if stored.is_floating_point else stored

    def numel(self) -> int:
        return self.shape.numel()

    def stored(self) -> torch.Tensor:
        """In the dtype of the files."""
        kind, stored = DTYPES[self.entry["dtype"]]
        found = self.reader.read(self.entry["kind"], self.entry["name"]).view(kind)
        return torch.from_numpy(found).view(stored).reshape(self.shape)

    def contiguous(self) -> torch.Tensor:
        return self.stored().to(self.dtype)

    def cast(self, dtype: torch.dtype) -> None:
        """Chooses the dtype of a tensor of floats."""
        self.dtype = dtype if self.dtype.is_floating_point else self.dtype


class LazyDict(Mapping[str, torch.Tensor]):
    """The state dict of a checkpoint, as it is saved; a value is read when it is used."""

    def __init__(self, reader: Reader) -> None:
        self.tensors = lazy_state_dict(reader, False, ("values",))

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name].stored()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def find_checkpoint(checkpoint_dir: PathLike, tag: str | None = None) -> Path:
    """The directory of a checkpoint: `tag`, or the one that the file `latest` names."""
    folder = Path(checkpoint_dir)
    if tag is None and not (folder / MANIFEST).is_file():
        tag = latest_tag(folder)
        if tag is None:
            raise ValueError(f"Unable to find 'latest' file at {folder / 'latest'}")
    if tag is not None:
        folder = folder / tag
    if not folder.is_dir():
        raise FileNotFoundError(f"Directory '{folder}' doesn't exist")
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"{folder} is no checkpoint of Meron: it has no {MANIFEST}")
    return folder


def latest_tag(folder: Path, file_name: str = "latest") -> str | None:
    """The name in the file `latest`; None if there is no such file. Damaged if it has no name."""
    path = folder / file_name
    try:
        with open_regular(path) as file:
            text = file.read(4096)
    except (FileNotFoundError, NotADirectoryError):
        return None
    name = text.decode("utf-8", "replace").strip()
    plain = name.isprintable() and "/" not in name and "\ufffd" not in name
    if not name or len(name) > 255 or name[0] == "." or not plain:
        raise Damaged(
            f"{path} names no checkpoint: it has {name[:80]!r}. Pass the tag of the checkpoint, or "
            "write its name into the file"
        )
    return name


def lazy_state_dict(
    reader: Reader, exclude_frozen: bool, kinds: tuple[str, ...] = ("values", "master")
) -> dict[str, Lazy]:
    """All of a checkpoint's tensors of a model, tied ones under each of their names. Of several
    kinds the last that is there counts."""
    found: dict[str, Lazy] = {}
    for kind in kinds:
        for (own, name), entry in reader.tensors.items():
            if own == kind:
                found[name] = Lazy(reader, entry)
    aliases = item_of(reader.extra, "meron.torch", "aliases", dict)
    for alias, name in aliases.items():
        if name in found:
            found[alias] = found[name]
    if exclude_frozen:
        for name in item_of(reader.extra, "meron.zero", "frozen", list):
            found.pop(name, None)
    return found


def item_of(extra: dict[str, Any], owner: str, key: str, kind: type) -> Any:
    """A list or dict of texts that a package keeps in `extra`; empty if it is absent."""
    own = extra.get(owner, {})
    value = own.get(key, kind()) if isinstance(own, dict) else None
    texts = value.values() if isinstance(value, dict) else value
    if type(value) is not kind or not all(isinstance(each, str) for each in texts or ()):
        raise Damaged(f"the checkpoint's extra has no right {owner}.{key}")
    return value


def get_fp32_state_dict_from_zero_checkpoint(
    checkpoint_dir: PathLike,
    tag: str | None = None,
    exclude_frozen_parameters: bool = False,
    lazy_mode: bool = False,
) -> dict[str, Any]:
    """The model's state dict, floats in f32.

    Args:
        checkpoint_dir: the parent of the folder `tag`, or that folder itself.
        tag: default is the tag in the file `latest`.
        exclude_frozen_parameters: leaves out params that did not require gradients.
        lazy_mode: reads a value when its `contiguous()` is called.
    """
    reader = open_reader(find_checkpoint(checkpoint_dir, tag))
    lazy = lazy_state_dict(reader, exclude_frozen_parameters)
    if lazy_mode:
        return dict(lazy)
    return read_all(lazy)


def read_all(lazy: dict[str, Lazy]) -> dict[str, torch.Tensor]:
    """The tensors, tied ones as one."""
    done: dict[int, torch.Tensor] = {}
    for value in lazy.values():
        if id(value) not in done:
            done[id(value)] = value.contiguous()
    return {name: done[id(value)] for name, value in lazy.items()}


def load_state_dict_from_zero_checkpoint(
    model: torch.nn.Module, checkpoint_dir: PathLike, tag: str | None = None
) -> torch.nn.Module:
    """Loads the f32 weights of a checkpoint into a model, which is moved to the CPU, and returns
    it. (For a sharded model engine.load_checkpoint is the way.)"""
    state = get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag)
    model = model.cpu()
    model.load_state_dict(state, strict=False)
    return model


def convert_zero_checkpoint_to_fp32_state_dict(
    checkpoint_dir: PathLike,
    output_dir: PathLike,
    max_shard_size: str | int | None = "5GB",
    safe_serialization: bool = False,
    tag: str | None = None,
    exclude_frozen_parameters: bool = False,
) -> None:
    """Writes the f32 weights of a checkpoint as Hugging Face publishes models.

    Args:
        checkpoint_dir, tag, exclude_frozen_parameters: as above.
        output_dir: gets pytorch_model.bin or model.safetensors; several of them and an index, where
            one would be above max_shard_size.
        max_shard_size: bytes, or as "5GB"; None: one file.
        safe_serialization: safetensors, with tied tensors once; else what torch.save writes.
    """
    reader = open_reader(find_checkpoint(checkpoint_dir, tag))
    lazy = lazy_state_dict(reader, exclude_frozen_parameters)
    write_weights(lazy, Path(output_dir), max_shard_size, safe_serialization)


# ---- Writing ------------------------------------------------------------------------------------


def write_weights(
    lazy: dict[str, Lazy], folder: Path, max_shard_size: str | int | None, safe_serialization: bool
) -> None:
    most = size_of(max_shard_size)
    folder.mkdir(parents=True, exist_ok=True)
    base = "model.safetensors" if safe_serialization else "pytorch_model.bin"
    stem, suffix = os.path.splitext(base)
    shards = split(lazy, most)
    index: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        many = len(shards) > 1
        name = f"{stem}-{number:05}-of-{len(shards):05}{suffix}" if many else base
        if safe_serialization:
            names = list({id(lazy[each]): each for each in reversed(names)}.values())[::-1]
            write_safetensors(
                folder / name,
                [(each, lazy[each].dtype, tuple(lazy[each].shape)) for each in names],
                (lazy[each].contiguous() for each in names),
            )
        else:
            with replacing(folder / name) as file:
                torch.save(read_all({each: lazy[each] for each in names}), file)
        index.update(dict.fromkeys(names, name))
    if len(shards) > 1:
        total = sum(lazy[each].numel() * lazy[each].dtype.itemsize for each in index)
        table = {"metadata": {"total_size": total}, "weight_map": index}
        with replacing(folder / f"{base}.index.json") as file:
            file.write(json.dumps(table, indent=2).encode())


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` at the end: it is complete or absent.

    No link is followed: one that is in its place is replaced. `mode` is subject to the umask. If
    the block raises, what was there stays.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(part, flags, mode), "wb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def size_of(text: str | int | None) -> int | None:
    if text is None or isinstance(text, int):
        return text
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", text)
    if not found or found[2].upper() not in UNITS:
        raise ValueError(f"max_shard_size is {text!r}: a size is written as '5GB'")
    return int(float(found[1]) * UNITS[found[2].upper()])


def split(lazy: dict[str, Lazy], most: int | None) -> list[list[str]]:
    """Names by file: as many of them as fit, tied ones together."""
    together: dict[int, list[str]] = collections.defaultdict(list)
    for name, value in lazy.items():
        together[id(value)].append(name)
    shards: list[list[str]] = [[]]
    room = 0
    for names in together.values():
        value = lazy[names[0]]
        size = value.numel() * value.dtype.itemsize
        if most is not None and shards[-1] and room + size > most:
            shards.append([])
            room = 0
        shards[-1] += names
        room += size
    return shards


def write_safetensors(
    path: Path,
    entries: Iterable[tuple[str, torch.dtype, tuple[int, ...]]],
    values: Iterable[torch.Tensor],
) -> None:
    """A safetensors file of tensors that arrive one after the other; it exists whole or not."""
    entries = list(entries)
    sizes = [int(np.prod(shape, dtype=object)) * dtype.itemsize for _, dtype, shape in entries]
    ends = list(itertools.accumulate(sizes, initial=0))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for (name, dtype, shape), begin, end in zip(entries, ends, ends[1:]):
        dtype_name = NAMES[dtype]
        header[name] = {"dtype": dtype_name, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in values:
            flat = value.detach().contiguous().reshape(-1)
            file.write(flat.view(torch.uint8).numpy().data if flat.numel() else b"")


# ---- The script ---------------------------------------------------------------------------------


class Progress:
    """Prints how much was read, at most once a second."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.printed = time.monotonic()

    def __call__(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.printed >= 1:
            self.printed = now
            # Blocks at the edges of tensors may be read twice.
            done = min(self.done, self.total)
            print(f"read {done / 1e9:.2f} of {self.total / 1e9:.2f} GB", file=sys.stderr)


def make_parser(prog: str, what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog, description=f"{what} out of a checkpoint of Meron")
    parser.add_argument("checkpoint_dir", help="the folder that has the checkpoints and `latest`")
    parser.add_argument("output_dir", help="receives the weights")
    parser.add_argument("--max_shard_size", default="5GB", help="of a file, as 5GB")
    parser.add_argument("--safe_serialization", action="store_true", help="write safetensors")
    parser.add_argument("-t", "--tag", help="the checkpoint; default is what `latest` says")
    parser.add_argument("--exclude_frozen_parameters", action="store_true")
    parser.add_argument("-d", "--debug", action="store_true", help="without effect")
    parser.add_argument(
        "--no-checksums", action="store_true", help="do not compare the data with their checksums"
    )
    return parser


def convert(given: argparse.Namespace, prog: str, dtype: torch.dtype = torch.float32) -> None:
    """Does the work of the command line, with floats in a dtype."""
    try:
        reader = open_reader(
            find_checkpoint(given.checkpoint_dir, given.tag), not given.no_checksums
        )
        lazy = lazy_state_dict(reader, given.exclude_frozen_parameters)
        for each in lazy.values():
            each.cast(dtype)
        sizes = {id(each): each.numel() * SIZES[each.entry["dtype"]] for each in lazy.values()}
        total = sum(sizes.values())
        if given.no_checksums:
            print(
                f"--no-checksums: {total} bytes of {len(sizes)} tensors are not compared with "
                "their checksums; damage in them goes into the output unnoticed",
                file=sys.stderr,
            )
        reader.report = Progress(total)
        write_weights(lazy, Path(given.output_dir), given.max_shard_size, given.safe_serialization)
    except Exception as error:
        if not isinstance(error, (ValueError, OSError)) and not hasattr(error, "status"):
            raise
        sys.exit(f"{prog}: {error}")


def main(argv: list[str] | None = None) -> None:
    prog = "zero_to_fp32.py"
    convert(make_parser(prog, "f32 weights").parse_args(argv), prog)


if __name__ == "__main__":
    main()
