# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: Meron's, with what Lightning keeps beside the weights.

NAME.ckpt/checkpoint/      a checkpoint of Meron (docs/checkpoint-format.md)
NAME.ckpt/latest           its name
NAME.ckpt/zero_to_fp32.py  makes f32 weights of it

Lightning's own state (loops, callbacks, schedulers, hyperparameters) is part of the checkpoint, as
JSON and tensors (`own_state`). So both exist together or not at all.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Callable

import torch

import meron
import meron.torch as mt
from meron.lightning import own_state
from meron.lightning.session import Session
from meron.lightning.unsharded import full_value
from meron.torch.checkpoint.agreement import LoadError, together
from meron.torch.checkpoint.compare import Differences
from meron.torch.checkpoint.load import load_unless_given
from meron.torch.sharding import unit_of
from meron.torch.values.full import exact_param
from meron.zero import zero_to_fp32
from meron.zero.checkpoints import check_own
from meron.zero.drive import drive_errors
from meron.zero.script import put_scripts
from meron.zero.targets import extra_states_of, targets_of

logger = logging.getLogger("meron.lightning")
warned: set[str] = set()

TAG = "checkpoint"
ENGINE = "meron.zero"  # of `extra`: the engine's own counters and loss scale
OWN_KEYS = ("state_dict", "optimizer_states")  # of Saved.state, besides the caller's


class LazyState(MutableMapping[str, torch.Tensor]):
    """A state dict whose values are read when they are used, and that remembers its changes.

    Attributes:
        changed: values that were set.
        removed: names that were deleted.
    """

    def __init__(self, names: list[str], read: Callable[[str], torch.Tensor]) -> None:
        self.names = dict.fromkeys(names)
        self.read = read
        self.changed: dict[str, torch.Tensor] = {}
        self.removed: set[str] = set()

    def __getitem__(self, name: str) -> torch.Tensor:
        if name in self.changed:
            return self.changed[name]
        if name not in self.names:
            raise KeyError(name)
        return self.read(name)

    def __setitem__(self, name: str, value: torch.Tensor) -> None:
        self.changed[name] = value
        self.names.setdefault(name)
        self.removed.discard(name)

    def __delitem__(self, name: str) -> None:
        del self.names[name]
        self.changed.pop(name, None)
        self.removed.add(name)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.names))

    def __len__(self) -> int:
        return len(self.names)


def model_state(model: torch.nn.Module) -> LazyState:
    """The state dict of a sharded model. Reading a value of it is collective."""
    targets = targets_of(model)

    def read(name: str) -> torch.Tensor:
        tensor = targets[name].tensor
        return exact_param(tensor) if unit_of(tensor) is not None else tensor.detach()

    return LazyState(list(targets), read)


def full_model_state(model: torch.nn.Module) -> LazyState:
    """The same with the f32 values that optimizers update, in host memory."""
    targets = targets_of(model)
    return LazyState(list(targets), lambda name: full_value(targets[name].tensor))


def read_values(state: LazyState, keep: bool) -> dict[str, torch.Tensor]:
    """All values of a model's state, or none, if this rank does not keep them. Collective."""
    found = {}
    for name in state:
        value = state[name]
        if keep:
            found[name] = value
    return found


# ---- Saving -------------------------------------------------------------------------------------


def save(
    session: Session,
    path: str,
    state: Mapping[str, Any],
    *,
    weights_only: bool,
    skip_frozen: bool,
) -> None:
    """Saves a model, its optimizers and Lightning's state as the directory `path`. Collective.

    It exists whole or not at all; one of the same name is replaced. Within an accumulation it has
    what the last step left. Raises, on all ranks, StateError (a param is in use), NoSpaceError,
    InputOutputError, GroupError.
    """
    engine = session.engine
    context = engine.sharding.context
    tensors: dict[str, torch.Tensor] = {}
    entry: dict[str, Any] = {}
    with together(context):
        if context.rank == 0:
            packed = own_state.Packed(state)
            warn_of_pickle(packed.pickled)
            tensors, entry = packed.tensors, packed.entry()
    mt.save(
        path,
        TAG,
        engine.module,
        None if weights_only or not session.optimizers else session.optimizers,
        step=engine.global_steps,
        extra={
            ENGINE: {**engine._own_state(), "client_state": "{}"},
            own_state.KEY: {**entry, "weights_only": weights_only},
        },
        tensors=tensors,
        rng=not weights_only,
        overwrite=True,
        values_only=weights_only,
        skip_frozen=skip_frozen,
    )
    with together(context), drive_errors():
        if context.rank == 0:
            put_scripts(Path(path))


