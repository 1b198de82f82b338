# SPDX-License-Identifier: Apache-2.0
"""Copies of a module, averages of weights, and Trainers beside each other."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import weakref
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from lightning.fabric.accelerators import CUDAAccelerator as FabricCUDA
from lightning.pytorch import Callback
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.accelerators import CUDAAccelerator as CUDA
from modules import Gan, Regression, distance, fit, loader, trainer

import meron
import meron.torch as mt
from meron.lightning import MeronFabricStrategy, MeronStrategy

pytestmark = pytest.mark.ranks(2)


class Average(Callback):
    """An exponential average of the module's state dict, as users write it."""

    def on_train_start(self, _trainer: Any, module: Any) -> None:
        self.model = copy.deepcopy(module)

    def on_train_batch_end(self, _trainer: Any, module: Any, *_: Any) -> None:
        new = module.state_dict()  # collective at every stage
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.mul_(0.9).add_(new[name], alpha=0.1)


def test_averages_weights_as_ddp() -> None:
    of_plain = Average()
    plain, _ = fit("ddp", callbacks=[of_plain])
    for stage in (1, 2, 3):
        average = Average()
        module, _ = fit(f"meron_stage_{stage}", callbacks=[average])
        assert distance(module, plain) == 0 == distance(average.model, of_plain.model)
        assert average.model._trainer is None and not hasattr(average.model.net[0].bias, "ds_id")
        fit("meron_stage_2", average.model)  # the copy trains as any module
        fit(f"meron_stage_{stage}", module)


class Own(Regression):
    def configure_optimizers(self) -> Any:
        return mt.AdamW(self.parameters(), lr=1e-2)


def test_rejects_copies_of_sharded_optimizers() -> None:
    class Copies(Callback):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            for each in (trainer.optimizers[0], module.optimizers()):
                with pytest.raises(meron.StateError, match="runs on shards"):
                    copy.deepcopy(each)
                with pytest.raises(meron.StateError, match="runs on shards"):
                    pickle.dumps(each)
            with pytest.raises(meron.StateError, match="state_dict"):
                pickle.dumps(module)
            pickle.dumps(trainer.optimizers[0].state_dict())

    for kind in (Regression, Own, Gan):
        module = kind()
        fit("meron_stage_2", module, callbacks=[Copies()])
        assert copy.deepcopy(module).state_dict().keys() == module.state_dict().keys()


def test_rejects_a_skipped_step() -> None:
    class Skips(Regression):
        def training_step(self, batch: Any, index: int) -> Any:
            loss = super().training_step(batch, index)
            return None if index == 2 else loss

    # Lightning raises it, or Meron if Lightning does not.
    with pytest.raises(Exception, match="Skipping"):
        fit("meron", Skips())


@pytest.mark.parametrize("is_fabric", [False, True])
def test_rejects_devices_that_are_not_the_ranks(is_fabric: bool) -> None:
    strategy = MeronFabricStrategy() if is_fabric else MeronStrategy()

    class MPSAccelerator:
        pass

    strategy._accelerator = MPSAccelerator()
    with pytest.raises(RuntimeError, match="MPSAccelerator"):
        strategy.setup_environment()
    for accelerator in (CUDA, FabricCUDA):
        strategy._accelerator = accelerator = Mock(spec=accelerator)
        strategy.parallel_devices = [torch.device("cuda", 1), torch.device("cuda", 3)]
        with pytest.raises(RuntimeError, match=re.escape("[1, 3]")):
            strategy.setup_environment()
        accelerator.setup_device.assert_called_once_with(strategy.root_device)
    with pytest.raises(ValueError, match="devices=2"):
        fit("meron", devices=5)


def test_runs_on_an_accelerator_of_a_class_of_the_caller() -> None:
    class Host(CPUAccelerator):
        """Its name is not that of Lightning's class."""

    plain, _ = fit("ddp")
    module, _ = fit("meron_stage_2", accelerator=Host())
    assert module.losses == plain.losses


def test_rejects_calls_before_setup() -> None:
    strategy = MeronStrategy()
    with pytest.raises(RuntimeError, match="no LightningModule"):
        strategy.training_step(None, 0)
    with pytest.raises(RuntimeError, match="no LightningModule"):
        strategy.lightning_module_state_dict()
    with pytest.raises(RuntimeError, match="no engine"):
        strategy.step(None)


def test_two_trainers_train_in_turn_and_free_dropped_models() -> None:
    first, second = Regression(), Regression(late=True)
    one, other = trainer("meron_stage_2"), trainer("meron_stage_3")
    one.fit(first, loader())
    other.fit(second, loader())
    one.fit(first, loader())  # this Trainer has reached max_epochs, so it does not train
    assert one.validate(first, loader(), verbose=False)
    assert other.test(second, loader(), verbose=False)
    gone = weakref.ref(first)
    del first, one
    gc.collect()
    assert gone() is None
    module, _ = fit("meron_stage_3")
    assert module.losses[-1] < module.losses[0]


def test_rejects_a_model_in_use_by_another_trainer() -> None:
    class Nested(Regression):
        def on_train_batch_end(self, *_: Any) -> None:
            if len(self.losses) == 1:
                trainer("meron_stage_2").validate(self, loader(), verbose=False)

    with pytest.raises(meron.StateError, match="in use by another Trainer"):
        fit("meron_stage_2", Nested())


def test_rejects_config_keys_of_a_newer_deepspeed() -> None:
    config = {"zero_optimization": {"stage": 2, "stage3_superfetch": 3}, "compile_v9": {}}
    with pytest.raises(meron.ArgumentError, match="stage3_superfetch"):
        MeronStrategy(config=config)
    with pytest.raises(meron.ArgumentError, match="compile_v9"):
        MeronStrategy(config=config)
