# SPDX-License-Identifier: Apache-2.0
"""Saves and loads of the strategy of Fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from meron._call_names import calling
from meron.lightning import checkpoints, deepspeed_folder, own_state, unsharded
from meron.lightning import optimizers as own
from meron.lightning.session import Session
from meron.zero import Engine

if TYPE_CHECKING:
    Base: Any = object
else:
    Base = object


class FabricCheckpoints(Base):  # type: ignore[misc,unused-ignore]
    """A mixin of the strategy. A checkpoint is a directory, which `checkpoints` describes."""

    # ---- Checkpoints ------------------------------------------------------------------------

    @calling("Fabric.save")
    def save_checkpoint(
        self,
        path: Any,
        state: dict[str, Any],
        storage_options: Any = None,
        filter: dict[str, Any] | None = None,
    ) -> None:
        """Saves a model, its optimizers and other state as a directory. Collective.

        Args:
            state: has one model that was set up. Its optimizers are saved if one of them is in
                it.

        With `save_distributed_checkpoint=False` as one file, of any number of models, which rank 0
        writes by Fabric's CheckpointIO; storage_options and filter count then.

        Raises TypeError for storage_options and filter, ValueError for no model or several.
        """
        if not self.save_distributed_checkpoint:
            self._save_file(path, state, storage_options, filter)
            return
        for key, value in {"storage_options": storage_options, "filter": filter}.items():
            if value is not None:
                raise TypeError(
                    f"`{type(self).__name__}.save_checkpoint(..., {key}=...)` is not supported "
                    f"because `{type(self).__name__}` writes shards itself."
                )
        session = self._only_session(state, "save")
        given = self.broadcast(str(path))
        with self._together():
            own_path = checkpoints.local_path(given)
        rest = {k: v for k, v in state.items() if not belongs(v, session)}
        rest = self._convert_stateful_objects_in_state(rest, filter={})
        trains = any(session.optimizer_of(value) is not None for value in state.values())
        checkpoints.save(
            session,
            own_path,
            rest,
            weights_only=not trains,
            skip_frozen=self.exclude_frozen_parameters,
        )

    def _save_file(
        self, path: Any, state: dict[str, Any], storage_options: Any, filter: Any
    ) -> None:
        """One file, as of another strategy. Collective; if rank 0 cannot write, all raise."""
        given = self.broadcast(str(path))
        with self._together():
            checkpoints.file_path(given)
        if self.exclude_frozen_parameters:
            filter = {**without_frozen(state), **(filter or {})}
        content = self._convert_stateful_objects_in_state(state, filter=filter or {})
        with self._together():
            if self.is_global_zero:
                self.checkpoint_io.save_checkpoint(content, given, storage_options)

    @calling("Fabric.load")
    def load_checkpoint(
        self,
        path: Any,
        state: Any = None,
        strict: bool = True,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Loads what `save_checkpoint` saved, at any number of ranks and stage. Collective.

        A file that another strategy saved is loaded too; each rank cuts its shards of the states
        of optimizers. So is a folder of Fabric's DeepSpeedStrategy.

        Returns what the checkpoint has besides. Raises ValueError for no model or several,
        FileNotFoundError for no checkpoint, LoadError for one that does not fit.
        """
        given = self.broadcast(str(path))
        with self._together():
            foreign = deepspeed_folder.find(given)
            found_at = checkpoints.local_directory(given) if foreign is None else None
        if foreign is not None:
            read = self._read_deepspeed(foreign, state, weights_only)
            return self._load_plain(read, given, state, strict)
        if found_at is None:
            load = super().load_checkpoint
            with self._together():
                read = self._load_file(load, given, weights_only)
            return self._load_plain(read, given, state, strict)
        if isinstance(state, (torch.nn.Module, torch.optim.Optimizer)):
            raise ValueError(
                f"{found_at} is a directory, and `load_raw` reads a file. Pass "
                "`fabric.load(path, {'model': model, 'optimizer': optimizer})`."
            )
        if not state:
            raise ValueError(
                f"Got {type(self).__name__}.load_checkpoint(..., state={state!r}) but a state "
                "with at least a model instance to reload is required. Pass it in like so: "
                "load_checkpoint(..., state={'model': model, ...})"
            )
        session = self._only_session(state, "load")
        with self._together():
            try:
                saved = checkpoints.Saved(found_at, weights_only)
            except own_state.NoState as error:
                raise RuntimeError(
                    f"Meron was unable to load the checkpoint: {error}. Pass a directory that "
                    f"{type(self).__name__} saved, or a checkpoint file."
                ) from None
            self._check_world(saved)
        rest = {k: v for k, v in saved.state.items() if k not in checkpoints.OWN_KEYS}
        wanted = {k for k, v in state.items() if not belongs(v, session)}
        lacking = sorted(wanted - rest.keys())
        if strict and lacking:
            raise KeyError(
                f"The checkpoint {found_at} has no {', '.join(map(repr, lacking))} that the "
                f"state asks for; it has {sorted(rest)}. Pass strict=False to leave them."
            )
        trains = any(session.optimizer_of(value) is not None for value in state.values())
        trains = trains and not self.load_full_weights
        checkpoints.restore(session, saved, optimizers=trains, strict=strict)
        for key in wanted & rest.keys():
            value = rest.pop(key)
            if hasattr(state[key], "load_state_dict"):
                state[key].load_state_dict(value)
            else:
                state[key] = value
        return rest

    def _read_deepspeed(self, path: Any, state: Any, weights_only: bool | None) -> dict[str, Any]:
        """A folder of Fabric's DeepSpeedStrategy as a file with the keys of the state. Local, but
        for the agreement of all ranks."""
        if not isinstance(state, Mapping):
            raise ValueError(
                f"{path} is a folder of DeepSpeed, and `load_raw` reads a file. Pass "
                "`fabric.load(path, {'model': model, 'optimizer': optimizer})`."
            )
        session = self._only_session(state, "load")
        with self._together():
            read = deepspeed_folder.Folder(path, weights_only)
            weights = read.state.pop("state_dict")
            found = dict(read.state)
            for key, value in state.items():
                if value is session.engine:
                    found[key] = weights
                elif (optimizer := session.optimizer_of(value)) is not None:
                    states = read.optimizer_states([optimizer], session.engine.module)
                    if states:
                        found[key] = states[0]
        return found

    def _load_plain(
        self, saved: dict[str, Any], path: Any, state: Any, strict: bool = True
    ) -> dict[str, Any]:
        """A file of unsharded values. All of the optimizers' states are checked before any value
        is loaded."""
        if not state:
            return saved
        single = not isinstance(state, Mapping)
        given: Mapping[str, Any] = {"": state} if single else state
        found: dict[str, Any] = {"": saved} if single else saved
        if self.load_full_weights and not single:  # weights alone
            for key in [k for k, v in given.items() if isinstance(v, torch.optim.Optimizer)]:
                found.pop(key, None)
                given = {k: v for k, v in given.items() if k != key}
        lacking = [key for key in given if key not in found]
        if strict and lacking:
            raise KeyError(
                f"The checkpoint {path} has no {', '.join(map(repr, lacking))} that the state asks "
                f"for; it has {sorted(found)}. Pass strict=False to leave them."
            )
        steppers = {
            key: own.bare(value)
            for key, value in given.items()
            if isinstance(value, torch.optim.Optimizer) and key in found
        }
        with self._together():
            for key, optimizer in steppers.items():
                unsharded.check_full_states(optimizer, found[key])
        models = [key for key, value in given.items() if isinstance(value, torch.nn.Module)]
        for key in (*models, *(key for key in given if key not in models)):
            if key not in found:
                continue
            value, target = found.pop(key), given[key]
            if isinstance(target, torch.nn.Module):
                self.load_module_state_dict(target, value, strict)
            elif key in steppers and unsharded.on_shards(steppers[key]):
                unsharded.take_full_states(steppers[key], value)
            elif hasattr(target, "load_state_dict"):
                target.load_state_dict(value)
            else:
                state[key] = value
        return found

    def _only_session(self, state: Mapping[str, Any], verb: str) -> Session:
        engines = [value for value in state.values() if isinstance(value, Engine)]
        if len(engines) != 1:
            count = "Could not find a model" if not engines else "Found several models"
            raise ValueError(
                f"{count} that was set up by {type(self).__name__} in the state. A checkpoint "
                f"has one: `{verb}_checkpoint(..., state={{'model': model, ...}})`. Call it for "
                "each model, with another path."
            )
        session: Session = self._session_of(engines[0])
        return session


def without_frozen(state: Mapping[str, Any]) -> dict[str, Any]:
    """Fabric's filters that leave out the frozen params of the models of a state."""

    def trained(frozen: set[str]) -> Any:
        return lambda name, _value: name not in frozen

    return {
        key: trained({n for n, param in value.named_parameters() if not param.requires_grad})
        for key, value in state.items()
        if isinstance(value, torch.nn.Module)
    }


def belongs(value: Any, session: Session) -> bool:
    """True if a value of a state is the session's model, or one of its optimizers."""
    return value is session.engine or session.optimizer_of(value) is not None
