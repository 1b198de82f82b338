# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the states of all units, saved and loaded by all ranks together, and as files.

docs/checkpoint-format.md is what they are.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meron import errors
from meron._methods import CheckpointMethods
from meron._native import (
    NULL,
    Owner,
    call,
    ffi,
    initial,
    lib,
    new,
    receive,
    sized,
    string,
    take_json,
    text,
)
from meron.dtypes import BITS, bfloat16, require_no_references
from meron.optimizer import Optimizer
from meron.unit import Unit, unit_table

logger = logging.getLogger("meron")

# Dtypes of safetensors as numpy names them. numpy has no BF16 and no 8-bit floats; these are read
# as the integers of their bits.
NUMPY_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
    "BOOL": "?", "F8_E4M3": "u1", "F8_E5M2": "u1",
}  # fmt: skip


@dataclass(frozen=True)
class CheckpointTensor:
    """A tensor of the caller's own, or a part of one, to be saved.

    Attributes:
        name:  1 to 512 bytes.
        dtype: as safetensors names it: "F32", "BF16", "I64", ...
        shape: of the whole tensor.
        data:  the elements from `begin` on: a contiguous array of that dtype, or their bytes (of
               uint8 in one dimension, or another buffer). Bits of BF16 and 8-bit floats may be
               unsigned integers. An array of as many elements as the tensor has its shape, or one
               dimension.
        begin: first element that `data` has, row-major.
        kind:  "extra", "values" for a buffer of a model, "exp_avg" or "state.KEY" for a state of an
               optimizer: docs/checkpoint-format.md.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Any
    begin: int = 0
    kind: str = "extra"


class Checkpoint(CheckpointMethods, Owner):
    """A checkpoint, or a model as Hugging Face publishes it, that was opened or loaded.

    A context manager that releases itself.

    Attributes:
        path:       of its directory, or of its one file.
        step:       as it was given to the save.
        world:      ranks that saved it.
        extra:      the caller's own state, as it was given to the save.
        missing:    states that it lacks, and that stayed as they were when it was loaded.
        unexpected: its tensors that no unit has.
        passed_over: of the newest of a folder: words on incomplete ones that were passed over, and
                    on another run that has a higher step; "" if there are none.
    """

    _release_function = lib.meron_checkpoint_release

    def __init__(self, opening: Any, *arguments: Any) -> None:
        """Opens it by a function of the library, whose first parameter receives it."""
        self._receive("meron_checkpoint *", opening, *arguments)
        info = self._info()
        self.path = self._text(lib.MERON_CHECKPOINT_TEXT_PATH)
        self.step = int(info.step)
        self.world = int(info.world)
        self.extra: dict[str, Any] = json.loads(self._text(lib.MERON_CHECKPOINT_TEXT_EXTRA))
        self.missing = tuple(self._text(lib.MERON_CHECKPOINT_TEXT_MISSING).splitlines())
        self.unexpected = tuple(self._text(lib.MERON_CHECKPOINT_TEXT_UNEXPECTED).splitlines())
        self.passed_over = self._text(lib.MERON_CHECKPOINT_TEXT_PASSED_OVER)
        self._tensors: dict[tuple[str, str], dict[str, Any]] | None = None

    @property
    def manifest(self) -> dict[str, Any]:
        """All of its manifest: docs/checkpoint-format.md."""
        manifest: dict[str, Any] = json.loads(self._text(lib.MERON_CHECKPOINT_TEXT_MANIFEST))
        return manifest

    @property
    def tensors(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The manifest's entries of tensors, by kind and name."""
        if self._tensors is None:
            self._tensors = {(t["kind"], t["name"]): t for t in self.manifest["tensors"]}
        return self._tensors

    @property
    def bytes_read(self) -> int:
        """Bytes of its files that this rank has read."""
        return int(self._info().bytes_read)

    def read(
        self, name: str, kind: str = "values", *, begin: int = 0, count: int | None = None
    ) -> np.ndarray[Any, Any]:
        """Elements of a tensor as the files have them, after their checksums were compared.

        Local: no other rank takes part. Blocks on the drive; releases the GIL meanwhile.

        Args:
            begin: first element, row-major.
            count: None: to the end of the tensor.

        Returns:
            One dimension, or the tensor's shape if it is read whole. BF16 and 8-bit floats come as
            unsigned integers of their bits.

        Raises NotFoundError (no such tensor), ArgumentError, CorruptError, InputOutputError.
        """
        entry = self.tensors.get((kind, name))
        if entry is None:
            raise errors.make(
                lib.MERON_E_NOT_FOUND,
                f"the checkpoint has no {kind} of {name!r}",
                subject=self.path,
                advice="look at Checkpoint.tensors for those that it has",
            )
        elements = int(np.prod(entry["shape"], dtype=object))
        many = elements - begin if count is None else count
        out = np.empty(max(many, 0), NUMPY_DTYPES[entry["dtype"]])
        self.read_into(out, name, kind, begin=begin, count=many)
        return out.reshape(entry["shape"]) if many == elements else out

    def read_into(
        self, buffer: Any, name: str, kind: str = "values", *, begin: int = 0, count: int
    ) -> None:
        """As `read`, into contiguous memory of the caller's."""
        data = ffi.from_buffer(buffer, require_writable=True)
        call(
            lib.meron_checkpoint_read,
            ffi.cast("void *", data),
            len(data),
            self._open(),
            text(kind, "kind"),
            text(name, "name"),
            whole(begin, "begin"),
            whole(count, "count"),
        )

    def release(self) -> None:
        """Releases it; doing so twice is fine."""
        self.__del__()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r}, step={self.step}, world={self.world})"

    def _open(self) -> Any:
        if self._handle is None:
            raise errors.StaleError("this checkpoint was released")
        return self._handle

    def _info(self) -> Any:
        info = sized("meron_checkpoint_info")
        call(lib.meron_checkpoint_get_info, info, self._open())
        return info

    def _text(self, kind: int) -> str:
        return string(receive("char **", lib.meron_checkpoint_text, self._open(), kind))


