# SPDX-License-Identifier: Apache-2.0
"""MeronStrategy trains as DDP does: equal losses, metrics and hooks."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    GradientAccumulationScheduler,
    LearningRateMonitor,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.model_summary import ModelSummary
from modules import (
    RANK,
    Gan,
    Normed,
    Regression,
    Untoggled,
    distance,
    fit,
    loader,
    trainer,
)
from torch import nn

import meron
import meron.torch as mt
from meron.lightning import MeronPrecision, MeronStrategy
from meron.lightning import grad_norm as sharded_norm
from meron.lightning.optimizers import clip_norm
from meron.lightning.settings import NAMES

pytestmark = pytest.mark.ranks(2)

STAGES = ("meron_stage_1", "meron_stage_2", "meron_stage_3")


def test_each_strategy_name_trains_as_ddp() -> None:
    plain, of_plain = fit("ddp", validates=True)
    for name in NAMES:
        if name.endswith("nvme"):
            continue
        module, of_module = fit(name, validates=True)
        assert module.losses == plain.losses, name
        assert of_module.callback_metrics == of_plain.callback_metrics, name
        assert distance(module, plain) == 0, name
        assert module.__dict__["hooks"] == plain.__dict__["hooks"], name
        assert of_module.global_step == of_plain.global_step


def test_configure_model_builds_in_shards() -> None:
    plain, _ = fit("ddp")
    module, _ = fit("meron_stage_3", Regression(late=True))
    assert module.losses == plain.losses
    assert ModelSummary(module).total_parameters == ModelSummary(plain).total_parameters > 1000


def on_nvme(folder: Path) -> Any:
    return MeronStrategy(**NAMES["meron_stage_3_offload_nvme"][1], nvme_path=str(folder))


def test_nvme_offload_trains_as_ddp(tmp_path: Path) -> None:
    plain, _ = fit("ddp")
    module, made = fit(on_nvme(tmp_path), Regression(late=True))
    assert isinstance(made.optimizers[0], mt.AdamW)
    assert distance(module, plain) < 1e-6
    assert made.optimizers[0].param_groups[0]["lr"] == 1e-2 / 8  # the scheduler followed


def test_nvme_offload_trains_under_a_scheduler_that_cycles_betas(tmp_path: Path) -> None:
    class Cycled(Regression):
        """Its scheduler adds keys to the param groups."""

        def configure_optimizers(self) -> object:
            rule = torch.optim.Adam(
                self.parameters(), lr=1e-2, weight_decay=0.5, decoupled_weight_decay=True
            )
            cycle = torch.optim.lr_scheduler.OneCycleLR(rule, 1e-2, total_steps=6)
            return [rule], [{"scheduler": cycle, "interval": "step"}]

    plain, _ = fit("ddp", Cycled())
    assert distance(fit(on_nvme(tmp_path), Cycled(late=True))[0], plain) < 1e-6


def test_nvme_offload_rejects_groups_of_different_weight_decay(tmp_path: Path) -> None:
    class Mixed(Regression):
        def configure_optimizers(self) -> object:
            groups = [{"params": [each]} for each in self.parameters()]
            groups[0]["decoupled_weight_decay"] = True
            return torch.optim.Adam(groups, lr=1e-2, weight_decay=0.5)

    with pytest.raises(meron.UnsupportedError, match="decoupled_weight_decay"):
        fit(on_nvme(tmp_path), Mixed())


def test_running_statistics_are_those_of_rank_0() -> None:
    plain, of_plain = fit("ddp", Normed(), validates=True)
    module, of_module = fit("meron_stage_2", Normed(), validates=True)
    assert of_module.callback_metrics["val"] == of_plain.callback_metrics["val"]
    assert distance(module, plain) == 0


# Six batches: the second window has two.
SHORT_WINDOWS = {"accumulate_grad_batches": 4, "max_epochs": 2}


def test_accumulates_gradients_as_ddp() -> None:
    options = SHORT_WINDOWS
    plain, of_plain = fit("ddp", **options)
    for name in STAGES:
        module, made = fit(name, **options)
        assert distance(module, plain) <= (0 if name == STAGES[0] else 1e-6), name
        assert made.global_step == of_plain.global_step == 4


def test_the_engine_counts_micro_batches() -> None:
    seen = []

    class Counting(Regression):
        def on_train_end(self) -> None:
            seen.append(self.trainer.strategy.deepspeed_engine.global_steps)

    fit(MeronStrategy(gradient_accumulation="engine"), Counting(), **SHORT_WINDOWS)
    assert seen == [3]
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.05}
    plain, _ = fit("ddp", **options)  # clips complete gradients only
    module, _ = fit(MeronStrategy(gradient_accumulation="engine"), **options)
    assert distance(module, plain) < 1e-6


def test_accumulation_windows_change_between_epochs() -> None:
    windows = [GradientAccumulationScheduler({0: 1, 1: 2})]
    plain, _ = fit("ddp", max_epochs=2, callbacks=windows)
    module, _ = fit("meron", max_epochs=2, callbacks=windows)
    assert distance(module, plain) < 1e-6
    with pytest.raises(MisconfigurationException, match="one number of micro-batches"):
        fit(MeronStrategy(gradient_accumulation="engine"), callbacks=windows)


def test_clips_gradients_as_ddp() -> None:
    for algorithm, limit, most in (("norm", 0.05, 1e-6), ("value", 0.01, 0.0)):
        options = {"gradient_clip_val": limit, "gradient_clip_algorithm": algorithm}
        plain, _ = fit("ddp", **options)
        for name in STAGES:
            assert distance(fit(name, **options)[0], plain) <= most


def test_the_config_clips_gradients() -> None:
    plain, _ = fit("ddp", gradient_clip_val=0.05)
    config = {"zero_optimization": {"stage": 2}, "gradient_clipping": 0.05}
    assert distance(fit(MeronStrategy(config=config))[0], plain) < 1e-6
    with pytest.raises(MisconfigurationException, match="gradient_clip_val"):
        fit(MeronStrategy(config=config), gradient_clip_val=1.0)


def test_trains_in_16_bits() -> None:
    for precision, dtype in (("bf16-mixed", torch.bfloat16), ("16-true", torch.float16)):
        for name in ("meron_stage_1", "meron_stage_3"):
            module, made = fit(name, Regression(late=True), precision=precision)
            assert {param.dtype for param in module.parameters()} == {dtype}
            assert isinstance(made.precision_plugin, MeronPrecision)
            assert made.precision_plugin.precision == precision
            assert module.losses[-1] < module.losses[0] / 1.5
    with pytest.raises(ValueError, match="64-true"):
        trainer("meron", precision="64-true")


def test_a_setup_resolves_the_config() -> None:
    class Reads(Regression):
        def on_train_epoch_start(self) -> None:
            self.seen = copy.deepcopy(self.trainer.strategy.config)

    given = {"zero_optimization": {"stage": 2}}
    strategy = MeronStrategy(config=given)
    assert strategy.config == given
    module, made = fit(strategy, Reads(), precision="bf16-mixed", accumulate_grad_batches=2)
    assert module.seen["bf16"] == {"enabled": True}
    assert module.seen["train_micro_batch_size_per_gpu"] == loader().batch_size
    assert module.seen["gradient_accumulation_steps"] == 2
    assert module.seen["gradient_clipping"] == 0.0
    assert given == {"zero_optimization": {"stage": 2}}
    made.fit_loop.max_epochs, made.accumulate_grad_batches = 2, 1
    strategy.config["gradient_clipping"] = 0.5  # counts, as keys of the caller's do
    made.fit(module, loader())
    assert module.seen["gradient_accumulation_steps"] == 1
    assert module.seen["gradient_clipping"] == 0.5
    assert strategy.deepspeed_engine.gradient_clipping() == 0.5
    assert strategy.deepspeed_engine.global_steps == 6
    config = {"train_micro_batch_size_per_gpu": 2}
    half = MeronPrecision("16-true")
    module, _ = fit(MeronStrategy(loss_scale=8, config=config, precision_plugin=half), Reads())
    assert module.seen["fp16"]["loss_scale"] == 8
    assert module.seen["train_micro_batch_size_per_gpu"] == 2


def test_a_precision_plugin_takes_the_loss_scale_of_the_strategy() -> None:
    scales = []

    class Scaled(Regression):
        def on_train_end(self) -> None:
            scales.append(self.trainer.strategy.deepspeed_engine.loss_scale())

    plugin = MeronPrecision("16-mixed")
    fit(MeronStrategy(loss_scale=128.0, precision_plugin=plugin), Scaled())
    assert scales == [128.0]


def test_several_optimizers_train_as_ddp(tmp_path: Path) -> None:
    for kind in (Gan, Untoggled):
        plain, _ = fit("ddp_find_unused_parameters_true", kind())
        for name in STAGES:
            module, made = fit(name, kind())
            assert module.losses == plain.losses, (kind, name)
            assert distance(module, plain) == 0
        made.save_checkpoint(tmp_path / "gan.ckpt")
        again, _ = fit("meron_stage_1", kind(), tmp_path / "gan.ckpt", max_epochs=2)
        assert len(again.losses) == len(plain.losses)
    with pytest.raises(MisconfigurationException, match="loss_scale"):
        fit("meron", Gan(), precision="16-true")


def test_gradient_norms_are_those_of_ddp() -> None:
    found: dict[str, list[dict[str, float]]] = {}

    class Watched(Regression):
        def on_before_optimizer_step(self, optimizer: object) -> None:
            norms = grad_norm(self.net, 2)
            self.log_dict(norms)
            name = type(self.trainer.strategy).__name__
            found.setdefault(name, []).append({key: float(norms[key]) for key in norms})

    fit("ddp", Watched())
    fit("meron_stage_3", Watched())
    plain, ours = found["DDPStrategy"], found.pop("MeronStrategy")
    assert len(plain) == len(ours) == 6 and plain[0].keys() == ours[0].keys()
    assert max(abs(a[k] - b[k]) for a, b in zip(plain, ours) for k in a) < 1e-6
    fit(MeronStrategy(gradient_accumulation="engine"), Watched(), accumulate_grad_batches=2)
    assert [bool(norms) for norms in found["MeronStrategy"]] == [False, True] * 3


def test_norms_that_are_not_finite_are_measured_and_clipped_as_without_shards() -> None:
    """Measuring changes no gradient; clipping by NaN makes all of them NaN."""
    model = mt.shard(nn.Linear(4, 4, bias=False))
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.ones(2, 4)).sum().backward()
    part = mt.local_grad(model.weight)
    assert part is not None
    if RANK == 0:
        part[0] = float("inf")
    norms = sharded_norm(model, 2)
    assert all(bool(norm.isinf()) for norm in norms.values())
    measured = mt.full_grad(model.weight)
    assert measured is not None and int(measured.isfinite().sum()) == 15
    if RANK == 0:
        part[0] = float("nan")
    clip_norm(optimizer, 1.0)
    clipped = mt.full_grad(model.weight)
    assert clipped is not None and bool(clipped.isnan().all())
    optimizer.zero_grad()


class NamedByConfig(Regression):
    def configure_optimizers(self) -> None:
        raise AssertionError("the config names the optimizer")


def config_with_optimizer() -> dict[str, Any]:
    return {
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}},
    }


def test_an_optimizer_of_the_config_trains_and_resumes(tmp_path: Path) -> None:
    class Own(Regression):
        def configure_optimizers(self) -> object:
            return mt.AdamW(self.parameters(), lr=1e-2)

    config = config_with_optimizer()
    one, _ = fit("meron_stage_1", Own())
    other, made = fit(MeronStrategy(config=config), NamedByConfig())
    assert distance(one, other) < 1e-6
    assert config == config_with_optimizer()
    made.save_checkpoint(tmp_path / "named.ckpt")
    path = tmp_path / "named.ckpt"
    again, _ = fit(MeronStrategy(config=config), NamedByConfig(), path, max_epochs=2)
    assert again.losses[-1] < other.losses[0]
    fit(MeronStrategy(config=config), other)  # a second run of the same module
    with pytest.raises(meron.StateError, match="no model to save"):
        made.save_checkpoint(tmp_path / "late.ckpt")


@pytest.mark.parametrize("named", [True, False])
def test_evaluates_and_saves_between_runs(tmp_path: Path, named: bool) -> None:
    """An evaluation keeps the states of optimizers, which the next run's replace."""
    resumed: list[list[float]] = []
    for stage in (1, 2, 3):
        config = {**config_with_optimizer(), "zero_optimization": {"stage": stage}}
        if not named:
            del config["optimizer"]
        module, made = fit(MeronStrategy(config=config))
        for _ in range(2):
            made.test(module, loader(), verbose=False)
        made.predict(module, loader())
        path = tmp_path / f"{stage}.ckpt"
        made.save_checkpoint(path)
        resumed.append(fit(MeronStrategy(config=config), None, path, max_epochs=2)[0].losses)
        module.losses.clear()
        made.fit_loop.max_epochs = 2
        made.fit(module, loader())
        assert len(module.losses) == 6 and module.losses != resumed[-1]  # states begin anew
        made.save_checkpoint(path)
    whole, _ = fit(MeronStrategy(config=config), max_epochs=2)
    assert resumed == [whole.losses[6:]] * 3


