# SPDX-License-Identifier: Apache-2.0
"""A model trains again after a run that failed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from modules import RANK, Gan, Regression, distance, fit, layers, mse

import meron
import meron.torch as mt
from meron.lightning import MeronStrategy
from meron.zero import Init, initialize

pytestmark = pytest.mark.ranks(2)


def strategy_of(**config: Any) -> Any:
    return MeronStrategy(config={"zero_optimization": {"stage": 2}, **config})


class Broken(Regression):
    """Its configure_optimizers calls `breaks`, if that is set."""

    breaks: Any = None

    def configure_optimizers(self) -> Any:
        made = super().configure_optimizers()
        return made if self.breaks is None else self.breaks(self)


def fail(_module: Any) -> None:
    raise ValueError("in configure_optimizers")


def fail_after_engine_optimizer(module: Any) -> None:
    module.__dict__["kept"] = mt.AdamW(module.parameters())
    raise ValueError("after the optimizer")


def fail_on_rank_1(module: Any) -> Any:
    if RANK == 1:
        raise ValueError("on rank 1 alone")
    return torch.optim.AdamW(module.parameters())


TRIES = {
    "unknown optimizer": lambda: strategy_of(optimizer={"type": "Adamm"}),
    "has no lrr": lambda: strategy_of(optimizer={"type": "AdamW", "params": {"lrr": 1}}),
    "unknown scheduler": lambda: strategy_of(
        optimizer={"type": "AdamW"}, scheduler={"type": "Warmup"}
    ),
    "scheduler WarmupLR": lambda: strategy_of(
        optimizer={"type": "AdamW"}, scheduler={"type": "WarmupLR", "params": {"steps": 3}}
    ),
    "warmup_num_steps": lambda: strategy_of(
        optimizer={"type": "AdamW"},
        scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": -3}},
    ),
    "unknown config key": lambda: strategy_of(zero_optimisation={"stage": 2}),
    "loss_scale": lambda: strategy_of(fp16={"enabled": True, "loss_scale": "high"}),
    "zero_optimization.stage": lambda: MeronStrategy(stage="three"),
    "not 'x'": lambda: MeronStrategy(loss_scale="x"),
    "bf16": lambda: strategy_of(fp16={"enabled": True}, bf16={"enabled": True}),
}
WAYS = {
    "in configure_optimizers": fail,
    "LBFGS": lambda module: torch.optim.LBFGS(module.parameters()),
    "after the optimizer": fail_after_engine_optimizer,
    "on rank 1 alone": fail_on_rank_1,
    "does not have": lambda module: torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0),
}


def refuses(text: str, strategy: Any, module: Any) -> None:
    with pytest.raises(Exception, match=re.escape(text)):
        fit(strategy() if callable(strategy) else strategy, module)


def test_a_failed_setup_leaves_the_model_usable() -> None:
    plain, _ = fit("ddp")
    for late in (False, True):
        module = Broken(late)
        for text, strategy in TRIES.items():
            refuses(text, strategy, module)
        for text, way in WAYS.items():
            module.breaks = way
            for stage in (1, 3):
                refuses(text, f"meron_stage_{stage}", module)
        module.breaks = None
        module.losses.clear()
        fit("meron_stage_2", module)
        assert module.losses == plain.losses and distance(module, plain) == 0


def test_a_model_trains_on_at_another_stage_and_precision() -> None:
    """Each run begins with the f32 values of the last."""
    plain = Regression()
    for _ in range(4):
        fit("ddp", plain)
    module = Regression()
    for stage in (3, 1, 2, 3):
        fit(f"meron_stage_{stage}", module)
    assert module.losses == plain.losses and distance(module, plain) == 0
    fit("meron_stage_2", module, precision="bf16-mixed")
    exact = {name: mt.full_param(each) for name, each in module.named_parameters()}
    assert {each.dtype for each in exact.values()} == {torch.bfloat16}
    fit("meron_stage_1", module)
    assert {each.dtype for each in module.state_dict().values()} == {torch.float32}
    assert module.losses[-1] < module.losses[0]


def test_thawed_params_train_in_the_next_run() -> None:
    module = Regression()
    module.net[0].requires_grad_(False)
    before = module.net[0].weight.detach().clone()
    fit("meron_stage_3", module)
    assert torch.equal(module.state_dict()["net.0.weight"], before)
    module.requires_grad_(True)
    fit("meron_stage_3", module)
    assert not torch.equal(module.state_dict()["net.0.weight"], before)


def test_rejects_another_stage_for_a_model_that_the_caller_sharded() -> None:
    module = Regression()
    mt.shard(module.net, plan="zero3")
    with pytest.raises(meron.StateError, match="the strategy asks for stage 1"):
        fit("meron_stage_1", module)
    config = {"zero_optimization": {"stage": 3}}
    module = Regression()
    Init(module=module, config_dict_or_path=config)
    fit("meron_stage_2", module)


def test_a_model_trains_at_another_stage_after_a_failure_in_each_hook() -> None:
    class Failing(Regression):
        at = "training_step"

        def fail(self, where: str) -> None:
            if where and self.at == where:
                raise ValueError(where)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = super().training_step(batch, index)
            self.fail("training_step" if index == 1 else "")
            return loss

        def on_after_backward(self) -> None:
            self.fail("on_after_backward")

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.fail("on_before_optimizer_step")

        def on_train_start(self) -> None:
            self.fail("on_train_start")

        def on_validation_epoch_end(self) -> None:
            self.fail("on_validation_epoch_end")

        def on_train_end(self) -> None:
            self.fail("on_train_end")

    module = Failing()
    places = [name for name in vars(Failing) if name.startswith("on_")] + ["training_step"]
    for number, place in enumerate(places):
        module.at = place
        name = f"meron_stage_{number % 3 + 1}"
        with pytest.raises(ValueError, match=place):
            fit(name, module, validates=True)
    module.at = ""
    fit("meron_stage_3", module, validates=True)
    assert module.losses[-1] < module.losses[0]


def test_a_gan_trains_as_ddp_after_a_failure() -> None:
    module = Gan()
    with pytest.raises(Exception, match="loss_scale"):
        fit("meron", module, precision="16-true")
    plain, _ = fit("ddp_find_unused_parameters_true", Gan())
    fit("meron_stage_3", module)
    assert module.losses == plain.losses


def test_initialize_checks_names_before_it_shards() -> None:
    model = layers()
    for text, config in (
        ("Adamm", {"optimizer": {"type": "Adamm"}}),
        ("Warmup", {"optimizer": {"type": "AdamW"}, "scheduler": {"type": "Warmup"}}),
    ):
        config["zero_optimization"] = {"stage": 2}
        with pytest.raises(meron.ArgumentError, match=text):
            initialize(model=model, config=config)
        assert not any(hasattr(param, "ds_id") for param in model.parameters())


class ByHand(Regression):
    """Manual optimization. Rank 1 forgets manual_backward once."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        loss = mse(self(batch[0]).float(), batch[1].float())
        (loss.backward if RANK == 1 and index == 2 else self.manual_backward)(loss)
        self.optimizers().step()


def test_names_the_rank_that_forgets_the_loss_scale() -> None:
    for stage in (1, 2, 3):
        with pytest.raises(meron.StateError, match="not scaled on rank 1"):
            fit(f"meron_stage_{stage}", ByHand(), precision="16-true")
    config = {
        "fp16": {"enabled": True}, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}
    }  # fmt: skip
    engine = initialize(model=layers(), config=config)[0]

    def step(forgets: bool) -> None:
        loss = engine(torch.ones(2, 16).half()).sum()
        (loss if forgets else engine.scale(loss)).backward()
        engine.step()

    step(False)
    with pytest.raises(meron.StateError, match="not scaled on rank 1"):
        step(RANK == 1)
    with pytest.raises(meron.StateError, match="not scaled on ranks 0, 1"):
        step(True)
    step(False)
    assert engine.global_steps == 2
    engine.destroy()