def open_checkpoint(folder: str | os.PathLike[str], name: str | None = None) -> Checkpoint:
    """Opens a checkpoint to look at it and to read tensors, without a context.

    Args:
        folder: of checkpoints, or one of them; or a model as Hugging Face publishes it: a directory
                with model.safetensors (or its index), or one file.
        name:   None for the newest complete one. The logger "meron" has a warning if others were
                passed over.

    Blocks on the drive. Raises NotFoundError, CorruptError, ParseError, VersionError,
    ArgumentError, AuthError (a link), InputOutputError.
    """
    opened = Checkpoint(lib.meron_checkpoint_open, os.fsencode(folder), named(name))
    if opened.passed_over:
        logger.warning("%s", opened.passed_over)
    return opened


def list_checkpoints(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The complete checkpoints in a folder, newest first, in the order in which a load chooses.

    Returns:
        A dict for each: "name", "step", "world" (ranks that saved it), "bytes" (of its files),
        "created" (UTC, as text), and "whole" (False if params, states or units were left out).

    Blocks on the drive. Raises NotFoundError (no such folder), InputOutputError.
    """
    found: list[dict[str, Any]] = take_json(lib.meron_checkpoint_list, os.fsencode(folder))
    return found


def remove_checkpoint(folder: str | os.PathLike[str], name: str) -> None:
    """Removes a checkpoint, complete or not, with all that is in its directory.

    It loses its name first: if the process is killed, it is there as before or gone. Any one
    process may call it, beside a job that saves to the folder; ranks need not agree.

    Blocks on the drive. Raises ArgumentError (it is no checkpoint, and stays), NotFoundError,
    AuthError (a link), StateError (a save of that name is pending, or a process has the checkpoint
    open, such as by a `Checkpoint` that was not released), InputOutputError.
    """
    call(lib.meron_checkpoint_remove, os.fsencode(folder), text(name, "name"))


def write_checkpoint(
    folder: str | os.PathLike[str],
    name: str,
    tensors: Iterable[CheckpointTensor],
    *,
    step: int = 0,
    extra: Mapping[str, Any] | None = None,
    optimizers: Iterable[Mapping[str, Any]] = (),
    overwrite: bool = False,
) -> None:
    """Writes tensors as a checkpoint of one rank, without a context.

    Args:
        optimizers: as the manifest lists them: {"rule", "steps", "groups"}.

    Blocks on the drive. Raises ArgumentError, DuplicateError (the name is taken), StateError,
    NoSpaceError, InputOutputError.
    """
    alive: list[Any] = []
    options = initial("meron_checkpoint_write_options")
    options.step = whole(step, "step")
    options.overwrite = int(overwrite)
    options.extra = json_text(extra, "extra", alive)
    options.optimizers = json_text(list(optimizers), "optimizers", alive)
    set_tensors(options, tensors, alive)
    call(lib.meron_checkpoint_write, os.fsencode(folder), text(name, "name"), options)


def save_options(
    optimizers: Iterable[Optimizer],
    extra: Mapping[str, Any] | None,
    tensors: Iterable[CheckpointTensor],
    mapping: Mapping[str, str] | None,
    units: Iterable[Unit] | None,
    alive: list[Any],
    **numbers: int,
) -> Any:
    options = initial("meron_checkpoint_save_options")
    set_numbers(options, numbers)
    options.mapping = json_text(mapping, "mapping", alive)
    options.extra = json_text(extra, "extra", alive)
    set_optimizers(options, optimizers, alive)
    set_tensors(options, tensors, alive)
    set_units(options, units, alive)
    return options


def load_options(
    optimizers: Iterable[Optimizer],
    mapping: Mapping[str, Any] | None,
    claimed: Iterable[str],
    units: Iterable[Unit] | None,
    alive: list[Any],
    **numbers: int,
) -> Any:
    options = initial("meron_checkpoint_load_options")
    set_numbers(options, numbers)
    options.mapping = json_text(mapping, "mapping", alive)
    names = [text(name, "claimed") for name in claimed]
    options.claimed = kept(new("char[]", b"\n".join(names)), alive) if names else NULL
    set_optimizers(options, optimizers, alive)
    set_units(options, units, alive)
    return options


def export_options(
    dtype: int | None,
    mapping: Mapping[str, str] | None,
    tensors: Iterable[CheckpointTensor],
    alive: list[Any],
    **numbers: int,
) -> Any:
    options = initial("meron_checkpoint_export_options")
    set_numbers(options, numbers)
    options.keep_dtype = int(dtype is None)
    if dtype is not None:
        options.dtype = dtype
    options.mapping = json_text(mapping, "mapping", alive)
    set_tensors(options, tensors, alive)
    return options


# `alive` holds what options point to; it must live as long as they are used.


def kept(value: Any, alive: list[Any]) -> Any:
    alive.append(value)
    return value


def named(name: str | None) -> Any:
    return NULL if name is None else text(name, "name")


def whole(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
        raise errors.argument(f"{what} is a whole number, 0 or more, not {value!r}")
    return value


def set_numbers(options: Any, numbers: Mapping[str, int]) -> None:
    for key, value in numbers.items():
        setattr(options, key, whole(value, key))


def json_text(value: Any, what: str, alive: list[Any]) -> Any:
    if value is None:
        return NULL
    try:
        encoded = json.dumps(value if isinstance(value, list) else dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise errors.argument(
            f"{what} holds what JSON cannot: {error}. Pass numbers, texts, lists and dicts"
        ) from error
    return kept(new("char[]", encoded.encode()), alive)


def set_optimizers(options: Any, optimizers: Iterable[Optimizer], alive: list[Any]) -> None:
    handles = [optimizer._handle for optimizer in optimizers]
    options.optimizers = kept(new("meron_optimizer[]", handles), alive)
    options.optimizer_count = len(handles)


def set_units(options: Any, units: Iterable[Unit] | None, alive: list[Any]) -> None:
    """None: all of them. An empty list is refused: the library would take it for all."""
    if units is None:
        return
    table, count = unit_table(units)
    if not count:
        raise errors.argument("no units are given. Give some, or None for all", "units")
    options.units = kept(table, alive)
    options.unit_count = count


def set_tensors(options: Any, tensors: Iterable[CheckpointTensor], alive: list[Any]) -> None:
    given = list(tensors)
    table = kept(new("meron_checkpoint_tensor[]", max(len(given), 1)), alive)
    for row, tensor in zip(table, given):
        ffi.addressof(row)[0] = initial("meron_checkpoint_tensor")[0]
        dtype = NUMPY_DTYPES.get(tensor.dtype)
        if dtype is None:
            raise errors.argument(
                f"tensor {tensor.name!r} has dtype {tensor.dtype!r}; known are "
                + ", ".join(NUMPY_DTYPES)
            )
        shape = [whole(int(each), "shape") for each in tensor.shape]
        data = kept(ffi.from_buffer(memory_of(tensor, tuple(shape))), alive)
        size = np.dtype(dtype).itemsize
        if len(data) % size:
            raise errors.argument(
                f"the data of tensor {tensor.name!r} have {len(data)} bytes, which are no whole "
                f"elements of {tensor.dtype}"
            )
        row.name = kept(new("char[]", text(tensor.name, "name")), alive)
        row.kind = kept(new("char[]", text(tensor.kind, "kind")), alive)
        row.dtype = kept(new("char[]", text(tensor.dtype, "dtype")), alive)
        row.dims = len(shape)
        row.shape = kept(new("uint64_t[]", shape or 1), alive)
        row.begin = whole(tensor.begin, "begin")
        row.count = len(data) // size
        row.data = ffi.cast("void *", data)
    options.tensors = table
    options.tensor_count = len(given)


def memory_of(tensor: CheckpointTensor, shape: tuple[int, ...]) -> Any:
    """The data of a tensor as bytes. ArgumentError if they are not elements of its dtype."""
    what = f"the data of tensor {tensor.name!r}"
    try:
        array = tensor.data
        if not isinstance(array, np.ndarray):
            array = np.asarray(memoryview(array))
    except (TypeError, ValueError):
        raise errors.argument(
            f"{what} are no array or buffer, but a {type(tensor.data).__name__}",
            subject=tensor.name,
            advice="Pass numpy.asarray(...) of it; of a tensor of PyTorch, tensor.numpy().",
        ) from None
    require_no_references(array.dtype, what)
    if not array.flags.c_contiguous:
        raise errors.argument(
            f"{what} are not contiguous",
            subject=tensor.name,
            advice="Pass numpy.ascontiguousarray(...) of it.",
        )
    is_bytes = array.dtype == np.uint8 and array.ndim == 1
    if not is_bytes and not is_of(array.dtype, tensor.dtype):
        raise errors.argument(
            f"{what} have dtype {array.dtype.str}, not {tensor.dtype}",
            subject=tensor.name,
            advice=f"Pass array.astype({NUMPY_DTYPES[tensor.dtype]!r}), or name the dtype that it "
            "has.",
        )
    if array.ndim > 1 and array.shape != shape and array.size == math.prod(shape):
        raise errors.argument(
            f"{what} have shape {array.shape}, the tensor has {shape}", subject=tensor.name
        )
    return array.reshape(-1).view(np.uint8)


def is_of(dtype: np.dtype[Any], name: str) -> bool:
    """True if a dtype of NumPy holds elements of a dtype of safetensors, or their bits."""
    bits = np.dtype(NUMPY_DTYPES[name])
    if name == "BF16":
        return dtype in (bits, BITS, bfloat16)
    if name.startswith("F8"):
        return dtype == bits or dtype.name.startswith(f"float8_{name[3:].lower()}")
    return dtype == bits