def warn_of_pickle(names: list[str]) -> None:
    """Says once per set of names that a load needs trust: a run should learn so when it saves."""
    key = ", ".join(names)
    if names and key not in warned:
        warned.add(key)
        logger.warning(
            "the checkpoint keeps these as a pickle, because JSON cannot hold them: %s. A load by "
            "default refuses classes that PyTorch does not know as harmless: pass "
            "weights_only=False, or call torch.serialization.add_safe_globals before. Or leave "
            "them out, by save_hyperparameters(ignore=[...])",
            key,
        )


def remove(path: str) -> None:
    """Removes the directory of a checkpoint; a link to one alone. Local.

    Renames it first: if the process is killed, no checkpoint lacks files. Removes also the rests of
    checkpoints of this name whose removal was killed.
    """
    given = Path(path)
    if given.is_symlink():
        given.unlink()
        return
    prefix = f".removing-{given.name}-"
    given.rename(given.with_name(prefix + secrets.token_hex(4)))
    for each in given.parent.iterdir():
        if each.name.startswith(prefix):
            shutil.rmtree(each)


# ---- Loading ------------------------------------------------------------------------------------


class Saved:
    """A directory that `save` made, opened to read.

    Attributes:
        path:         of the directory.
        tag:          of the checkpoint in it.
        weights_only: whether it has values only.
        world:        ranks that saved it.
        state:        Lightning's, with the model's values as `state_dict`, which are read from the
                      files when they are used.
    """

    def __init__(self, path: Path, weights_only: bool | None) -> None:
        """Raises as `own_state.read`."""
        self.path = path
        self.tag = tag_in(path)
        checkpoint = meron.open_checkpoint(path, self.tag)
        files = zero_to_fp32.LazyDict(zero_to_fp32.LibraryReader(checkpoint))
        self.state: dict[str, Any] = own_state.read(checkpoint, weights_only)
        self.weights_only = bool(checkpoint.extra[own_state.KEY].get("weights_only"))
        self.world = checkpoint.world
        check_own(checkpoint.extra.get(ENGINE, {}), {})
        self.state["state_dict"] = LazyState(list(files), files.__getitem__)
        if not self.weights_only:
            self.state.setdefault("optimizer_states", [])


def tag_in(path: Path) -> str:
    return zero_to_fp32.find_checkpoint(path).name


def restore(session: Session, saved: Saved, *, optimizers: bool, strict: bool) -> None:
    """Loads what `save` saved, at any number of ranks and stage. Collective.

    Changes that were made to `saved.state["state_dict"]` count: values that were set are loaded in
    place of the file's, and params whose names were deleted stay as they are.

    All other names are compared as without changes. So are the states of optimizers: those of a
    param that a change has renamed are missing.

    Raises, on all ranks, LoadError before anything has changed; CorruptError, GroupError.
    """
    engine = session.engine
    model = engine.module
    given = saved.state.get("state_dict")
    kept: dict[str, torch.Tensor] = {}
    edited: Callable[[str], bool] | None = None
    if isinstance(given, LazyState):
        own = model_state(model)
        with together(engine.sharding.context):
            check_edits(model, given.changed, strict)
        kept = {name: own[name] for name in sorted(given.removed) if name in own}
        kept.update(given.changed)
        edited = {*given.removed, *given.changed}.__contains__
    elif isinstance(given, Mapping):  # another one in its place
        kept = dict(given)
        edited = any_name
    with_optimizers = optimizers and not saved.weights_only and bool(session.optimizers)
    loaded = load_unless_given(
        edited,
        saved.path,
        saved.tag,
        model,
        session.optimizers if with_optimizers else None,
        strict=strict,
        values_only=not with_optimizers,
        rng=with_optimizers,
    )
    if kept:
        model.load_state_dict(kept, strict=strict and not isinstance(given, LazyState))
    engine._take_state(loaded.extra.get(ENGINE, {}), loaded.step, with_optimizers)


