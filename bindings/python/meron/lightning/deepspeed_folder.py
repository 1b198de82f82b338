# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that Lightning's DeepSpeedStrategy saved, read as if they were one file.

NAME.ckpt/latest                                the tag, "checkpoint"
NAME.ckpt/checkpoint/*_model_states.pt          values, and Lightning's state as the client's
NAME.ckpt/checkpoint/*_optim_states.pt          f32 values and states, cut by ZeRO

The files of all ranks are mapped, and each rank reads them (meron.convert). Code in them runs only
if Lightning's own state needs it and the caller passes weights_only=False.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import meron.torch as mt
from meron.convert import deepspeed
from meron.convert.content import Content, ConvertError
from meron.lightning import own_state
from meron.lightning.unsharded import ADVICE, places_of
from meron.torch.checkpoint.agreement import LoadError
from meron.torch.sharding import placed

PREFIX = "_forward_module."  # of names, by Lightning before 2.0


def find(path: str) -> Path | None:
    """The folder of DeepSpeed's that a path names; None if it is none."""
    folder = Path(path.removeprefix("file://"))
    if "://" in str(folder) or not folder.is_dir():
        return None
    if deepspeed.is_step_folder(folder):
        return folder
    try:
        deepspeed.step_folder(folder, None)
    except (ConvertError, OSError):
        return None
    return folder


class Folder:
    """The content of a folder, without its optimizers.

    Attributes:
        state:   what Lightning's file has: its own keys, and `state_dict` with f32 values.
        content: as meron.convert reads it.
    """

    def __init__(self, path: Path, weights_only: bool | None, tag: str | None = None) -> None:
        """Local. Raises LoadError for files that are incomplete, damaged, or need code to run that
        `weights_only` does not allow (None is torch's default, which allows none)."""
        try:
            self.content, first = read_files(path, tag, own_state.trusts(weights_only))
        except ConvertError as error:
            advice = (
                "Copy all its files, or import it by `python -m meron.convert import "
                f"{path} FOLDER` to see what it has."
            )
            text, _, needs_trust = str(error).partition(". If you trust")
            raise LoadError(
                f"Meron was unable to load the checkpoint of DeepSpeed: {text}",
                subject=str(path),
                advice=own_state.TRUST if needs_trust else advice,
            ) from None
        own = deepspeed.OWN_KEYS
        self.state: dict[str, Any] = {key: value for key, value in first.items() if key not in own}
        self.state["state_dict"] = weights_of(self.content, first)

    def optimizer_states(
        self, optimizers: Iterable[torch.optim.Optimizer], model: torch.nn.Module
    ) -> list[dict[str, Any]]:
        """The states as one optimizer would have them, in its order of params; [] if the folder has
        none. Local. LoadError: several optimizers, or params that the folder has no states of."""
        given = list(optimizers)
        if not self.content.groups or not any(is_state(f.kind) for f in self.content.tensors):
            return []
        if len(given) != 1:
            raise LoadError(
                f"the checkpoint of DeepSpeed has states of one optimizer, and this run has "
                f"{len(given)}",
                subject="optimizer_states",
                advice=ADVICE,
            )
        return [states_for(self.content, given[0], model)]


def read_files(path: Path, tag: str | None, trust: bool) -> tuple[Content, Mapping[str, Any]]:
    folder = deepspeed.step_folder(path, tag)
    first = deepspeed.by_rank(folder, deepspeed.MODEL, trust)[0]
    return deepspeed.read(path, tag, trust), first


def plain_name(name: str) -> str:
    return name[len(PREFIX) :] if name.startswith(PREFIX) else name


def is_state(kind: str) -> bool:
    return kind not in ("values", "master")


def weights_of(content: Content, first: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """f32 values where the folder has them, with tied names and buffers."""
    found: dict[str, torch.Tensor] = {}
    for kind in ("values", "master"):
        for each in content.tensors:
            if each.kind == kind:
                found[plain_name(each.name)] = each.tensor()
    for name, of in (first.get("shared_params") or {}).items():
        if plain_name(of) in found:
            found[plain_name(name)] = found[plain_name(of)]
    return found


def states_for(
    content: Content, optimizer: torch.optim.Optimizer, model: torch.nn.Module
) -> dict[str, Any]:
    """A state_dict of torch's for an optimizer, by the names of its params."""
    states: dict[str, dict[str, Any]] = {}
    for each in content.tensors:
        if is_state(each.kind):
            key = each.kind.removeprefix("state.")
            states.setdefault(plain_name(each.name), {})[key] = each.tensor()
    for state in states.values():
        state["step"] = torch.tensor(float(content.optimizer_steps))
    numbers = {plain_name(name): group.numbers for group in content.groups for name in group.params}
    names = names_by_number(optimizer, model)
    lacking = [name for name in names.values() if name not in numbers]
    if lacking:
        raise LoadError(
            f"the checkpoint of DeepSpeed has no states of {', '.join(lacking[:8])}",
            subject=lacking[0],
            advice=ADVICE,
        )
    groups: list[dict[str, Any]] = []
    at = 0
    for ours in optimizer.param_groups:
        indexes = list(range(at, at + len(ours["params"])))
        at += len(indexes)
        theirs = numbers[names[indexes[0]]] if indexes else {}
        kept = {key: value for key, value in ours.items() if key != "params"}
        groups.append({**kept, **theirs, "params": indexes})
    found = {n: states[name] for n, name in names.items() if name in states}
    return {"state": found, "param_groups": groups}


def names_by_number(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> dict[int, str]:
    """The name in the model of each param of an optimizer, by its number in a state_dict."""
    by_place = {}
    for name, param in model.named_parameters():
        by_place[placed(param)] = name
    if isinstance(optimizer, mt.EngineOptimizer):
        params = [param for group in optimizer.param_groups for param in group["params"]]
        return {number: by_place[placed(param)] for number, param in enumerate(params)}
    return {number: by_place[place] for number, place in places_of(optimizer).items()}
