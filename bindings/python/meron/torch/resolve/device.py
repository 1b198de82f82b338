# SPDX-License-Identifier: Apache-2.0
"""The device on which a module is trained: the caller's choice, else that of its params."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

import meron
from meron import errors
from meron.torch.ranks import local_rank
from meron.torch.sharding import unit_of

DEVICE_VARIABLE = "MERON_TORCH_DEVICE"
HOST = ("", "cpu", "host")


def device_name(asked: str | torch.device, source: str = "device") -> str:
    """A device as meron.open takes it; "" is the host.

    Raises ArgumentError for one that torch or Meron does not have.
    """
    text = str(asked)
    if text in (*HOST, "cpu:0"):
        return ""
    if text == "emulated":
        return text
    kind, _, index = text.partition(":")
    if kind != "cuda" or (index and not index.isdecimal()):
        raise errors.argument(
            f"{source} is {text!r}: Meron trains on 'cpu', 'cuda' or 'cuda:N' (and 'emulated', for "
            "tests)",
            source,
        )
    if not torch.cuda.is_available():
        why = "is built for the CPU" if torch.version.cuda is None else "finds no CUDA device"
        raise errors.argument(
            f"{source} is {text!r}, and this PyTorch ({torch.__version__}) {why}",
            source,
            "Install PyTorch for CUDA where there is an NVIDIA GPU, or leave the device out to "
            "train on the CPU.",
        )
    number = int(index) if index else torch.cuda.current_device()
    if number >= torch.cuda.device_count():
        raise errors.argument(
            f"{source} is {text!r}: there are {torch.cuda.device_count()} devices, from cuda:0 on",
            source,
            "CUDA_VISIBLE_DEVICES may hide devices.",
        )
    return f"cuda:{number}"


def asked_device(asked: str | torch.device | None) -> str | None:
    """The caller's choice, or else MERON_TORCH_DEVICE; None if neither is set."""
    if asked is not None:
        return device_name(asked)
    given = os.environ.get(DEVICE_VARIABLE)
    return None if given is None else device_name(given, DEVICE_VARIABLE)


def device_for(
    modules: Iterable[torch.nn.Module],
    asked: str | torch.device | None = None,
    ignored: Iterable[torch.nn.Parameter] = (),
) -> str:
    """The device of some modules, as meron.open takes it; "" is the host.

    In this order: `asked`; the device of parts that are sharded; that of their params, if on CUDA;
    MERON_TORCH_DEVICE; for params on meta, the current CUDA device of a rank that a launcher
    started. Raises ArgumentError naming a param that does not fit.
    """
    left_out = {id(param) for param in ignored}
    places: dict[torch.device, str] = {}
    sharded: tuple[str, str] | None = None  # the device and name of a param
    for module in modules:
        for name, param in module.named_parameters():
            place = unit_of(param)
            if place is not None:
                unit, i = place
                sharded = unit.sharding.context.device, f"{unit.name}.{unit.names[i]}"
            elif id(param) not in left_out:
                places.setdefault(param.device, f"{type(module).__name__}.{name}")
    meta = torch.device("meta")
    built = {device: name for device, name in places.items() if device != meta}
    if len(built) > 1:
        (first, one), (second, other) = list(built.items())[:2]
        raise errors.argument(
            f"{one} is on {first}, and {other} on {second}: a module is sharded from one device",
            subject=other,
            advice=f"Move all of it before sharding (module.to('{first}')), or leave params "
            "out with ignored_params.",
        )
    lies, name = next(iter(built.items()), (None, ""))
    chosen = None if asked is None else device_name(asked)
    if sharded is not None:
        if chosen not in (None, sharded[0]):
            raise errors.argument(
                f"{sharded[1]} was sharded for {sharded[0] or 'the CPU'}, and device is {asked}",
                subject="device",
                advice="Use one device for all submodules, in zero.Init and initialize too.",
            )
        chosen = sharded[0]
    if chosen is None and lies is not None and lies.type == "cuda":
        chosen = f"cuda:{lies.index}"
        given = os.environ.get(DEVICE_VARIABLE)
        if given is not None and (wanted := device_name(given, DEVICE_VARIABLE)) != chosen:
            refuse_place(name, lies, wanted)
    if chosen is None:
        chosen = asked_device(None)
    if chosen is None:
        started = meta in places and lies is None and local_rank() is not None
        chosen = device_name("cuda") if started and torch.cuda.is_available() else ""
    if lies is not None:
        check_place(name, lies, chosen)
    return chosen


def new_device(asked: str | torch.device | None) -> str:
    """The device of modules that are not built yet, of a program in DeepSpeed's names: `asked`;
    MERON_TORCH_DEVICE; on a rank that a launcher started, the CUDA device of its number on the
    host. As in DeepSpeed, that becomes the current one. If there is no such device, because each
    rank only sees its own, the current one stays."""
    chosen = asked_device(asked)
    if chosen is not None:
        return chosen
    number = local_rank()
    if number is None or not torch.cuda.is_available():
        return ""
    if number < torch.cuda.device_count():
        torch.cuda.set_device(number)
    return device_name("cuda")


def check_place(name: str, lies: torch.device, device: str) -> None:
    """ArgumentError for a param in a place that a context of `device` does not accept. It accepts
    params on its own device, on the CPU, and on meta."""
    if lies.type not in ("cpu", "meta") and str(lies) != device:
        refuse_place(name, lies, device)


def refuse_place(name: str, lies: torch.device, device: str) -> None:
    raise errors.argument(
        f"{name} is on {lies}, and the rank computes on {device or 'the CPU'}",
        subject=name,
        advice=f"Move the module there before sharding, or pass device='{lies}'."
        if lies.type == "cuda"
        else "Move the module to the CPU or to a CUDA device before sharding.",
    )


def context_device(context: meron.Context | None, device: Any) -> Any:
    """`device`, or the device of the context if one is given."""
    if context is None:
        return device
    own = context.device or "cpu"
    if device is not None and device_name(device) != device_name(own):
        raise errors.argument(
            f"device is {device}, and the context that was given computes on {own}",
            subject="device",
            advice="Leave the device out, or give a context that was opened with it.",
        )
    return own
