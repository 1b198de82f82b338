# SPDX-License-Identifier: Apache-2.0
"""MeronStrategy beside DDP: the same run gives the same losses, metrics and hooks."""

from __future__ import annotations

import os

import torch
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    GradientAccumulationScheduler,
    LearningRateMonitor,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from lightning.pytorch.utilities.model_summary import ModelSummary
from modules import (
    FOLDER,
    RANK,
    Gan,
    Normed,
    Regression,
    Untoggled,
    distance,
    fit,
    loader,
    raises,
    run_cases,
    trainer,
)
from torch import nn

import meron.torch as mt
from meron.lightning import MeronPrecision, MeronStrategy
from meron.lightning.settings import NAMES

STAGES = ("meron_stage_1", "meron_stage_2", "meron_stage_3")


def case_every_name_trains_as_ddp() -> None:
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


def case_modules_are_built_in_shards() -> None:
    plain, _ = fit("ddp")
    module, _ = fit("meron_stage_3", Regression(late=True))
    assert module.losses == plain.losses
    assert ModelSummary(module).total_parameters == ModelSummary(plain).total_parameters > 1000


def case_states_on_nvme() -> None:
    plain, _ = fit("ddp")
    strategy = MeronStrategy(**NAMES["meron_stage_3_offload_nvme"][1], nvme_path=str(FOLDER))
    module, made = fit(strategy, Regression(late=True))
    assert isinstance(made.optimizers[0], mt.AdamW)
    assert distance(module, plain) < 1e-6
    assert made.optimizers[0].param_groups[0]["lr"] == 1e-2 / 8  # the scheduler followed

    class Cycled(Regression):
        """Its scheduler keeps values of its own in the param groups."""

        def configure_optimizers(self) -> object:
            rule = torch.optim.Adam(
                self.parameters(), lr=1e-2, weight_decay=0.5, decoupled_weight_decay=True
            )
            cycle = torch.optim.lr_scheduler.OneCycleLR(rule, 1e-2, total_steps=6)
            return [rule], [{"scheduler": cycle, "interval": "step"}]

    plain, _ = fit("ddp", Cycled())
    strategy = MeronStrategy(**NAMES["meron_stage_3_offload_nvme"][1], nvme_path=str(FOLDER))
    assert distance(fit(strategy, Cycled(late=True))[0], plain) < 1e-6

    class Mixed(Regression):
        def configure_optimizers(self) -> object:
            groups = [{"params": [each]} for each in self.parameters()]
            groups[0]["decoupled_weight_decay"] = True
            return torch.optim.Adam(groups, lr=1e-2, weight_decay=0.5)

    strategy = MeronStrategy(**NAMES["meron_stage_3_offload_nvme"][1], nvme_path=str(FOLDER))
    raises("UnsupportedError", "decoupled_weight_decay", lambda: fit(strategy, Mixed()))


def case_running_statistics_are_rank_0s() -> None:
    plain, of_plain = fit("ddp", Normed(), validates=True)
    module, of_module = fit("meron_stage_2", Normed(), validates=True)
    assert of_module.callback_metrics["val"] == of_plain.callback_metrics["val"]
    assert distance(module, plain) == 0


def case_accumulation() -> None:
    options = {"accumulate_grad_batches": 4, "max_epochs": 2}  # of six batches: a short window
    plain, of_plain = fit("ddp", **options)
    for name in STAGES:
        module, made = fit(name, **options)
        assert distance(module, plain) <= (0 if name == STAGES[0] else 1e-6), name
        assert made.global_step == of_plain.global_step == 4
    strategy = MeronStrategy(gradient_accumulation="engine")
    seen = []

    class Counting(Regression):
        def on_train_end(self) -> None:
            seen.append(self.trainer.strategy.deepspeed_engine.global_steps)

    fit(strategy, Counting(), **options)
    assert seen == [3]
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.05}
    plain, _ = fit("ddp", **options)  # clips complete gradients only
    module, _ = fit(MeronStrategy(gradient_accumulation="engine"), **options)
    assert distance(module, plain) < 1e-6
    windows = [GradientAccumulationScheduler({0: 1, 1: 2})]
    plain, _ = fit("ddp", max_epochs=2, callbacks=windows)
    module, _ = fit("meron", max_epochs=2, callbacks=windows)
    assert distance(module, plain) < 1e-6
    raises(
        "MisconfigurationException",
        "one number of micro-batches",
        lambda: fit(MeronStrategy(gradient_accumulation="engine"), callbacks=windows),
    )


