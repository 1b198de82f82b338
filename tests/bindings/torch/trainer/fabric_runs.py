# SPDX-License-Identifier: Apache-2.0
"""Fabric on Meron beside Fabric with DDP."""

from __future__ import annotations

from typing import Any

import torch
from lightning.fabric import Fabric
from modules import FOLDER, RANK, WORLD, layers, loader, mse, raises, run_cases

from meron.lightning import MeronEnvironment, MeronFabricPrecision, MeronFabricStrategy


def fabric_of(strategy: Any, precision: Any = None) -> Fabric:
    plugins = [MeronEnvironment()] if strategy == "ddp" else None
    made = Fabric(
        strategy=strategy, accelerator="cpu", devices=WORLD, precision=precision, plugins=plugins
    )
    made.launch()
    return made


def run(
    strategy: Any,
    *,
    clip: Any = None,
    resume: Any = None,
    save: Any = None,
    steps: int = 6,
    precision: Any = None,
    accumulate: int = 1,
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses of this rank, and the values at the end."""
    fabric = fabric_of(strategy, precision)
    late = getattr(fabric.strategy, "zero_stage_3", False)
    with fabric.init_module() if late else torch.enable_grad():
        model = layers()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    state = {"model": model, "optimizer": optimizer, "step": 0, "name": "run"}
    if resume is not None:
        rest = fabric.load(resume, state)
        assert rest == {} and state["step"] == 3 and state["name"] == "saved"
    losses = []
    for index, (x, y) in enumerate(fabric.setup_dataloaders(loader())):
        if not state["step"] <= index < steps:
            continue
        with fabric.no_backward_sync(model, enabled=False):
            loss = mse(model(x).squeeze(1), y)
            fabric.backward(loss / accumulate)
        losses.append(loss.item())
        if (index + 1) % accumulate:
            continue
        if clip is not None:
            norm = fabric.clip_gradients(model, optimizer, **clip)
            assert norm is None or norm > 0
        optimizer.step()
        optimizer.zero_grad()
        state["step"] = index + 1
    if save is not None:
        state["name"] = "saved"
        fabric.save(save, state)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    fabric.strategy.teardown()
    return losses, values


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in other)


def resume_fabric() -> None:
    """At any number of ranks: the step after the save comes from the saved values."""
    losses, values = run("meron_stage_1", resume=FOLDER / "fabric")
    assert losses and values.keys() == layers().state_dict().keys()


def case_trains_as_ddp() -> None:
    for clip, most in ((None, 0.0), ({"max_norm": 0.05}, 1e-6), ({"clip_val": 0.01}, 0.0)):
        plain = run("ddp", clip=clip)
        for stage in (1, 2, 3):
            ours = run(f"meron_stage_{stage}", clip=clip)
            assert distance(ours[1], plain[1]) <= most
            assert ours[0] == plain[0] or most > 0


def case_the_engine_counts_micro_batches() -> None:
    config = {"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 2}
    _, counted = run(MeronFabricStrategy(config=config))
    _, by_hand = run("meron_stage_2", accumulate=2)
    assert distance(counted, by_hand) == 0
    assert distance(run("ddp", accumulate=2)[1], by_hand) < 1e-6


def case_precision() -> None:
    for precision in ("bf16-mixed", "16-true", MeronFabricPrecision("16-mixed")):
        plugin = isinstance(precision, MeronFabricPrecision)
        strategy = MeronFabricStrategy(stage=3, precision=precision) if plugin else "meron_stage_3"
        losses, _ = run(strategy, precision=None if plugin else precision)
        assert losses[-1] < losses[0]
    raises("ValueError", "64-true", lambda: fabric_of("meron", "64-true"))


def case_checkpoints() -> None:
    plain = run("ddp")
    run("meron_stage_3", steps=3, save=FOLDER / "fabric")
    losses, values = run("meron_stage_1", resume=FOLDER / "fabric")
    assert losses == plain[0][3:] and distance(values, plain[1]) == 0


def case_a_file_of_ddp() -> None:
    run("ddp", steps=3, save=FOLDER / "fabric.pt")
    plain = run("ddp", resume=FOLDER / "fabric.pt")
    for stage in (1, 3):
        losses, values = run(f"meron_stage_{stage}", resume=FOLDER / "fabric.pt")
        assert losses == plain[0] and distance(values, plain[1]) == 0


def case_two_models() -> None:
    fabric = fabric_of("meron_stage_2")
    teacher, student = layers(), layers()
    teacher = fabric.setup(teacher)
    student, optimizer = fabric.setup(student, torch.optim.SGD(student.parameters(), lr=0.1))
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(RANK))
    with torch.no_grad():
        wanted = teacher(x) + 1
    first = mse(student(x), wanted)
    fabric.backward(first)
    optimizer.step()
    assert mse(student(x), wanted) < first
    state = {"teacher": teacher, "student": student}
    raises("ValueError", "several models", lambda: fabric.save(FOLDER / "two", state))
    fabric.strategy.teardown()


def case_several_optimizers() -> None:
    """In f32 and under a fixed loss scale. A dynamic one would change between their steps."""

    def trained(strategy: Any, precision: Any) -> dict[str, torch.Tensor]:
        fabric = fabric_of(strategy, precision)
        model = layers()
        halves = (model[0], model[2:])
        made = [torch.optim.SGD(half.parameters(), lr=0.1) for half in halves]
        model, *optimizers = fabric.setup(model, *made)
        for x, y in fabric.setup_dataloaders(loader()):
            fabric.backward(mse(model(x).squeeze(1), y))
            for optimizer in optimizers:
                optimizer.step()
            for optimizer in optimizers:
                optimizer.zero_grad()
        values = {name: value.float().clone() for name, value in model.state_dict().items()}
        fabric.strategy.teardown()
        return values

    plain = trained("meron_stage_2", None)
    assert distance(trained("ddp", None), plain) == 0
    fixed = trained(MeronFabricStrategy(stage=2, loss_scale=16.0), "16-true")
    assert distance(fixed, plain) < 1e-2
    raises("ArgumentError", "loss_scale", lambda: trained("meron_stage_2", "16-true"))
    counted = {"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 2}
    counted = MeronFabricStrategy(config=counted)
    raises("ArgumentError", "gradient_accumulation_steps", lambda: trained(counted, None))


def case_misuse() -> None:
    fabric = fabric_of("meron_stage_1")
    raises("RuntimeError", "set up", lambda: fabric.strategy.backward(torch.ones(()), None))
    raises("ValueError", "Could not find a model", lambda: fabric.save(FOLDER / "x", {"a": 1}))
    raises("ValueError", "with at least a model", lambda: fabric.load(FOLDER / "fabric", {}))
    raises("FileNotFoundError", "nothing", lambda: fabric.load(FOLDER / "nothing", {"a": 1}))
    raises("NotImplementedError", "set up together", lambda: fabric.strategy.setup_optimizer(None))
    raises("FileNotFoundError", "does not exist", lambda: MeronFabricStrategy(config="/none.json"))
    model = fabric.setup(layers())
    state = {"model": model, "absent": 1}
    raises("KeyError", "'absent'", lambda: fabric.load(FOLDER / "fabric", state))
    fabric.save(FOLDER / "raw", {"model": model})
    raises("ValueError", "load_raw", lambda: fabric.load_raw(FOLDER / "raw", model))
    save = fabric.strategy.save_checkpoint
    raises("TypeError", "filter", lambda: save(FOLDER / "x", {}, filter={}))
    raises("TypeError", "storage_options", lambda: save(FOLDER / "x", {}, storage_options={}))
    fabric.strategy.teardown()


if __name__ == "__main__":
    run_cases(dict(globals()))
