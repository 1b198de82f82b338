# SPDX-License-Identifier: Apache-2.0
"""How the strategy of Fabric saves and loads."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from meron.lightning import checkpoints
from meron.lightning import optimizers as own
from meron.lightning.session import Session
from meron.torch.checkpoint.agreement import LoadError
from meron.zero import Engine

if TYPE_CHECKING:
    Base: Any = object
else:
    Base = object


class FabricCheckpoints(Base):  # type: ignore[misc,unused-ignore]
    """A mixin of the strategy. A checkpoint is a directory, which `checkpoints` describes."""

    # ---- Checkpoints ------------------------------------------------------------------------

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

        Raises TypeError for storage_options and filter, ValueError for no model or several.
        """
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

    def load_checkpoint(
        self,
        path: Any,
        state: Any = None,
        strict: bool = True,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Loads what `save_checkpoint` saved, at any number of ranks and stage. Collective.

        A file that another strategy saved is loaded too; each rank cuts its shards of the states
        of torch's optimizers.

        Returns what the checkpoint has besides. Raises ValueError for no model or several,
        FileNotFoundError for no checkpoint, LoadError for one that does not fit.
        """
        given = self.broadcast(str(path))
        with self._together():
            found_at = checkpoints.local_directory(given)
        if found_at is None:
            load = functools.partial(super().load_checkpoint, strict=strict)
            return self._load_plain_file(load, path, state, weights_only)
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
                saved = checkpoints.Saved(found_at, self._reader(weights_only))
            except LookupError as error:
                raise RuntimeError(
                    f"Meron was unable to load the checkpoint: {error}. Pass a directory that "
                    f"{type(self).__name__} saved, or a checkpoint file."
                ) from None
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

    def _load_plain_file(
        self, load: Any, path: Any, state: Any, weights_only: bool | None
    ) -> dict[str, Any]:
        """A file of unsharded values, by Lightning's own function."""
        if isinstance(state, torch.optim.Optimizer):
            saved = self._load_file(functools.partial(load, state=None), path, weights_only)
            UnshardedStates(state).load_state_dict(saved)
            return {}
        if not isinstance(state, dict):
            return dict(self._load_file(functools.partial(load, state=state), path, weights_only))
        taken = {
            key: UnshardedStates(value) if isinstance(value, torch.optim.Optimizer) else value
            for key, value in state.items()
        }
        rest = self._load_file(functools.partial(load, state=taken), path, weights_only)
        state.update(
            (key, value) for key, value in taken.items() if not isinstance(value, UnshardedStates)
        )
        return dict(rest)

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


class UnshardedStates:
    """In place of an optimizer on shards, while Lightning loads a file of unsharded states."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = own.bare(optimizer)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.optimizer.state_dict())

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Takes this rank's parts. LoadError for other params, and for the engine's optimizers."""
        if not own.take_full_states(self.optimizer, saved):
            raise LoadError(
                f"{type(self.optimizer).__name__} is the engine's, and takes no states of a file",
                subject="optimizer",
                advice="Leave the optimizer out of the state to load weights alone, or load a "
                "directory that this strategy saved.",
            )


def belongs(value: Any, session: Session) -> bool:
    """Whether a value of a state is the session's model, or one of its optimizers."""
    return value is session.engine or session.optimizer_of(value) is not None