def case_clipping() -> None:
    for algorithm, limit, most in (("norm", 0.05, 1e-6), ("value", 0.01, 0.0)):
        options = {"gradient_clip_val": limit, "gradient_clip_algorithm": algorithm}
        plain, _ = fit("ddp", **options)
        for name in STAGES:
            assert distance(fit(name, **options)[0], plain) <= most
    plain, _ = fit("ddp", gradient_clip_val=0.05)
    config = {"zero_optimization": {"stage": 2}, "gradient_clipping": 0.05}
    assert distance(fit(MeronStrategy(config=config))[0], plain) < 1e-6
    raises(
        "MisconfigurationException",
        "gradient_clip_val",
        lambda: fit(MeronStrategy(config=config), gradient_clip_val=1.0),
    )


def case_precision() -> None:
    for precision, dtype in (("bf16-mixed", torch.bfloat16), ("16-true", torch.float16)):
        for name in ("meron_stage_1", "meron_stage_3"):
            module, made = fit(name, Regression(late=True), precision=precision)
            assert {param.dtype for param in module.parameters()} == {dtype}
            assert isinstance(made.precision_plugin, MeronPrecision)
            assert made.precision_plugin.precision == precision
            assert module.losses[-1] < module.losses[0] / 1.5, module.losses
    strategy = MeronStrategy(loss_scale=128.0, precision_plugin=MeronPrecision("16-mixed"))
    scales = []

    class Scaled(Regression):
        def on_train_end(self) -> None:
            scales.append(self.trainer.strategy.deepspeed_engine.loss_scale())

    fit(strategy, Scaled())
    assert scales == [128.0]
    raises("ValueError", "64-true", lambda: trainer("meron", precision="64-true"))


def case_several_optimizers() -> None:
    for kind in (Gan, Untoggled):
        plain, _ = fit("ddp_find_unused_parameters_true", kind())
        for name in STAGES:
            module, made = fit(name, kind())
            assert module.losses == plain.losses, (kind, name)
            assert distance(module, plain) == 0
        made.save_checkpoint(FOLDER / "training" / "gan.ckpt")
        again, _ = fit("meron_stage_1", kind(), FOLDER / "training" / "gan.ckpt", max_epochs=2)
        assert len(again.losses) == len(plain.losses)
    raises(
        "MisconfigurationException",
        "loss_scale",
        lambda: fit("meron", Gan(), precision="16-true"),
    )


def case_norms_of_gradients() -> None:
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


def case_optimizers_of_the_engine() -> None:
    class Own(Regression):
        def configure_optimizers(self) -> object:
            return mt.AdamW(self.parameters(), lr=1e-2)

    class Named(Regression):
        def configure_optimizers(self) -> None:
            raise AssertionError("the config names the optimizer")

    config = {
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}},
    }
    before = str(config)
    one, _ = fit("meron_stage_1", Own())
    other, made = fit(MeronStrategy(config=config), Named())
    assert distance(one, other) < 1e-6
    assert str(config) == before
    made.save_checkpoint(FOLDER / "training" / "named.ckpt")
    again, _ = fit(
        MeronStrategy(config=config), Named(), FOLDER / "training" / "named.ckpt", max_epochs=2
    )
    assert again.losses[-1] < other.losses[0]
    fit(MeronStrategy(config=config), other)  # a second run of the same module
    raises(
        "StateError",
        "no model to save",
        lambda: made.save_checkpoint(FOLDER / "training" / "late.ckpt"),
    )
    config["scheduler"] = {"type": "WarmupLR", "params": {"warmup_num_steps": 3}}
    _, made = fit(MeronStrategy(config=config), Named())
    assert made.lr_scheduler_configs[0].interval == "step"