def any_name(_name: str) -> bool:
    return True


def check_edits(model: torch.nn.Module, changed: Mapping[str, torch.Tensor], strict: bool) -> None:
    """LoadError for values that were set in a checkpoint's state_dict and that the model cannot
    take. Local."""
    targets = targets_of(model)
    unknown = set(changed).difference(targets, extra_states_of(model))
    found = Differences(unexpected=sorted(unknown))
    for name in sorted(changed.keys() & targets):
        if not isinstance(changed[name], torch.Tensor):
            continue  # which load_state_dict refuses
        ours, theirs = list(targets[name].tensor.shape), list(changed[name].shape)
        if ours != theirs:
            found.mismatched.append(f"{name} ({theirs} in the state_dict, {ours} here)")
    wrong = found.text(strict)
    if wrong:
        raise LoadError(
            f"values that were set in checkpoint['state_dict'] do not fit the model: {wrong}",
            subject="state_dict",
            advice="Set values of the model's names and shapes in on_load_checkpoint.",
        )


# ---- Paths --------------------------------------------------------------------------------------


def check_directory(path: str | os.PathLike[str]) -> Path:
    """The directory of a checkpoint. FileNotFoundError says what else was given."""
    given = Path(path)
    text = f"The provided path is not a valid Meron checkpoint: {given}"
    advice = "Pass the directory that the strategy saved, NAME.ckpt."
    if given.is_dir() and is_checkpoint(given):
        return given
    for folder in (given.parent, given.parent.parent):
        if folder != given and is_checkpoint(folder):
            raise FileNotFoundError(f"{text}: did you mean {folder}? {advice}")
    if not given.exists():
        raise FileNotFoundError(f"{text}: it does not exist. {advice}")
    if (given / "latest").is_file():
        raise FileNotFoundError(
            f"{text}. {advice} It may be one of DeepSpeed that lacks files: "
            f"`python -m meron.convert import {given} FOLDER` says which."
        )
    raise FileNotFoundError(f"{text}. {advice}")


def local_directory(path: str) -> Path | None:
    """The directory of a checkpoint; None where the path is a file or a URL.

    Raises FileNotFoundError as `check_directory`.
    """
    if "://" in path and not path.startswith("file://"):
        return None
    path = path.removeprefix("file://")
    if os.path.isfile(path) and not is_checkpoint(Path(path).parent):
        return None
    return check_directory(path)


def is_checkpoint(folder: Path) -> bool:
    """True if a folder has a checkpoint of Meron, by the file `latest` or by this module's tag."""
    try:
        tag_in(folder)
    except (ValueError, OSError):
        return False
    return not (folder / zero_to_fp32.MANIFEST).is_file()


def local_path(path: str | os.PathLike[str]) -> str:
    """A path that Meron can write to. ValueError for a URL, and for a file that is in its place."""
    text = os.fspath(path)
    if "://" in text and not text.startswith("file://"):
        raise ValueError(
            "a checkpoint of Meron is a directory of a file system that all ranks see, and "
            f"{text} is a URL. Save to a folder, and copy it."
        )
    text = text.removeprefix("file://")
    if os.path.isfile(text):
        raise FileExistsError(
            f"{text} is a file, and a checkpoint of Meron a directory. Move the file, or save by "
            "another name."
        )
    return text


def file_path(path: str) -> None:
    """FileExistsError if the path of a file is a directory."""
    if os.path.isdir(path):
        raise FileExistsError(
            f"{path} is a directory, and save_distributed_checkpoint=False saves a file. Move it, "
            "or save by another name."
        )
