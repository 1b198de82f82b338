# SPDX-License-Identifier: Apache-2.0
"""The engine's checkpoints, by DeepSpeed's names and in Meron's format.

SAVE_DIR/global_step12/     a checkpoint (docs/checkpoint-format.md)
SAVE_DIR/latest             the tag that was saved last
SAVE_DIR/latest_universal   the tag of the copy that ds_to_universal made last
SAVE_DIR/zero_to_fp32.py    makes f32 weights of a checkpoint
SAVE_DIR/zero_to_torch.py   makes weights of a checkpoint in another dtype
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import meron
import meron.torch as mt
from meron import errors
from meron._call_names import calling
from meron.torch.checkpoint import packing
from meron.torch.checkpoint.agreement import from_rank, together
from meron.torch.checkpoint.document import document_in
from meron.zero import client_state as client_states
from meron.zero import imported, zero_to_fp32
from meron.zero.consolidated import state_dict_on_rank0, write_weights
from meron.zero.drive import drive_errors
from meron.zero.dropin.version import VERSION
from meron.zero.facts import Facts
from meron.zero.loss_scale import LossScale
from meron.zero.model_states import write_model_states
from meron.zero.script import put_scripts

logger = logging.getLogger("meron.zero")

OWN_KEY = "meron.zero"  # of the checkpoint's `extra`: what this module keeps there
COUNTERS = ("micro_steps", "global_steps", "skipped_steps", "global_samples")


class Checkpoints(Facts):
    """Saves and loads an engine."""

    @calling("engine.save_checkpoint")
    def save_checkpoint(
        self,
        save_dir: str | os.PathLike[str],
        tag: object = None,
        client_state: Mapping[str, Any] | None = None,
        save_latest: bool = True,
        exclude_frozen_parameters: bool = False,
    ) -> bool:
        """Saves everything that training needs to resume, in the directory `tag`. Collective.

        A checkpoint has the weights, optimizer, scheduler, loss scale, counters and random numbers.
        Each rank writes its shard. Any number of ranks, at any stage, can load it. A failed save
        leaves no partial checkpoint. An existing checkpoint of the same tag is replaced. Within an
        accumulation it has what the last update left: the micro-batches since are not in it, and
        the engine keeps their gradients. Other engines of the process do not matter.

        Args:
            save_dir: a folder that all ranks see; created if it does not exist.
            tag: a name, the same on all ranks. If ranks differ, the tag of rank 0 is used, and
                checkpoint.tag_validation of the config sets whether that is an error. Default is
                global_step and the count.
            client_state: the caller's state, of rank 0: a dict of numbers, texts, lists, tensors,
                NumPy arrays, dates and the other types that docs/torch_deepspeed.md lists.
            save_latest: False leaves the file `latest` as it is.
            exclude_frozen_parameters: leaves out params that do not require gradients.

        Returns True. Blocks on the drive and on all ranks.

        Raises, on all ranks: ArgumentError (no save_dir, a tag that is no name, something in
        client_state that is none of those, by its key), StateError (params are
        gathered), NoSpaceError, InputOutputError, GroupError. Existing checkpoints
        are unchanged, and training can continue.
        """
        self._require_alive("save_checkpoint")
        context = self.sharding.context
        with together(context):
            self.sharding.finish_step()
            folder = folder_of(save_dir, "save_dir")
        name = self._agreed_tag(f"global_step{self.global_steps}" if tag is None else str(tag))
        text, before = "{}", None
        tensors: dict[str, torch.Tensor] = {}
        with together(context), drive_errors():
            if context.rank == 0:
                text, tensors = client_states.pack({} if client_state is None else client_state)
            if context.rank == 0 or self.config.node_local_checkpoints:
                before = read_latest(folder)
        mt.save(
            folder,
            name,
            self.module,
            self.optimizer,
            step=self.global_steps,
            extra={OWN_KEY: {**self._own_state(), "client_state": text}},
            scheduler=self._scheduler(),
            tensors=tensors,
            overwrite=True,
            skip_frozen=exclude_frozen_parameters,
            per_node=self.config.node_local_checkpoints,
        )
        with together(context), drive_errors():
            if not save_latest and (context.rank == 0 or self.config.node_local_checkpoints):
                write_latest(folder, before)
            if context.rank == 0:
                put_scripts(folder)
        if self.config.write_model_states:
            facts = self._model_facts(client_state or {})
            write_model_states(
                context, self.module, folder / name, facts, exclude_frozen_parameters
            )
        return True

    @calling("engine.load_checkpoint")
    def load_checkpoint(
        self,
        load_dir: str | os.PathLike[str],
        tag: object = None,
        load_module_strict: bool = True,
        load_optimizer_states: bool = True,
        load_lr_scheduler_states: bool = True,
        load_module_only: bool = False,
        custom_load_fn: Callable[..., Any] | None = None,
    ) -> tuple[str | None, dict[str, Any] | None]:
        """Resumes from a checkpoint, at any number of ranks and any stage. Collective.

        Args:
            load_dir: the `save_dir` of `save_checkpoint`, or the directory of one checkpoint.
            tag: default is the tag in the file `latest`, or with checkpoint.load_universal of the
                config in `latest_universal`, if that file exists.
            load_module_strict: False skips params that only the model or only the checkpoint has.
            load_optimizer_states: with False the optimizer keeps its states, and f32 masters are
                copied from the weights.
            load_lr_scheduler_states: False leaves the scheduler as it is.
            load_module_only: weights, buffers and counters alone.
            custom_load_fn: is called as custom_load_fn(src=STATE_DICT, dst=module) on all ranks in
                place of loading weights; the state dict is full, and read when its values are used.

        Returns:
            The checkpoint's directory and the client state; (None, None), with a warning, where
            load_dir has no file `latest` and no tag is given.

        Blocks on the drive and on all ranks. Gradients are dropped. Raises, on all ranks and before
        anything changes: NotFoundError, CorruptError (also for a file `latest` that names no
        checkpoint), ParseError (state of the engine or of the caller), VersionError, LoadError
        (what does not fit is listed), StateError (params are gathered). Later: CorruptError,
        GroupError.
        """
        self._require_alive("load_checkpoint")
        context = self.sharding.context
        schedules = self._scheduler() if load_lr_scheduler_states and not load_module_only else None
        with together(context), drive_errors():
            self.sharding.finish_step()
            folder = str(folder_of(load_dir, "load_dir"))
            universal = self.config.load_universal
            found = look_for(folder, tag, schedules, universal) if context.rank == 0 else None
        known: dict[str, Any] = json.loads(from_rank(context, json.dumps(found)))
        if known["tag"] is None and not known["direct"]:
            if context.rank == 0:
                logger.warning(
                    "load_checkpoint: there is no file %s: pass a tag, or save with save_latest",
                    os.path.join(folder, "latest"),
                )
            return None, None
        optimizer = self.optimizer if load_optimizer_states and not load_module_only else None
        loaded = mt.load(
            folder,
            known["tag"],
            self.module,
            optimizer,
            strict=load_module_strict and custom_load_fn is None,
            values_only=optimizer is None,
            scheduler=schedules if known["scheduler"] else None,
            rng=not load_module_only,
            per_node=self.config.node_local_checkpoints and not known["direct"],
        )
        own = loaded.extra.get(OWN_KEY) or imported.own_state(loaded.extra)
        self._take_state(own, loaded.step, optimizer is not None)
        if not load_module_only:
            scaler = self.loss_scaler if optimizer is not None else None
            imported.restore(loaded.extra, schedules, scaler)
        if custom_load_fn is not None:
            source = zero_to_fp32.LazyDict(zero_to_fp32.open_reader(Path(loaded.path)))
            custom_load_fn(src=source, dst=self.module)
        return loaded.path, client_states.unpack(own.get("client_state", "{}"), loaded.tensors)

    @calling("engine.save_16bit_model")
    def save_16bit_model(
        self,
        save_dir: str | os.PathLike[str],
        save_filename: str = "pytorch_model.bin",
        exclude_frozen_parameters: bool = False,
    ) -> bool:
        """Saves the unsharded weights, in the params' dtype, as one file. Collective.

        Args:
            save_filename: NAME.safetensors is written a tensor at a time, tied ones once; any other
                by torch.save, for which rank 0 holds all weights in host memory.
            exclude_frozen_parameters: leaves out params that do not require gradients.

        Works at every stage, whatever stage3_gather_16bit_weights_on_model_save says. Returns True.
        Raises InputOutputError on all ranks, and what was there stays then.
        """
        self._require_alive("save_16bit_model")
        write_weights(self.module, Path(save_dir) / save_filename, exclude_frozen_parameters)
        return True

    def zero_gather_16bit_weights_on_model_save(self) -> bool:
        """The config's stage3_gather_16bit_weights_on_model_save. Default is True here."""
        return self.config.gather_weights

    def _zero3_consolidated_16bit_state_dict(
        self, exclude_frozen_parameters: bool = False
    ) -> dict[str, torch.Tensor] | None:
        """The unsharded weights, in the params' dtype, in host memory of rank 0; None on the
        others. Collective. Raises ArgumentError (a ValueError) below stage 3, as DeepSpeed."""
        if not self.zero_optimization_partition_weights():
            raise errors.argument(
                "this function requires ZeRO-3 mode", advice="Call module_state_dict()."
            )
        return state_dict_on_rank0(self.module, exclude_frozen_parameters)

    def _consolidated_16bit_state_dict(
        self, exclude_frozen_parameters: bool = False
    ) -> dict[str, torch.Tensor] | None:
        """As _zero3_consolidated_16bit_state_dict, at any stage. Collective."""
        return state_dict_on_rank0(self.module, exclude_frozen_parameters)

    # ---- Parts ---------------------------------------------------------------------------------

    def _agreed_tag(self, tag: str) -> str:
        """Rank 0's tag. Collective."""
        context = self.sharding.context
        first = from_rank(context, tag)
        if tag != first and self.config.tag_validation == "warn":
            logger.warning(
                "rank %d has the checkpoint tag %r, rank 0 %r: rank 0's counts",
                context.rank,
                tag,
                first,
            )
        with together(context):
            if tag != first and self.config.tag_validation == "fail":
                raise errors.argument(
                    f"the checkpoint tag is {tag!r} on rank {context.rank} and {first!r} on rank 0",
                    subject="tag",
                    advice="Give all ranks the same tag.",
                )
        return first

    def _scheduler(self) -> Any:
        scheduler = self.lr_scheduler
        return scheduler if hasattr(scheduler, "state_dict") else None

    def _own_state(self) -> dict[str, Any]:
        frozen = [name for name, p in self.module.named_parameters() if not p.requires_grad]
        own: dict[str, Any] = {"version": 1, "frozen": frozen}
        own.update({name: getattr(self, name) for name in COUNTERS})
        own["micro_steps"] -= self._accumulated  # gradients since the last update are not saved
        if self.loss_scaler is not None:
            own["loss_scale"] = self.loss_scaler.state_dict()
        return own

    def _model_facts(self, client_state: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of DeepSpeed's model states besides the weights."""
        return {
            **client_state,
            **{name: getattr(self, name) for name in COUNTERS},
            "dp_world_size": self.world_size,
            "mp_world_size": 1,
            "ds_config": json.loads(json.dumps(self.config.table, default=str)),
            "ds_version": VERSION,
        }

    def _take_state(self, own: dict[str, Any], step: int, with_optimizer: bool) -> None:
        for name in COUNTERS:
            setattr(self, name, own.get(name, step if name == "global_steps" else 0))
        if with_optimizer and self.loss_scaler is not None and "loss_scale" in own:
            self.loss_scaler.load_state_dict(own["loss_scale"])
        self._begin_again()


def folder_of(path: Any, name: str) -> Path:
    """The folder that an argument names. ArgumentError if it names none."""
    if not isinstance(path, (str, os.PathLike)):
        raise errors.argument(
            f"{name} is a {type(path).__name__}, no path",
            subject=name,
            advice='Give the folder of the run, such as "runs/gpt".',
        )
    if not os.fspath(path):
        raise errors.argument(f"{name} is empty", subject=name)
    return Path(path)


def look_for(folder: str, tag: object, scheduler: Any, universal: bool = False) -> dict[str, Any]:
    """Looks for a checkpoint, on rank 0. Returns its tag, and two flags: `direct` is true if the
    folder itself is the checkpoint, `scheduler` if it has the state of a scheduler.

    Checks the engine's own state in the checkpoint, before a load changes anything.
    """
    direct = os.path.isfile(os.path.join(folder, zero_to_fp32.MANIFEST))
    name = str(tag) if tag is not None else None if direct else latest_tag(Path(folder), universal)
    found = {"tag": name, "direct": direct, "scheduler": False}
    if name is not None or direct:
        with meron.open_checkpoint(folder, name) as checkpoint:
            found["scheduler"] = bool(document_in(checkpoint).get("schedulers"))
            extra = checkpoint.extra
            own = extra.get(OWN_KEY) or imported.own_state(extra)
            imported.check(extra, scheduler)
            own_tensors = {
                name: each for (kind, name), each in checkpoint.tensors.items() if kind == "extra"
            }
            check_own(own, own_tensors)
    return found


def check_own(own: Any, tensors: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises ParseError or ArgumentError for an engine's state that is not as `save` writes it.

    Args:
        tensors: the manifest's entries of the caller's tensors, by name.
    """
    counts = [own.get(name, 0) for name in COUNTERS] if isinstance(own, dict) else [None]
    if any(type(count) is not int or not 0 <= count < 2**63 for count in counts):
        raise packing.unreadable("the engine's state", TypeError("a wrong counter"))
    if "loss_scale" in own:
        LossScale.check_state(own["loss_scale"])
    client_states.check(own.get("client_state", "{}"), tensors)


def latest_tag(folder: Path, universal: bool = False) -> str | None:
    """The tag in the file `latest`; None if there is no such file. CorruptError if it has none.

    If `universal`, the file `latest_universal` counts before it.
    """
    for file in ("latest_universal", "latest") if universal else ("latest",):
        try:
            tag = zero_to_fp32.latest_tag(folder, file)
        except zero_to_fp32.Damaged as error:
            raise errors.make(
                errors.CorruptError.status, str(error), subject=str(folder / file)
            ) from None
        if tag is not None:
            return tag
    return None


def read_latest(folder: Path) -> bytes | None:
    """All of the file `latest`."""
    try:
        return (folder / "latest").read_bytes()
    except FileNotFoundError:
        return None


def write_latest(folder: Path, content: bytes | None) -> None:
    """Puts back what `latest` said before. Ranks of a node may do so at once."""
    if content is None:
        (folder / "latest").unlink(missing_ok=True)
        return
    with zero_to_fp32.replacing(folder / "latest") as file:
        file.write(content)
