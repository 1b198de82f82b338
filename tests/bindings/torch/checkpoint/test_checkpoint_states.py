# SPDX-License-Identifier: Apache-2.0
"""States of optimizers that a checkpoint lacks, or has for several optimizers or another rule."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkpoint_model import JOB, OPTIONS, WIDTH, build, digest, same, train, values_of
from torch import nn

import meron.torch as mt
from meron.errors import ArgumentError
from meron.torch.checkpoint import LoadError, get_optimizer_state_dict

pytestmark = pytest.mark.ranks(1, 2)
NAME = "blocks.0.up.weight"
RULES = ("torch AdamW", "torch SGD", "torch Adagrad", "engine AdamW", "engine SGD")
CONSTANT = SimpleNamespace(step=lambda: None)  # scheduler
Run = tuple[nn.Module, torch.optim.Optimizer, Any]


def of_rule(rule: str, steps: int, seed: int = 0) -> Run:
    job = {**JOB, "rule": rule, "seed": seed}
    run = build(job)
    train(job, *run, 0, steps)
    return run


def next_steps(run: Run) -> list[str]:
    return train(JOB, *run, 0, 2)


def test_load_without_states_resets_the_optimizer_only_if_lenient(tmp_path: Path) -> None:
    mt.save(tmp_path, "values", of_rule("torch AdamW", 1)[0], values_only=True)
    mt.save(tmp_path, "alone", of_rule("torch AdamW", 1)[0])
    for rule in RULES:
        for name in ("values", "alone"):
            run = of_rule(rule, 3)
            model, optimizer, _ = run
            before, trained = values_of(model), digest(model, optimizer)
            text = f"missing: the states of {rule.split()[1]}"
            with pytest.raises(LoadError, match=re.escape(text)):
                mt.load(tmp_path, name, model, optimizer)
            same(model, before)
            assert digest(model, optimizer) == trained
            loaded = mt.load(tmp_path, name, model, optimizer, strict=False)
            assert loaded.missing == [text.removeprefix("missing: ")]
            fresh = of_rule(rule, 0, seed=1)
            mt.load(tmp_path, name, fresh[0])
            for group in optimizer.param_groups:  # which keep their rates
                group["lr"] = OPTIONS[rule.split()[1]]["lr"]
            after = next_steps((model, optimizer, CONSTANT))
            assert after == next_steps((*fresh[:2], CONSTANT)), rule


def test_loads_a_checkpoint_from_before_the_first_step(tmp_path: Path) -> None:
    for rule in ("AdamW", "SGD", "Adagrad"):
        for home in ("torch", "engine"):
            where = tmp_path / f"{home} {rule}"
            model, optimizer, scheduler = of_rule(f"{home} {rule}", 0)
            mt.save(where, "a", model, optimizer, scheduler=scheduler)
            for other in ("torch", "engine"):
                run = of_rule(f"{other} {rule}", 3)
                mt.load(where, None, *run[:2], scheduler=run[2])
                assert getattr(run[1], "steps", 0) == 0
                after = next_steps(run)
                fresh = of_rule(f"{other} {rule}", 0)
                assert after == next_steps(fresh), (rule, home, other)


def test_engine_continues_with_torchs_momentum(tmp_path: Path) -> None:
    model, optimizer, scheduler = of_rule("torch SGD", 2)
    mt.save(tmp_path, "a", model, optimizer, scheduler=scheduler)
    run = of_rule("engine SGD", 0)
    mt.load(tmp_path, None, *run[:2], scheduler=run[2])
    assert run[1].steps == 1
    next_steps(run)
    next_steps((model, optimizer, scheduler))
    for name, value in run[0].state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name], rtol=1e-4, atol=1e-6)


def two_of(rule: str) -> tuple[dict[str, nn.Module], list[torch.optim.Optimizer]]:
    models = {name: mt.shard(nn.Linear(WIDTH, WIDTH)) for name in ("first", "second")}
    home, kind = rule.split()
    optimizers: list[torch.optim.Optimizer] = []
    for model in models.values():
        if home == "engine":
            optimizers.append(getattr(mt, kind)(model, lr=1e-2))
        else:
            made = getattr(torch.optim, kind)(model.parameters(), lr=1e-2)
            optimizers.append(mt.shard_optimizer(model, made))
    return models, optimizers


def test_each_optimizer_keeps_its_own_step_count(tmp_path: Path) -> None:
    for saved in ("engine AdamW", "torch AdamW"):
        models, optimizers = two_of(saved)
        for model, optimizer, steps in zip(models.values(), optimizers, (5, 2)):
            for _ in range(steps):
                model(torch.ones(2, WIDTH)).sum().backward()
                optimizer.step()
        where = tmp_path / saved
        mt.save(where, "a", models, optimizers)
        for loaded in ("torch AdamW", "engine AdamW"):
            others, its = two_of(loaded)
            mt.load(where, None, others, its)
            for name, optimizer, steps in zip(others, its, (5, 2)):
                found = get_optimizer_state_dict(others, optimizer)["state"]
                assert int(found[f"{name}.weight"]["step"]) == steps, (saved, loaded, name)


def test_optimizers_of_the_same_params_keep_their_own_states(tmp_path: Path) -> None:
    def build_two(rate: float) -> tuple[nn.Module, list[torch.optim.Optimizer]]:
        torch.manual_seed(3)
        model = nn.Linear(WIDTH, WIDTH)
        mt.shard(model)
        kinds = {torch.optim.Adam: {}, torch.optim.SGD: {"momentum": 0.5}, torch.optim.Adagrad: {}}
        made = [kind(model.parameters(), lr=rate, **more) for kind, more in kinds.items()]
        return model, [mt.shard_optimizer(model, each) for each in made]

    def step(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
        for number, optimizer in enumerate(optimizers):
            for _ in range(number + 1):
                model(torch.ones(2, WIDTH)).sum().backward()
                optimizer.step()

    model, optimizers = build_two(0.1)
    step(model, optimizers)
    mt.save(tmp_path, "a", model, optimizers)
    other, others = build_two(0.2)
    mt.load(tmp_path, None, other, others)
    for ours, theirs in zip(optimizers, others):
        one, two = (get_optimizer_state_dict(m, o) for m, o in ((model, ours), (other, theirs)))
        assert one["state"].keys() == two["state"].keys() and one["state"]["weight"]
        for name, states in one["state"].items():
            assert states.keys() == two["state"][name].keys(), (type(ours), name)
    step(model, optimizers)
    step(other, others)
    assert digest(model, optimizers[0]) == digest(other, others[0])
    same(other, values_of(model))
    alone, single = build_two(0.3)
    with pytest.raises(ArgumentError, match="has 3 optimizers, 1 were given"):
        mt.load(tmp_path, None, alone, single[1:2])


def test_rank0_only_load_converts_states_of_another_optimizer(tmp_path: Path) -> None:
    for saved, loaded in (("torch AdamW", "engine AdamW"), ("engine AdamW", "torch AdamW")):
        model, optimizer, _ = of_rule(saved, 2)
        where = tmp_path / saved
        mt.save(where, "a", model, optimizer)
        run = of_rule(loaded, 0, seed=1)
        mt.load(where, None, *run[:2], rank0_only=True)
        state = get_optimizer_state_dict(*run[:2])["state"][NAME]
        expected = get_optimizer_state_dict(model, optimizer)["state"][NAME]
        assert int(state["step"]) == 2
        assert torch.equal(state["exp_avg"].to_local(), expected["exp_avg"].to_local())