def test_a_scheduler_of_the_config_runs_after_each_step() -> None:
    config = config_with_optimizer()
    config["scheduler"] = {"type": "WarmupLR", "params": {"warmup_num_steps": 3}}
    _, made = fit(MeronStrategy(config=config), NamedByConfig())
    assert made.lr_scheduler_configs[0].interval == "step"


def test_evaluates_without_fit() -> None:
    plain = trainer("ddp").validate(Regression(), loader(), verbose=False)
    for name in ("meron_stage_1", "meron_stage_3"):
        module = Regression(late=True)
        seen = []
        module.register_forward_hook(lambda *_, seen=seen: seen.append(1))
        made = trainer(name)
        assert made.validate(module, loader(), verbose=False) == plain
        assert made.test(module, loader(), verbose=False) == plain
        assert len(made.predict(module, loader())) == 6
        assert seen  # hooks are kept


def test_an_exception_frees_the_model() -> None:
    class Failing(Regression):
        fails = True

        def training_step(self, batch: object, index: int) -> torch.Tensor:
            loss = super().training_step(batch, index)
            if self.fails and index == 3:
                raise ValueError("in the middle")
            return loss

    module = Failing()
    made = trainer("meron_stage_3")
    with pytest.raises(ValueError, match="in the middle"):
        made.fit(module, loader())
    assert made.strategy.session is None
    with pytest.raises(RuntimeError, match="no engine"):
        _ = made.strategy.engine
    module.fails = False
    trainer("meron_stage_3").fit(module, loader())


