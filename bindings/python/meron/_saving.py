# SPDX-License-Identifier: Apache-2.0
"""The part of a context that saves, loads and exports: all ranks together."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from meron._base_context import BaseContext
from meron._dropped import SAVE
from meron._native import IN_PROGRESS, call, lib, nanoseconds, sized, text
from meron._values import SaveProgress
from meron.checkpoint import (
    Checkpoint,
    CheckpointTensor,
    export_options,
    load_options,
    named,
    save_options,
)
from meron.dtypes import CODES, DType, dtype_name
from meron.future import Future
from meron.optimizer import Optimizer
from meron.unit import Unit


class Saving(BaseContext):
    """Methods of `meron.Context` for checkpoints."""

    def save(
        self,
        folder: str | os.PathLike[str],
        name: str,
        optimizers: Iterable[Optimizer] = (),
        *,
        step: int = 0,
        extra: Mapping[str, Any] | None = None,
        tensors: Iterable[CheckpointTensor] = (),
        keep: int = 0,
        overwrite: bool = False,
        values_only: bool = False,
        skip_frozen: bool = False,
        per_node: bool = False,
        mapping: Mapping[str, str] | None = None,
        units: Iterable[Unit] | None = None,
    ) -> None:
        """Saves as `save_begin` does, and waits for the end."""
        self.save_begin(
            folder,
            name,
            optimizers,
            step=step,
            extra=extra,
            tensors=tensors,
            keep=keep,
            overwrite=overwrite,
            values_only=values_only,
            skip_frozen=skip_frozen,
            per_node=per_node,
            mapping=mapping,
            units=units,
        ).wait()

    def save_begin(
        self,
        folder: str | os.PathLike[str],
        name: str,
        optimizers: Iterable[Optimizer] = (),
        *,
        step: int = 0,
        extra: Mapping[str, Any] | None = None,
        tensors: Iterable[CheckpointTensor] = (),
        keep: int = 0,
        overwrite: bool = False,
        values_only: bool = False,
        skip_frozen: bool = False,
        per_node: bool = False,
        mapping: Mapping[str, str] | None = None,
        units: Iterable[Unit] | None = None,
    ) -> Future:
        """Begins to save the states of all units, as they are now.

        The checkpoint is complete or does not exist, and any number of ranks can load it:
        docs/checkpoint-format.md. Collective over the world. A thread of the engine copies and
        writes while forward and backward continue; a step waits until its units are copied. The
        future, or the next save, raises a failure of one rank on all ranks. Existing checkpoints
        stay, and training can continue. Waits for the previous save.

        Args:
            folder: of checkpoints, which all ranks see; made if it is not there.
            name: of this one, for example "step-100".
            optimizers: whose states are saved too.
            step: the caller's count; the newest checkpoint has the highest.
            extra: the caller's own state, as JSON has it (rank 0's is kept).
            tensors: the caller's own; the ranks' together have each element of a tensor once. Their
                memory must not change before `wait_copied` returns.
            keep: so many complete checkpoints stay in the folder; 0: all.
            overwrite: replace a checkpoint of that name.
            values_only: leave masters and the states of optimizers out.
            skip_frozen: leave frozen params out.
            per_node: each node has a folder of its own, such as one on a local disk; ranks of a
                node give the same.
            mapping: {param: name in the files}, where it differs; "" leaves the param out.
            units: that are saved, the same on all ranks; None: all. They have all units of the
                optimizers and all params of the mapping.

        `cancel_save` cancels it: the future then raises CancelledError. A save within an
        accumulation has what the last update left, and gradients stay as they are.

        Raises ArgumentError, DuplicateError (the name is taken), StateError (a step is under way, a
        unit is in use, an array of `Optimizer.state` that may write is alive), NoSpaceError,
        InputOutputError, GroupError.
        """
        alive: list[Any] = []
        options = save_options(
            optimizers,
            extra,
            tensors,
            mapping,
            units,
            alive,
            step=step,
            keep=keep,
            overwrite=int(overwrite),
            values_only=int(values_only),
            skip_frozen=int(skip_frozen),
            per_node=int(per_node),
        )
        with self._states:
            self._require_states_gone("the states cannot be saved")
            self._dropped.raise_failure_of_save()
            future = Future(self, alive)
            future._called = SAVE
            future._begin(
                lib.meron_checkpoint_save_begin,
                self._handle,
                os.fsencode(folder),
                text(name, "name"),
                options,
            )
            self._save = weakref.ref(future)
            return future

    def wait_copied(self, timeout: float | None = None) -> bool:
        """Waits until the save under way has copied what it saves.

        Then the tensors that were passed to it may change. Returns False after `timeout` seconds.
        Blocks on the drive, and releases the GIL.
        """
        status = call(lib.meron_checkpoint_wait_copied, self._handle, nanoseconds(timeout))
        return status != IN_PROGRESS

    def save_progress(self) -> SaveProgress:
        """How far the save under way is, or how far the last one came; never blocks."""
        out = sized("meron_checkpoint_progress")
        call(lib.meron_checkpoint_get_progress, out, self._handle)
        return SaveProgress(bool(out.saving), int(out.total), int(out.copied), int(out.written))

    def load(
        self,
        folder: str | os.PathLike[str],
        name: str | None = None,
        optimizers: Iterable[Optimizer] = (),
        *,
        lenient: bool = False,
        values_only: bool = False,
        rank0_only: bool = False,
        per_node: bool = False,
        mapping: Mapping[str, str | list[str]] | None = None,
        claimed: Iterable[str] = (),
        units: Iterable[Unit] | None = None,
    ) -> Checkpoint:
        """Loads a checkpoint into all units, whatever world and plan saved it.

        Values, masters, states, step counts and the hyperparameters of optimizer groups. Collective
        over the world; blocks on the drive and on all ranks, and releases the GIL. Before anything
        changes all ranks have compared names, shapes and optimizers, and opened the files.

        Args:
            folder: of checkpoints, or one of them; with `values_only` also a model as Hugging Face
                publishes it.
            name: None for the newest complete one.
            optimizers: as they were given to the save.
            lenient: True ignores params and tensors that the other side lacks.
            values_only: load values; optimizers keep their states.
            rank0_only: only rank 0 sees the files, and sends the others their parts.
            per_node: each node has a folder of its own. A rank of each reads the node's files for
                all; there may be other nodes than at the save.
            mapping: where a param has another name in the files: {param: tensor}, or {param:
                [tensors]}, one after the other along the first dimension.
            claimed: values of the files that the caller reads itself (buffers).
            units: that are loaded, the same on all ranks; None: all. They have all units of the
                optimizers. Others stay as they are.

        Raises NotFoundError, CorruptError (names tensor, file and offset), ArgumentError (what does
        not fit is listed), VersionError, StateError as `save` (also for a gradient that is not
        empty and for a state that may only be read), GroupError (it failed half-way).
        """
        alive: list[Any] = []
        options = load_options(
            optimizers,
            mapping,
            claimed,
            units,
            alive,
            lenient=int(lenient),
            values_only=int(values_only),
            rank0_only=int(rank0_only),
            per_node=int(per_node),
        )
        with self._states:
            self._require_states_gone("no checkpoint can be loaded", read=True)
            self._raise_dropped()
            return Checkpoint(
                lib.meron_checkpoint_load,
                self._handle,
                os.fsencode(folder),
                named(name),
                options,
            )

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        dtype: DType | None = None,
        max_file_bytes: int = 5_000_000_000,
        mapping: Mapping[str, str] | None = None,
        tensors: Iterable[CheckpointTensor] = (),
        overwrite: bool = False,
    ) -> None:
        """Writes the values of all units as Hugging Face publishes models.

        model.safetensors, or several files with an index. Collective over the world; each rank
        writes its own shard of each tensor in place, so nothing is gathered. Blocks on the drive
        and on all ranks, and releases the GIL.

        Args:
            folder: which all ranks see; created if it does not exist. Its other files stay. dtype:
            "bf16", "f16" or "f32" of the values in the files; None: each param's own.
            max_file_bytes: a file is closed before it would exceed it. mapping: {param: name in the
            files}, where it differs. tensors: buffers of rank 0, whole. overwrite: replace a model
            that is there.

        Raises ArgumentError, DuplicateError (a model is there), StateError as `save`, NoSpaceError,
        InputOutputError, GroupError.
        """
        alive: list[Any] = []
        code = None if dtype is None else CODES[dtype_name(dtype)]
        options = export_options(
            code,
            mapping,
            tensors,
            alive,
            max_file_bytes=max_file_bytes,
            overwrite=int(overwrite),
        )
        with self._states:
            self._require_states_gone("the values cannot be exported")
            self._raise_dropped()
            call(lib.meron_checkpoint_export, self._handle, os.fsencode(folder), options)
