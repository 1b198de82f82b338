# SPDX-License-Identifier: Apache-2.0
"""An engine between phases of a program: memory that is released for another one, compilation."""

from __future__ import annotations

from typing import Any

from meron import errors
from meron.zero import offload_states
from meron.zero.facts import Facts


class Phases(Facts):
    """Attributes: those of Engine, which sets them."""

    is_compiled: bool
    _states_away: bool

    def empty_partition_cache(self) -> None:
        """Releases params that are unsharded for a use to come. Small ones stay readable."""
        self.sharding.drop()

    def offload_states(
        self,
        include: Any = None,
        device: Any = "cpu",
        pin_memory: bool = True,
        non_blocking: bool = False,
        nvme_path: str | None = None,
    ) -> None:
        """Moves states off memory until `reload_states`, for a phase that needs it. Local.

        Blocks on this rank's drive. The model can be run meanwhile, and not trained.

        Args:
            include: of "optim_states", "hp_params", "lp_params", "lp_grads" and
                "contiguous_grad_buffer"; None is all. The first two go, and together.
            device: "nvme", which DeepSpeed does not take here, for an optimizer of Meron's; "cpu"
                is where they reside, and moves nothing.
            pin_memory, non_blocking: without effect.
            nvme_path: a folder on a drive; None is `nvme_path` of the config's offload_optimizer or
                offload_param, whatever their device is.

        Raises ArgumentError, StateError (they are offloaded), UnsupportedError (nvme for an
        optimizer of torch's own, or without any), NoSpaceError, InputOutputError: they stay where
        they were.
        """
        self._require_alive("offload_states")
        folder = self.config.offload.folder() if nvme_path is None else nvme_path
        if offload_states.offload(self.optimizer, include, device, folder):
            self._states_away = True

    def reload_states(self, non_blocking: bool = False) -> None:
        """Restores the states that `offload_states` moved, bit for bit. Local.

        Blocks on this rank's drive. Raises InputOutputError, CorruptError, OutOfMemoryError: the
        states then stay offloaded.
        """
        self._require_alive("reload_states")
        if self._states_away:
            offload_states.rule_of(self.optimizer).engine.reload()
            self._states_away = False

    def compile(
        self,
        backend: Any = "inductor",
        compile_kwargs: dict[str, Any] | None = None,
        schedule: Any = None,
        compiled_autograd_enabled: bool = False,
    ) -> None:
        """torch.compile of the model, in place: `engine.module.compile(backend=backend)`.

        Modules that own params are compiled one by one, with a graph break around each.

        Args:
            backend: of torch.compile, a name or a function.
            compile_kwargs: further arguments of torch.compile.

        Raises UnsupportedError for `schedule` and `compiled_autograd_enabled`, which steer
        DeepCompile's passes.
        """
        self._require_alive("compile")
        if schedule is not None or compiled_autograd_enabled:
            raise errors.UnsupportedError(
                "Meron does not have: DeepCompile's schedule and compiled autograd",
                subject="schedule" if schedule is not None else "compiled_autograd_enabled",
                advice="Leave it out: Meron prefetches by the order of the last pass.",
            )
        self.module.compile(backend=backend, **(compile_kwargs or {}))
        self.is_compiled = True