def test_compiled_layers_train_as_ddp() -> None:
    plain, _ = fit("ddp")

    class Compiled(Regression):
        def configure_model(self) -> None:
            super().configure_model()
            for layer in self.net:
                layer.compile(backend="eager")

    module, _ = fit("meron_stage_3", Compiled())
    assert module.losses == plain.losses
    with pytest.raises(RuntimeError, match=re.escape("torch.compile")):
        fit("meron", torch.compile(Regression()))


def test_logs_learning_rates(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, "csv")
    rates = LearningRateMonitor("step")
    _, made = fit("meron_stage_3", callbacks=[rates], logger=logger, log_every_n_steps=1)
    assert "lr-AdamW" in made.logged_metrics or "lr-AdamW" in made.callback_metrics


def test_rejects_callbacks_that_change_weights_or_param_groups() -> None:
    class Backboned(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Linear(2, 2)

    for callback in (StochasticWeightAveraging(1e-2), BackboneFinetuning()):
        with pytest.raises(MisconfigurationException, match="is not supported by MeronStrategy"):
            fit("meron", Backboned(), callbacks=[callback])


def test_rejects_configs_that_contradict_the_trainer() -> None:
    with pytest.raises(MisconfigurationException, match="does not exist"):
        MeronStrategy(config="/nowhere.json")
    with pytest.raises(MisconfigurationException, match="accumulate_grad_batches"):
        MeronStrategy(config={"gradient_accumulation_steps": 2})
    with pytest.raises(MisconfigurationException, match="gradient_accumulation is"):
        MeronStrategy(gradient_accumulation="none")
    with pytest.raises(TypeError, match="stagee"):
        MeronStrategy(stagee=2)
    config = {"zero_optimization": {"stage": 2, "overlap_com": True}}
    with pytest.raises(meron.ArgumentError, match="overlap_comm"):
        fit(MeronStrategy(config=config))
    config = {"train_batch_size": 7, "train_micro_batch_size_per_gpu": 4}
    with pytest.raises(MisconfigurationException, match="train_batch_size 7"):
        fit(MeronStrategy(config=config))


def test_rejects_optimizers_that_shards_cannot_run() -> None:
    class Whole(Regression):
        def configure_optimizers(self) -> object:
            return torch.optim.LBFGS(self.parameters())

    with pytest.raises(MisconfigurationException, match="LBFGS"):
        fit("meron", Whole())
    with pytest.raises(NotImplementedError, match="empty_init=False"):
        trainer("meron_stage_3").init_module(empty_init=False).__enter__()


def test_the_environment_names_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_DEEPSPEED_CONFIG_PATH", str(tmp_path / "absent.json"))
    with pytest.raises(MisconfigurationException, match=r"absent\.json"):
        MeronStrategy()
    path = tmp_path / f"stage1-{RANK}.json"
    path.write_text('{"zero_optimization": {"stage": 1}}')
    monkeypatch.setenv("MERON_CONFIG_PATH", str(path))
    assert MeronStrategy(stage=3).config == {"zero_optimization": {"stage": 1}}