def case_evaluation_without_fit() -> None:
    plain = trainer("ddp").validate(Regression(), loader(), verbose=False)
    for name in ("meron_stage_1", "meron_stage_3"):
        module = Regression(late=True)
        seen = []
        module.register_forward_hook(lambda *_, seen=seen: seen.append(1))
        made = trainer(name)
        assert made.validate(module, loader(), verbose=False) == plain
        assert made.test(module, loader(), verbose=False) == plain
        assert len(made.predict(module, loader())) == 6
        assert seen  # hooks stay


def case_an_exception_frees_the_model() -> None:
    class Failing(Regression):
        fails = True

        def training_step(self, batch: object, index: int) -> torch.Tensor:
            loss = super().training_step(batch, index)
            if self.fails and index == 3:
                raise ValueError("in the middle")
            return loss

    module = Failing()
    made = trainer("meron_stage_3")
    raises("ValueError", "in the middle", lambda: made.fit(module, loader()))
    assert made.strategy.session is None
    raises("RuntimeError", "no engine", lambda: made.strategy.engine)
    module.fails = False
    trainer("meron_stage_3").fit(module, loader())


def case_callbacks_and_compilation() -> None:
    plain, _ = fit("ddp")

    class Compiled(Regression):
        def configure_model(self) -> None:
            super().configure_model()
            for layer in self.net:
                layer.compile(backend="eager")

    module, _ = fit("meron_stage_3", Compiled())
    assert module.losses == plain.losses
    raises("RuntimeError", "torch.compile", lambda: fit("meron", torch.compile(Regression())))
    logger = CSVLogger(FOLDER, "csv")
    rates = LearningRateMonitor("step")
    _, made = fit("meron_stage_3", callbacks=[rates], logger=logger, log_every_n_steps=1)
    assert "lr-AdamW" in made.logged_metrics or "lr-AdamW" in made.callback_metrics

    class Backboned(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Linear(2, 2)

    for callback in (StochasticWeightAveraging(1e-2), BackboneFinetuning()):
        raises(
            "MisconfigurationException",
            "is not supported by MeronStrategy",
            lambda callback=callback: fit("meron", Backboned(), callbacks=[callback]),
        )


def case_misuse() -> None:
    wrong = "MisconfigurationException"
    raises(wrong, "does not exist", lambda: MeronStrategy(config="/nowhere.json"))
    raises(
        wrong,
        "accumulate_grad_batches",
        lambda: MeronStrategy(config={"gradient_accumulation_steps": 2}),
    )
    raises(wrong, "gradient_accumulation is", lambda: MeronStrategy(gradient_accumulation="none"))
    raises("TypeError", "stagee", lambda: MeronStrategy(stagee=2))
    config = {"zero_optimization": {"stage": 2, "overlap_com": True}}
    raises("ArgumentError", "overlap_comm", lambda: fit(MeronStrategy(config=config)))
    config = {"train_batch_size": 7, "train_micro_batch_size_per_gpu": 4}
    raises(wrong, "train_batch_size 7", lambda: fit(MeronStrategy(config=config)))

    class Whole(Regression):
        def configure_optimizers(self) -> object:
            return torch.optim.LBFGS(self.parameters())

    raises(wrong, "LBFGS", lambda: fit("meron", Whole()))
    raises(
        "NotImplementedError",
        "empty_init=False",
        lambda: trainer("meron_stage_3").init_module(empty_init=False).__enter__(),
    )
    os.environ["PL_DEEPSPEED_CONFIG_PATH"] = str(FOLDER / "absent.json")
    raises(wrong, "absent.json", MeronStrategy)
    (FOLDER / f"stage1-{RANK}.json").write_text('{"zero_optimization": {"stage": 1}}')
    os.environ["MERON_CONFIG_PATH"] = str(FOLDER / f"stage1-{RANK}.json")
    assert MeronStrategy(stage=3).config == {"zero_optimization": {"stage": 1}}
    del os.environ["PL_DEEPSPEED_CONFIG_PATH"], os.environ["MERON_CONFIG_PATH"]


if __name__ == "__main__":
    run_cases(dict(globals()))
