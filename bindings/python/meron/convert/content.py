# SPDX-License-Identifier: Apache-2.0
"""Content of a foreign checkpoint of any format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

# The names of torch's dtypes in safetensors.
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


class ConvertError(Exception):
    """A checkpoint that cannot be read or written. The words say which file, and what to do."""


@dataclass
class Part:
    """Elements of a tensor, row-major, from `begin` on."""

    begin: int
    data: torch.Tensor  # one dimension, contiguous; may be a view of a mapped file


@dataclass
class Found:
    """A tensor, in one part or several that cover it."""

    name: str
    kind: str  # as docs/checkpoint-format.md lists them
    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: list[Part]

    @staticmethod
    def whole(name: str, kind: str, tensor: torch.Tensor) -> Found:
        data = tensor.detach().contiguous()
        return Found(name, kind, data.dtype, tuple(data.shape), [Part(0, data.reshape(-1))])

    def tensor(self) -> torch.Tensor:
        """All of it, in one piece."""
        if len(self.parts) == 1:
            return self.parts[0].data.reshape(self.shape)
        ordered = sorted(self.parts, key=lambda part: part.begin)
        return torch.cat([part.data for part in ordered]).reshape(self.shape)


@dataclass
class Group:
    """A group of params of an optimizer."""

    params: list[str]
    numbers: dict[str, Any]  # "lr", "betas", "eps", "weight_decay", ...


@dataclass
class Content:
    """A foreign checkpoint."""

    source: str  # "DeepSpeed ZeRO-3 of 2 ranks"
    tensors: list[Found] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    rule: str = ""  # "adamw", "adam", "adagrad", "lion", "sgd"; "": not known
    optimizer_steps: int = 0
    step: int = 0
    extra: dict[str, Any] = field(default_factory=dict)  # of the caller, as JSON has it
    state: dict[str, Any] = field(default_factory=dict)  # "loss_scale", "skipped_steps", ...
    left_out: list[str] = field(default_factory=list)  # what was not taken, and why

    def add_groups(
        self, names: Sequence[Iterable[Any]], numbers: Sequence[Mapping[str, Any]]
    ) -> None:
        """Adds an optimizer's groups in its order, because a load matches groups by their index.

        `names`: the params of each group; of another length than `numbers`: not known.
        """
        known = names if len(names) == len(numbers) else [()] * len(numbers)
        for params, group in zip(known, numbers, strict=True):
            kept = {
                key: plain_number(value)
                for key, value in group.items()
                if key not in ("params", "param_names") and value is not None
            }
            self.groups.append(Group([str(each) for each in params], kept))

    def infer_rule(self) -> None:
        """The rule of a torch optimizer, which does not save its name, by its states."""
        kinds = {found.kind for found in self.tensors}
        if {"exp_avg", "exp_avg_sq"} <= kinds:
            decoupled = any(group.numbers.get("decoupled_weight_decay") for group in self.groups)
            self.rule = "adamw" if decoupled else "adam"

    def keep_json(self, values: Iterable[tuple[Any, Any]]) -> None:
        """Takes what JSON can hold into `extra`; names the rest in `left_out`."""
        for key, value in values:
            try:
                self.extra[str(key)] = as_json(value)
            except TypeError as error:
                self.left_out.append(f"{key}: {error}")


def as_json(value: Any, depth: int = 0) -> Any:
    """`value` as JSON has it; TypeError says what it has not."""
    if depth > 4:
        raise TypeError("is nested more than 4 deep")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise TypeError(f"holds {value}, which JSON has not")
        return value
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise TypeError("holds a tensor")
        return as_json(value.item(), depth)
    if isinstance(value, list | tuple | torch.Size):
        return [as_json(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {str(key): as_json(each, depth + 1) for key, each in value.items()}
    raise TypeError(f"holds a {type(value).__name__}, which JSON has not")


def plain_number(value: Any) -> Any:
    """A number that is a tensor, such as the lr of a capturable optimizer, as Python's."""
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def state_kind(key: str) -> str:
    """The kind of an optimizer's state that torch calls `key`."""
    if key in ("exp_avg", "exp_avg_sq"):
        return key
    plain = re.sub(r"[^a-z0-9_]", "_", key.lower())[:64]
    return f"state.{plain}"


def rule_of(name: str) -> str:
    """Meron's name of an optimizer's class: "FusedAdamW" is "adamw"."""
    plain = name.lower().replace("_", "")
    for rule in ("adamw", "adagrad", "lion", "adam", "sgd"):
        if rule in plain:
            return rule
    return ""


class Stream:
    """One-dimensional tensors that together are one long tensor. Ranges of it can be taken."""

    def __init__(self, pieces: Iterable[torch.Tensor]) -> None:
        self.pieces = [piece.detach().reshape(-1) for piece in pieces]
        self.length = sum(piece.numel() for piece in self.pieces)

    def take(self, begin: int, count: int) -> Iterator[Part]:
        """Parts of elements [begin, begin + count), counted from `begin`; ValueError outside."""
        if begin + count > self.length:
            raise ValueError(f"elements {begin} to {begin + count} of {self.length}")
        at, done = 0, 0
        for piece in self.pieces:
            low = max(begin + done, at)
            high = min(begin + count, at + piece.numel())
            if low < high:
                yield Part(done, piece[low - at : high - at])
                done += high - low
            at += piece.numel()
