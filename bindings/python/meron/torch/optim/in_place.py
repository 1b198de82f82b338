# SPDX-License-Identifier: Apache-2.0
"""Optimizers of torch that update bf16 values themselves, without f32 ones.

A rule of torch computes in the dtype of its tensors and rounds to nearest. In bf16 a moment that
should decay by less than 1/512 of itself stays, so that steps are too small for ever. Here a rule
sees one param at a time in f32, and what it leaves is rounded.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from meron import errors

# The key of a param group that counts its steps: the seed of the coins. Checkpoints have it as any
# option of a group, so a run that is resumed tosses the coins of one that was not.
COUNT = "rounded_steps"
CHUNK = 1 << 16  # elements that are rounded at a time; a divisor of 2**32
WORD = (1 << 64) - 1


@dataclass(frozen=True)
class InPlace:
    """How an optimizer of torch updates bf16 values themselves, rather than f32 copies of them.

    Each step computes in f32 and rounds the results. Rounding at random goes up or down so that the
    mean is exact. The seed is the param's place in the groups, the state's name, the element's
    number and the number of steps: every run and every number of ranks has the same bits.

    Attributes:
        states: the dtype of states between steps: torch.bfloat16, rounded at random, or
            torch.float32.
        values: "random", or "nearest": a change below 1/512 of a value is then rounded away.
    """

    states: torch.dtype = torch.bfloat16
    values: str = "random"

    def __post_init__(self) -> None:
        if self.states not in (torch.bfloat16, torch.float32):
            raise errors.argument(
                f"states of InPlace is {self.states!r}",
                subject="states",
                advice="Pass torch.bfloat16 or torch.float32.",
            )
        if self.values not in ("random", "nearest"):
            raise errors.argument(
                f"values of InPlace is {self.values!r}",
                subject="values",
                advice="Pass 'random' or 'nearest'.",
            )


class InPlaceRule:
    """An optimizer's rule, and its bf16 parts, which it updates one after the other.

    `begins`: the parts, and of each the number of its first element in the param.
    `gradients`: of each part that has one in this step, f32; the caller fills it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, how: InPlace) -> None:
        step: Any = type(optimizer).step
        # Without hooks, which count steps.
        self.rule: Callable[[Any], Any] = step.__wrapped__ if hasattr(step, "hooked") else step
        self.how = how
        self.begins: dict[torch.Tensor, int] = {}
        self.gradients: dict[torch.Tensor, torch.Tensor] = {}

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer, plain_step: Callable[[], Any]) -> None:
        """One step. `plain_step` updates the other params and runs the optimizer's hooks. Local."""
        gradients, self.gradients = self.gradients, {}
        groups = optimizer.param_groups
        before = [dict(group) for group in groups]
        plain_step()
        for number, (group, options) in enumerate(zip(groups, before)):
            group[COUNT] = count = int(options.get(COUNT, 0)) + 1
            for i, part in enumerate(group["params"]):
                if part not in gradients:
                    continue
                optimizer.param_groups = [{**options, "params": [part]}]
                try:
                    self._update(optimizer, part, gradients[part], f"{count} {number} {i}")
                finally:
                    optimizer.param_groups = groups

    def _update(
        self,
        optimizer: torch.optim.Optimizer,
        part: torch.Tensor,
        gradient: torch.Tensor,
        seed: str,
    ) -> None:
        low, begin = part.data, self.begins[part]
        kept = {
            key: value
            for key, value in optimizer.state.get(part, {}).items()
            if is_elementwise(value, low) and value.dtype.itemsize == 2
        }
        for key, value in kept.items():
            optimizer.state[part][key] = value.float()
        try:
            part.data = low.float()
            part.grad = gradient
            self.rule(optimizer)
        except BaseException:
            optimizer.state.get(part, {}).update(kept)
            raise
        else:
            round_to(low, part.data, self.how.values, seed, begin)
            for key, value in optimizer.state.get(part, {}).items():
                if self.how.states is torch.bfloat16 and is_elementwise(value, low):
                    out = kept.get(key)
                    if out is None:
                        out = torch.empty_like(value, dtype=torch.bfloat16)
                    round_to(out, value, "random", f"{seed} {key}", begin)
                    optimizer.state[part][key] = out
        finally:
            part.grad = None
            part.data = low


def is_elementwise(value: Any, part: torch.Tensor) -> bool:
    """True for a floating state that has a value for each element."""
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.shape == part.shape
        and value.dim() > 0
    )


def keep_f32_states(optimizer: torch.optim.Optimizer, given: dict[str, Any]) -> None:
    """After torch's load_state_dict of `given`, which rounds states to the dtype of a part."""
    numbers = [number for group in given["param_groups"] for number in group["params"]]
    parts = [part for group in optimizer.param_groups for part in group["params"]]
    for number, part in zip(numbers, parts):
        for key, value in given["state"].get(number, {}).items():
            if is_elementwise(value, part):
                optimizer.state[part][key] = copy.deepcopy(value).to(part.device, torch.float32)


# ---- Rounding -----------------------------------------------------------------------------------


def round_to(out: torch.Tensor, values: torch.Tensor, how: str, seed: str, begin: int) -> None:
    """Writes f32 values into a bf16 tensor, both flat and in the host's memory.

    Args:
        how: "nearest" or "random".
        seed: of the coins; `begin` is the number of the first element, which they depend on too.
    """
    if how == "nearest":
        out.copy_(values)
        return
    number = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "little")
    bits = values.detach().float().contiguous().numpy().view(np.uint32)
    # A view of memory that the engine has is contiguous, as are states that were made here.
    to = out.detach().view(torch.int16).numpy().view(np.uint16)
    at, end = begin, begin + len(bits)
    while at < end:
        upto = min(end, (at // CHUNK + 1) * CHUNK)
        own = slice(at - begin, upto - begin)
        to[own] = bf16_at_random(bits[own], coins(number, at, upto - at))
        at = upto


def bf16_at_random(
    bits: npt.NDArray[np.uint32], below: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    """The upper halves of f32 values after the coins were added below the cut, as
    kernels/cpu/state_code.h has it. NaN stays NaN, infinity stays infinity."""
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    rounded: npt.NDArray[np.uint32] = np.where(nan, bits | np.uint32(0x400000), bits + below)
    return rounded >> np.uint32(16)


def coins(seed: int, first: int, count: int) -> npt.NDArray[np.uint32]:
    """16 random bits for each of some elements, by their numbers: the hash of
    kernels/cpu/quant_block.h. They do not cross a multiple of 2**32."""
    key = (seed + 0x9E3779B97F4A7C15 * ((first >> 32) + 1)) & WORD
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & WORD
    key ^= key >> 31
    lower = first & 0xFFFFFFFF
    x = np.arange(count, dtype=np.uint32) + np.uint32(lower)
    x ^= np.uint32(key & 0xFFFFFFFF)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    x = ((x ^ (x >> np.uint32(15))) + np.uint32(key >> 32)) * np.uint32(0x735A2D97)
    x ^= x >> np.uint32(15)
    return x >> np.uint32(16)
