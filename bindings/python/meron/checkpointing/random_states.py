# SPDX-License-Identifier: Apache-2.0
"""Random numbers of a checkpointed function: the same in its recomputation as in its forward.

Also named generators for model parallelism (Megatron-LM, arXiv 1909.08053): dropout within a
tensor-parallel region draws different numbers on each rank of the model-parallel group, and equal
ones elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Union

import torch

from meron import errors

MODEL_PARALLEL = "model-parallel-rng"
# Added to a user's seed for the model-parallel generators, so that none of them has the seed of the
# default one (Megatron-LM's number).
SEED_OFFSET = 2718

Device = Union[str, torch.device, None]


def default_device() -> torch.device:
    """The device whose generator layers use by default: the current CUDA device, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def state_of(device: torch.device) -> torch.Tensor:
    """A copy of the state of a device's default generator."""
    if device.type == "cpu":
        return torch.get_rng_state()
    return torch.get_device_module(device).get_rng_state(device)  # type: ignore[no-any-return]


def set_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)


def seed_device(device: torch.device, seed: int) -> None:
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
        return
    module = torch.get_device_module(device)
    with module.device(device):
        module.manual_seed(seed)


class RNGStatesTracker:
    """Named generators. `fork` puts one in the place of the device's default generator.

        tracker = meron.checkpointing.get_cuda_rng_tracker()
        tracker.add("experts", seed=7)
        with tracker.fork("experts"):
            x = torch.nn.functional.dropout(x)

    The states are part of what a checkpointed function restores. One thread at a time uses it.

    Args:
        device: its default generator is replaced. None is the current CUDA device, or the CPU
            on a host without one.
    """

    def __init__(self, device: Device = None) -> None:
        self._device = None if device is None else torch.device(device)
        self._states: dict[str, torch.Tensor] = {}
        self._seeds: set[int] = set()
        self._forked: list[str] = []

    @property
    def device(self) -> torch.device:
        """The device whose default generator `fork` replaces."""
        return default_device() if self._device is None else self._device

    def reset(self) -> None:
        """Forgets all names and seeds. Raises StateError within `fork`."""
        if self._forked:
            raise errors.StateError(
                f"reset() of the random states within fork({self._forked[-1]!r})",
                subject=self._forked[-1],
                advice="Leave fork() first.",
            )
        self._states = {}
        self._seeds = set()

    def get_states(self) -> dict[str, torch.Tensor]:
        """A copy of the states by name, for a checkpoint."""
        return dict(self._states)

    def set_states(self, states: dict[str, torch.Tensor]) -> None:
        """Replaces all states by those of `get_states`."""
        self._states = dict(states)

    def add(self, name: str, seed: int) -> None:
        """A new generator. ArgumentError if the name or the seed is taken."""
        if name in self._states:
            raise errors.argument(
                f"a random state named {name!r} exists already",
                subject=name,
                advice="Take another name, or call reset() first.",
            )
        if seed in self._seeds:
            raise errors.argument(
                f"the seed {seed} of {name!r} is that of another random state, whose numbers would "
                "be the same",
                subject=name,
                advice="Take another seed.",
            )
        device = self.device
        before = state_of(device)
        seed_device(device, seed)
        self._states[name] = state_of(device)
        self._seeds.add(seed)
        set_state(device, before)

    @contextlib.contextmanager
    def fork(self, name: str = MODEL_PARALLEL) -> Iterator[None]:
        """Draws from the generator `name` within; it continues where it was left.

        Raises ArgumentError for an unknown name, and StateError if an outer fork uses the same
        generator and a fork of another generator is between them.
        """
        if name not in self._states:
            raise errors.argument(
                f"there is no random state named {name!r}; there are {sorted(self._states)}",
                subject=name,
                advice="Call add(name, seed), or model_parallel_cuda_manual_seed(seed), first.",
            )
        if self._forked and self._forked[-1] == name:  # it is in use: it goes on
            yield
            return
        if name in self._forked:
            raise errors.StateError(
                f"fork({name!r}) within fork({self._forked[-1]!r}) within fork({name!r})",
                subject=name,
                advice="Leave the inner fork first.",
            )
        device = self.device
        before = state_of(device)
        set_state(device, self._states[name])
        self._forked.append(name)
        try:
            yield
        finally:
            self._forked.pop()
            self._states[name] = state_of(device)
            set_state(device, before)


# The name in Megatron-LM and DeepSpeed.
CudaRNGStatesTracker = RNGStatesTracker

tracker = RNGStatesTracker()


def get_cuda_rng_tracker() -> RNGStatesTracker:
    """The tracker of this process, whose states checkpointed functions restore."""
    return tracker


class RandomStates:
    """The states of the generators that a function may draw from: the CPU's, those of the devices
    of its arguments, and the tracker's. (Not those of Python's `random` and of NumPy.)"""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        every = [torch.device("cpu"), *devices]
        self.states = {device: state_of(device) for device in every}
        self.named = tracker.get_states()

    def restore(self) -> None:
        for device, state in self.states.items():
            set_state(device, state)
        tracker.set_states(self.named)


@contextlib.contextmanager
def replayed(states: RandomStates) -> Iterator[None]:
    """Draws the same numbers again within the block, then restores the state from before it."""
    now = RandomStates(device for device in states.states if device.type != "cpu")
    states.restore()
    try:
        yield
    finally:
        now.restore()


def seed_model_parallel(seed: int, rank: int) -> None:
    """model_parallel_cuda_manual_seed, for a rank of the model-parallel group."""
    tracker.reset()
    seed_device(tracker.device, seed)
    tracker.add(MODEL_PARALLEL, seed + SEED_OFFSET + rank)


def reseed_model_parallel(seed: int, rank: int) -> None:
    """model_parallel_reconfigure_tp_seed, for a rank of the model-parallel group."""
    with tracker.fork():
        seed_device(tracker.device, seed + SEED_OFFSET + rank)
