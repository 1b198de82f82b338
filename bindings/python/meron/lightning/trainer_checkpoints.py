# SPDX-License-Identifier: Apache-2.0
"""Saves and loads of the strategy of a Trainer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meron import errors
from meron._call_names import calling
from meron.lightning import checkpoints, deepspeed_folder, own_state, unsharded
from meron.lightning import optimizers as own
from meron.lightning.session import Session
from meron.lightning.trainer_setup import EMPTY_OPTIMIZER
from meron.torch.checkpoint.agreement import together
from meron.zero.drive import drive_errors

WARN = "pl.utilities.rank_zero.rank_zero_warn"

if TYPE_CHECKING:
    Base: Any = object
else:
    Base = object


class TrainerCheckpoints(Base):  # type: ignore[misc,unused-ignore]
    """A mixin of the strategy. A checkpoint is a directory, which `checkpoints` describes."""

    session: Session | None
    load_full_weights: bool
    save_distributed_checkpoint: bool
    _ended: Session | None

    # ---- Checkpoints ------------------------------------------------------------------------

    def lightning_module_state_dict(self) -> Mapping[str, Any]:
        """The module's state dict; a value is gathered when it is used, by all ranks."""
        if self.save_distributed_checkpoint:
            return checkpoints.model_state(self._module)
        return checkpoints.full_model_state(self._module)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Nothing: `save_checkpoint` saves the states of shards. For a single file
        (`save_distributed_checkpoint=False`) unsharded states. Collective then."""
        if self.save_distributed_checkpoint or isinstance(
            own.bare(optimizer), self.tree.get(EMPTY_OPTIMIZER)
        ):
            return {}
        return unsharded.full_states(own.bare(optimizer))

    @calling("Trainer.save_checkpoint")
    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        """Saves a checkpoint as a directory, which any number of ranks loads. Collective.

        With `save_distributed_checkpoint=False` as one file, which rank 0 writes by Lightning's
        CheckpointIO, also to a URL.

        Raises TypeError for storage_options, ValueError for a URL, FileExistsError for a file
        in its place.
        """
        if not self.save_distributed_checkpoint:
            self._save_file(checkpoint, filepath, storage_options)
            return
        if storage_options is not None:
            raise TypeError(
                "`Trainer.save_checkpoint(..., storage_options=...)` with `storage_options` arg"
                f" is not supported for `{type(self).__name__}` as `CheckpointIO` is not used."
            )
        given = self.broadcast(str(filepath))
        with self._together():
            path = checkpoints.local_path(given)
        state = {k: v for k, v in checkpoint.items() if k not in ("optimizer_states",)}
        weights = state.pop("state_dict", None)
        changed = getattr(weights, "changed", {}), getattr(weights, "removed", ())
        if any(changed) or not isinstance(weights, checkpoints.LazyState):
            self.tree.get(WARN)(
                "`on_save_checkpoint` has changed `checkpoint['state_dict']`: the weights of the "
                "model are saved all the same. Keep tensors of your own under other keys, and "
                "leave frozen params out by MeronStrategy(exclude_frozen_parameters=True)."
            )
        session = self._saved_session()
        if self.lightning_module.trainer.interrupted:
            session.engine.zero_grad()  # of a step that did not come
        checkpoints.save(
            session,
            path,
            state,
            weights_only="optimizer_states" not in checkpoint,
            skip_frozen=self.exclude_frozen_parameters,
        )

    def _saved_session(self) -> Session:
        session, ended = self.session, self._ended
        if ended is not None and not ended.released and (session is None or not session.optimizers):
            session = ended  # an evaluation has no optimizers
        if session is None or session.released:
            raise errors.StateError(
                "the strategy has no model to save",
                operation="save_checkpoint",
                advice="Save within a run, or after it with the Trainer that the model ran with "
                "last.",
            )
        return session

    def _save_file(self, checkpoint: dict[str, Any], path: Any, storage_options: Any) -> None:
        """One file, as of another strategy, with f32 weights. Collective."""
        context = self._saved_session().engine.sharding.context
        given = self.broadcast(str(path))
        with together(context):  # before values are gathered
            if context.rank == 0:
                checkpoints.file_path(given)
        weights = checkpoint.get("state_dict", {})
        if isinstance(weights, checkpoints.LazyState):
            if self.exclude_frozen_parameters:
                for name, param in self._module.named_parameters(remove_duplicate=False):
                    if not param.requires_grad and name in weights:
                        del weights[name]
            checkpoint["state_dict"] = checkpoints.read_values(weights, keep=context.rank == 0)
        with together(context):
            if context.rank == 0:
                self.checkpoint_io.save_checkpoint(checkpoint, given, storage_options)

    def remove_checkpoint(self, filepath: Any) -> None:
        """Removes a checkpoint, whose directory exists completely or not at all. Collective: it
        is gone for all ranks when one returns. Raises InputOutputError on all ranks."""
        path = str(filepath).removeprefix("file://")
        with self._together(), drive_errors():
            if self.is_global_zero:
                if "://" not in path and os.path.isdir(path):
                    checkpoints.remove(path)
                else:
                    self.checkpoint_io.remove_checkpoint(filepath)

    @calling("MeronStrategy.load_checkpoint")
    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Returns Lightning's part of a checkpoint. `load_model_state_dict` loads the rest.

        Takes a directory that this strategy saved, at any number of ranks and stage, a file that
        another strategy saved, and a folder that Lightning's DeepSpeedStrategy saved.

        Raises, on all ranks if on any, FileNotFoundError for another directory,
        MisconfigurationException for one without a state of Lightning. Collective.
        """
        given = self.broadcast(str(checkpoint_path))
        load = super().load_checkpoint
        self._saved = None
        with self._together():
            foreign = deepspeed_folder.find(given)
            if foreign is not None:
                return self._read_deepspeed(foreign, weights_only)
            path = checkpoints.local_directory(given)
            if path is None:
                return dict(self._load_file(load, given, weights_only))
            try:
                self._saved = checkpoints.Saved(path, weights_only)
            except own_state.NoState as error:
                raise self._failure(
                    f"Meron was unable to load the checkpoint: {error}. Pass a directory that "
                    "MeronStrategy saved, or a checkpoint file."
                ) from None
            self._check_world(self._saved)
        return self._saved.state

    def _read_deepspeed(self, path: Any, weights_only: bool | None) -> dict[str, Any]:
        """A folder of Lightning's DeepSpeedStrategy as a file of another strategy. Local."""
        found = deepspeed_folder.Folder(path, weights_only)
        if "pytorch-lightning_version" not in found.state:
            raise self._failure(
                f"Meron was unable to load the checkpoint: {path} was saved by DeepSpeed without "
                "Lightning. Make one of Meron of it by `python -m meron.convert import "
                f"{path} FOLDER`, and load its weights by meron.torch.load."
            )
        session = self._running
        if self._module.trainer.state.fn == self._fitting and not self.load_full_weights:
            found.state["optimizer_states"] = found.optimizer_states(
                session.optimizers, session.engine.module
            )
        return found.state

    @calling("MeronStrategy.load_checkpoint")
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Loads weights and, when fitting, states of optimizers. Collective.

        Raises LoadError (a RuntimeError) on all ranks for what does not fit.
        """
        module, session = self._module, self._running
        fits = module.trainer.state.fn == self._fitting
        resumes = fits and not self.load_full_weights
        if self._saved is not None:
            self._saved.state = dict(checkpoint)
            checkpoints.restore(session, self._saved, optimizers=resumes, strict=strict)
            self._saved = None
        else:
            # {} is the state of EMPTY_OPTIMIZER.
            states = [state for state in checkpoint.get("optimizer_states", []) if state]
            resumes = resumes and bool(states)
            if resumes:
                with self._together():
                    unsharded.check_all(session.optimizers, states)
            module.load_state_dict(checkpoint["state_dict"], strict=strict)
            for optimizer, state in zip(session.optimizers, states) if resumes else ():
                unsharded.take_full_states(optimizer, state)
        if fits and not resumes:
            self.tree.get(WARN)(
                "Weights alone are restored, and the states of optimizers start anew: because of "
                "load_full_weights, or because the checkpoint has none. Resume from one that was "
                "saved without save_weights_only to restore them."
            )

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Nothing: `load_model_state_dict` has loaded them."""
