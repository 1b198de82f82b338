# SPDX-License-Identifier: Apache-2.0
"""Saves checkpoints while training continues, and resumes from them."""

from __future__ import annotations

import math

import meron
from common.command_line import BadInput

from .train import Trainer


class Saver:
    """Saves checkpoints as --save and --save-every say, in the background."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._saving: meron.Future | None = None

    def __call__(self, step: int, loss: float) -> None:
        """After a step: begins to save if it is due, once the save before has ended.

        The next step waits only until its states are copied. The save also keeps the state of the
        run that Meron does not have: the choice of examples depends on the seed and on the number
        of micro-batches of all ranks.
        """
        trainer, options = self._trainer, self._trainer.options
        every = options.save_every
        if not options.save or not (step == options.steps or (every and step % every == 0)):
            return
        self.finish()
        self._saving = trainer.context.save_begin(
            options.save,
            f"step-{step:06}",
            [trainer.optimizer],
            step=step,
            keep=2,
            overwrite=True,  # of a run that went on from an earlier step
            extra={
                "micro_batches": trainer.micro_batches(step),
                "seed": options.seed,
                "loss": loss if math.isfinite(loss) else None,  # JSON has no NaN
            },
        )

    def finish(self) -> None:
        """Waits until the last save has ended."""
        if self._saving is not None:
            self._saving.wait()
        self._saving = None


def resume(trainer: Trainer) -> str:
    """Loads the newest complete checkpoint of --resume, whatever number of ranks and plan saved it.

    Sets the state from which train() continues, and returns a description of the checkpoint.
    Collective. Raises BadInput on all ranks if there is no checkpoint.
    """
    folder, steps = trainer.options.resume, trainer.options.steps
    try:
        loaded = trainer.context.load(folder, optimizers=[trainer.optimizer])
    except meron.Error as error:
        raise BadInput(f"--resume {folder}: {error}") from error
    with loaded:
        position = loaded.extra.get("micro_batches")
        if not isinstance(position, int):
            raise BadInput(f"--resume {folder}: {loaded.path} was not saved by this program")
        if loaded.step >= steps:
            raise BadInput(
                f"--resume {folder}: step {loaded.step} was saved, and --steps {steps} is no more; "
                "raise it"
            )
        trainer.first, trainer.position = loaded.step, position
        many = "" if loaded.world == 1 else "s"
        return f"resumed step {loaded.step} of {loaded.path}, saved by {loaded.world} rank{many}"
