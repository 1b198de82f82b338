# SPDX-License-Identifier: Apache-2.0
"""One rank: states of optimizers that a checkpoint lacks, has of several optimizers, or has of
another's rule. As promised.py."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from promised import JOB, folder, main, raises, same, values_of
from torch import nn
from training import OPTIONS, WIDTH, build, digest, train

import meron.torch as mt
from meron.torch.checkpoint import LoadError, get_optimizer_state_dict

NAME = "blocks.0.up.weight"
RULES = ("torch AdamW", "torch SGD", "torch Adagrad", "engine AdamW", "engine SGD")
CONSTANT = SimpleNamespace(step=lambda: None)  # a scheduler
Run = tuple[nn.Module, torch.optim.Optimizer, Any]


def of_rule(rule: str, steps: int, seed: int = 0) -> Run:
    job = {**JOB, "rule": rule, "seed": seed}
    run = build(job)
    train(job, *run, 0, steps)
    return run


def next_steps(run: Run) -> list[str]:
    return train(JOB, *run, 0, 2)


def a_checkpoint_of_values_alone_has_no_states() -> None:
    where = folder()
    mt.save(where, "values", of_rule("torch AdamW", 1)[0], values_only=True)
    mt.save(where, "alone", of_rule("torch AdamW", 1)[0])
    for rule in RULES:
        for name in ("values", "alone"):
            run = of_rule(rule, 3)
            model, optimizer, _ = run
            before, trained = values_of(model), digest(model, optimizer)
            text = f"missing: the states of {rule.split()[1]}"
            raises(LoadError, text, partial(mt.load, where, name, model, optimizer))
            same(model, before)
            assert digest(model, optimizer) == trained
            loaded = mt.load(where, name, model, optimizer, strict=False)
            assert loaded.missing == [text.removeprefix("missing: ")]
            fresh = of_rule(rule, 0, seed=1)
            mt.load(where, name, fresh[0])
            for group in optimizer.param_groups:  # which were left alone
                group["lr"] = OPTIONS[rule.split()[1]]["lr"]
            after = next_steps((model, optimizer, CONSTANT))
            assert after == next_steps((*fresh[:2], CONSTANT)), rule


def a_model_goes_back_to_before_its_first_step() -> None:
    for rule in ("AdamW", "SGD", "Adagrad"):
        for home in ("torch", "engine"):
            where = folder()
            model, optimizer, scheduler = of_rule(f"{home} {rule}", 0)
            mt.save(where, "a", model, optimizer, scheduler=scheduler)
            for other in ("torch", "engine"):
                run = of_rule(f"{other} {rule}", 3)
                mt.load(where, None, *run[:2], scheduler=run[2])
                assert getattr(run[1], "steps", 0) == 0
                after = next_steps(run)
                fresh = of_rule(f"{other} {rule}", 0)
                assert after == next_steps(fresh), (rule, home, other)


def momentum_of_torch_counts_in_the_engine() -> None:
    where = folder()
    model, optimizer, scheduler = of_rule("torch SGD", 2)
    mt.save(where, "a", model, optimizer, scheduler=scheduler)
    run = of_rule("engine SGD", 0)
    mt.load(where, None, *run[:2], scheduler=run[2])
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


def each_optimizer_has_its_own_number_of_steps() -> None:
    for saved in ("engine AdamW", "torch AdamW"):
        models, optimizers = two_of(saved)
        for model, optimizer, steps in zip(models.values(), optimizers, (5, 2)):
            for _ in range(steps):
                model(torch.ones(2, WIDTH)).sum().backward()
                optimizer.step()
        where = folder()
        mt.save(where, "a", models, optimizers)
        for loaded in ("torch AdamW", "engine AdamW"):
            others, its = two_of(loaded)
            mt.load(where, None, others, its)
            for name, optimizer, steps in zip(others, its, (5, 2)):
                found = get_optimizer_state_dict(others, optimizer)["state"]
                assert int(found[f"{name}.weight"]["step"]) == steps, (saved, loaded, name)


def rank_0_alone_sees_the_states_of_another_optimizer() -> None:
    for saved, loaded in (("torch AdamW", "engine AdamW"), ("engine AdamW", "torch AdamW")):
        model, optimizer, _ = of_rule(saved, 2)
        where = folder()
        mt.save(where, "a", model, optimizer)
        run = of_rule(loaded, 0, seed=1)
        mt.load(where, None, *run[:2], rank0_only=True)
        state = get_optimizer_state_dict(*run[:2])["state"][NAME]
        expected = get_optimizer_state_dict(model, optimizer)["state"][NAME]
        assert int(state["step"]) == 2
        assert torch.equal(state["exp_avg"].to_local(), expected["exp_avg"].to_local())


if __name__ == "__main__":
    main(globals())
