# SPDX-License-Identifier: Apache-2.0
"""Copies of a module and of its optimizers, averages of weights, and other things that users of a
Trainer do beside training."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import torch
from lightning.pytorch import Callback
from modules import Gan, Regression, distance, fit, loader, raises, run_cases, trainer

import meron.torch as mt
from meron.lightning import MeronStrategy


class Average(Callback):
    """An exponential average as users write it: of a copy of the module, by its state dict."""

    def on_train_start(self, _trainer: Any, module: Any) -> None:
        self.model = copy.deepcopy(module)

    def on_train_batch_end(self, _trainer: Any, module: Any, *_: Any) -> None:
        new = module.state_dict()  # collective at every stage
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.mul_(0.9).add_(new[name], alpha=0.1)


def case_an_average_of_weights_as_under_ddp() -> None:
    of_plain = Average()
    plain, _ = fit("ddp", callbacks=[of_plain])
    for stage in (1, 2, 3):
        average = Average()
        module, _ = fit(f"meron_stage_{stage}", callbacks=[average])
        assert distance(module, plain) == 0 == distance(average.model, of_plain.model)
        assert average.model._trainer is None and not hasattr(average.model.net[0].bias, "ds_id")
        fit("meron_stage_2", average.model)  # a module like any other
        fit(f"meron_stage_{stage}", module)  # and the first one trains on


class Own(Regression):
    def configure_optimizers(self) -> Any:
        return mt.AdamW(self.parameters(), lr=1e-2)


def case_copies_that_are_refused() -> None:
    class Copies(Callback):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            for each in (trainer.optimizers[0], module.optimizers()):
                raises("StateError", "runs on shards", lambda each=each: copy.deepcopy(each))
                raises("StateError", "runs on shards", lambda each=each: pickle.dumps(each))
            raises("StateError", "state_dict", lambda: pickle.dumps(module))
            pickle.dumps(trainer.optimizers[0].state_dict())

    for kind in (Regression, Own, Gan):
        module = kind()
        fit("meron_stage_2", module, callbacks=[Copies()])
        assert copy.deepcopy(module).state_dict().keys() == module.state_dict().keys()


def case_a_step_that_is_skipped() -> None:
    class Skips(Regression):
        def training_step(self, batch: Any, index: int) -> Any:
            loss = super().training_step(batch, index)
            return None if index == 2 else loss

    # Lightning's own refusal, or ours where it has none.
    raises("Exception", "Skipping", lambda: fit("meron", Skips()))


def case_wrong_devices() -> None:
    strategy = MeronStrategy()

    class CUDAAccelerator:
        pass

    class MPSAccelerator:
        pass

    strategy._accelerator = MPSAccelerator()
    raises("RuntimeError", "MPSAccelerator", strategy.setup_environment)
    strategy._accelerator = CUDAAccelerator()
    strategy.parallel_devices = [torch.device("cuda", 1), torch.device("cuda", 3)]
    raises("RuntimeError", "[1, 3]", strategy.setup_environment)
    raises("ValueError", "devices=2", lambda: fit("meron", devices=5))


def case_calls_out_of_order() -> None:
    strategy = MeronStrategy()
    raises("RuntimeError", "no LightningModule", lambda: strategy.training_step(None, 0))
    raises("RuntimeError", "no LightningModule", strategy.lightning_module_state_dict)
    raises("RuntimeError", "no engine", lambda: strategy.step(None))


def case_two_trainers_and_models_that_are_dropped() -> None:
    first, second = Regression(), Regression(late=True)
    one, other = trainer("meron_stage_2"), trainer("meron_stage_3")
    one.fit(first, loader())
    other.fit(second, loader())
    one.fit(first, loader())  # the same Trainer again: it is at its end, and trains no more
    assert one.validate(first, loader(), verbose=False)
    assert other.test(second, loader(), verbose=False)
    gone = weakref.ref(first)
    del first, one
    gc.collect()
    assert gone() is None
    module, _ = fit("meron_stage_3")
    assert module.losses[-1] < module.losses[0]


def case_a_model_in_use_by_another_trainer() -> None:
    class Nested(Regression):
        def on_train_batch_end(self, *_: Any) -> None:
            if len(self.losses) == 1:
                trainer("meron_stage_2").validate(self, loader(), verbose=False)

    raises("StateError", "in use by another Trainer", lambda: fit("meron_stage_2", Nested()))


def case_a_config_of_a_newer_deepspeed() -> None:
    config = {"zero_optimization": {"stage": 2, "stage3_superfetch": 3}, "compile_v9": {}}
    raises("ArgumentError", "stage3_superfetch", lambda: MeronStrategy(config=config))
    raises("ArgumentError", "compile_v9", lambda: MeronStrategy(config=config))


if __name__ == "__main__":
    run_cases(dict(globals()))
