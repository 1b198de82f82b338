# SPDX-License-Identifier: Apache-2.0
"""One rank: what saving and loading promise. Writes a line of JSON per function into folder/rank:
its name, and what went wrong or null."""

from __future__ import annotations

import functools
import json
import math
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions
from training import WIDTH, Block, Model, build, train

import meron
import meron.torch as mt
from meron.torch.checkpoint import (
    LoadError,
    get_optimizer_state_dict,
    packing,
    set_optimizer_state_dict,
)
from meron.torch.checkpoint.agreement import from_rank

FULL = StateDictOptions(full_state_dict=True)
JOB = {"plan": "zero3", "rule": "torch AdamW", "total": 2}
context = mt.context_for("zero3")
RANK, RANKS = context.rank, context.world_size


def folder() -> str:
    """An empty one, the same on all ranks."""
    return from_rank(context, tempfile.mkdtemp() if RANK == 0 else "")


def raises(kind: type[Exception], text: str, function: Callable[[], Any]) -> None:
    try:
        function()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"{kind.__name__} with {text!r} was not raised")


def values_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
    for name, value in model.state_dict().items():
        assert torch.equal(value, values[name]), name


def names_in_files_are_those_of_state_dict() -> None:
    model, optimizer, _ = build(JOB)
    where = folder()
    mt.save(where, "a", model, optimizer)
    saved = meron.open_checkpoint(where, "a")
    found = {name for kind, name in saved.tensors if kind == "values"}
    assert found == set(model.state_dict()) - {"head.weight"}  # tied to embed.weight


def what_does_not_fit_is_listed_and_changes_nothing() -> None:
    model, optimizer, _ = build(JOB)
    where = folder()
    mt.save(where, "a", model, optimizer)

    class Other(Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks[0].up = nn.Linear(WIDTH, 2 * WIDTH + 1, bias=False)
            self.blocks[1].norm = nn.LayerNorm(WIDTH - 1)
            self.more = nn.Linear(2, 2)

    torch.manual_seed(3)
    other = mt.shard(Other(), units=Block)
    before = values_of(other)
    for text in (
        "missing: more.bias, more.weight",
        "unexpected: blocks.0.up.bias",
        "of another shape or dtype: blocks.1.norm.bias (F32 [12] in the checkpoint, [11] here)",
    ):
        raises(LoadError, text, lambda: mt.load(where, None, other))
    same(other, before)
    raises(LoadError, "of another shape", lambda: mt.load(where, "a", other, strict=False))
    same(other, before)


def lenient_loads_leave_alone_what_is_missing() -> None:
    model, _, _ = build(JOB)
    where = folder()
    mt.save(where, "a", model.blocks, None)
    torch.manual_seed(5)
    other = mt.shard(nn.Sequential(Block(), Block(), Block()), units=Block)
    before = values_of(other)
    loaded = mt.load(where, None, other, strict=False)
    assert "2.up.weight" in loaded.missing and not loaded.unexpected
    same(other[2], {k[2:]: v for k, v in before.items() if k.startswith("2.")})
    same(other[0], values_of(model.blocks[0]))


def errors_of_one_rank_are_those_of_all() -> None:
    model, optimizer, _ = build(JOB)
    where = folder()
    extra = {"bad": object()} if RANK == RANKS - 1 else {}
    raises(
        meron.ArgumentError,
        "extra holds what JSON cannot",
        lambda: mt.save(where, "a", model, extra=extra),
    )
    raises(meron.NotFoundError, "", lambda: mt.load(where, None, model))
    mt.save(where, "a", model, optimizer)
    raises(meron.DuplicateError, "a", lambda: mt.save(where, "a", model, optimizer))
    mt.save(where, "a", model, optimizer, overwrite=True)


def gradients_that_wait_are_refused() -> None:
    model, optimizer, _ = build(JOB)
    model(torch.zeros(2, WIDTH)).sum().backward()
    raises(meron.StateError, "waits for its step", lambda: mt.save(folder(), "a", model, optimizer))
    optimizer.zero_grad()
    mt.save(folder(), "a", model, optimizer)


def a_model_whose_output_no_loss_used_does_not_wait() -> None:
    model, optimizer, _ = build(JOB)
    other = mt.shard(nn.Linear(WIDTH, WIDTH))
    model(other(torch.zeros(2, WIDTH)).detach()).sum().backward()
    optimizer.step()
    where = folder()
    mt.save(where, "a", model, optimizer)
    mt.load(where, "a", model, optimizer)
    other(torch.ones(2, WIDTH)).sum().backward()
    assert float(mt.full_grad(other.bias).sum()) == 2 * WIDTH
    mt.shard_optimizer(other, torch.optim.SGD(other.parameters(), lr=1.0)).zero_grad()


def only_the_models_that_are_given_are_saved() -> None:
    one, two = mt.shard(nn.Linear(4, 4)), mt.shard(nn.Linear(4, 4))
    where = folder()
    mt.save(where, "a", one)
    mt.save(where, "b", {"one": one, "two": two}, step=1)
    assert len(meron.open_checkpoint(where, "a").tensors) == 2 + RANKS
    before = values_of(two)
    kept = values_of(one)
    with torch.no_grad():
        mt.set_full_param(one.weight, torch.zeros(4, 4))
    mt.load(where, "a", one)
    same(one, kept)
    same(two, before)
    mt.load(where, None, {"one": one, "two": two})
    same(two, before)


def frozen_params_may_be_left_out() -> None:
    model, optimizer, _ = build(JOB)
    where = folder()
    mt.save(where, "a", model, optimizer, skip_frozen=True)
    tensors = meron.open_checkpoint(where, "a").tensors
    assert ("values", "scale") not in tensors and ("values", "plain") not in tensors
    assert mt.load(where, None, model, optimizer).missing == []


def a_step_waits_until_its_states_are_copied() -> None:
    model, optimizer, scheduler = build(JOB)
    train(JOB, model, optimizer, scheduler, 0, 2)
    where = folder()
    handle = mt.save(where, "a", model, optimizer, background=True)
    expected = values_of(model)
    train(JOB, model, optimizer, scheduler, 2, 4)
    handle.wait()
    assert handle.done()
    other, its, _ = build({**JOB, "seed": 9})
    mt.load(where, None, other, its)
    same(other, expected)


def deferred_models_are_loaded() -> None:
    model, _, _ = build(JOB)
    where = folder()
    mt.save_pretrained(model, f"{where}/hf")
    with torch.device("meta"):
        other = Model()
    other.plain = nn.Parameter(torch.zeros(5), requires_grad=False)
    left = [other.plain]
    raises(
        meron.StateError,
        "table",
        lambda: mt.load_pretrained(
            mt.shard(other, units=Block, init="defer", ignored_params=left), f"{where}/hf"
        ),
    )
    other.table = torch.ones(WIDTH)
    raises(meron.StateError, "has no values yet", lambda: other(torch.zeros(2, WIDTH)))
    raises(meron.StateError, "has no values yet", lambda: mt.save(where, "a", other))
    mt.load_pretrained(other, f"{where}/hf")
    same(other, values_of(model))
    other(torch.zeros(2, WIDTH))


def prefixes_and_other_names_are_found() -> None:
    model, _, _ = build(JOB)
    where = folder()
    mt.save_pretrained(model.blocks, where)
    expected = values_of(model.blocks)

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(Block(), Block())

    around = mt.shard(Around(), units=Block)
    mt.load_pretrained(around, where)
    same(around.body, expected)
    mt.save_pretrained(around, f"{where}/b")
    torch.manual_seed(8)
    plain = mt.shard(nn.Sequential(Block(), Block()), units=Block)
    mt.load_pretrained(plain, f"{where}/b", convert={"0.up.weight": lambda t: -t})
    assert torch.equal(plain.state_dict()["0.up.weight"], -expected["0.up.weight"])
    mapping = {"0.up.weight": "body.1.up.weight"}
    raises(
        LoadError,
        "unexpected: body.0.up.weight",
        lambda: mt.load_pretrained(plain, f"{where}/b", mapping=mapping),
    )
    mt.load_pretrained(plain, f"{where}/b", mapping=lambda n: mapping.get(n), strict=False)
    assert torch.equal(plain.state_dict()["0.up.weight"], expected["1.up.weight"])


def states_of_optimizers_go_by_names() -> None:
    for rule, other in (("torch AdamW", "engine AdamW"), ("engine AdamW", "torch AdamW")):
        model, optimizer, scheduler = build({**JOB, "rule": rule})
        train(JOB, model, optimizer, scheduler, 0, 2)
        state = get_optimizer_state_dict(model, optimizer, options=FULL)
        assert set(state["state"]) == {
            name for name, param in model.named_parameters() if param.requires_grad
        }
        again, its, _ = build({**JOB, "rule": other, "plan": "zero1", "units": False, "seed": 4})
        set_optimizer_state_dict(again, its, state)
        found = get_optimizer_state_dict(again, its, options=FULL)
        for name, values in state["state"].items():
            for key, value in values.items():
                assert torch.equal(found["state"][name][key], value), (name, key)
        assert [g["lr"] for g in found["param_groups"]] == [g["lr"] for g in state["param_groups"]]
        wrong = {**state, "param_groups": state["param_groups"][:1]}
        if RANK == 0:
            state["state"]["embed.weight"]["exp_avg"] = torch.zeros(3)
        for bad, text in ((wrong, "param groups"), (state, "embed.weight")):
            given = again, its, bad
            raises(meron.ArgumentError, text, functools.partial(set_optimizer_state_dict, *given))


def states_of_schedulers_are_what_they_were() -> None:
    for value in ({1: 2}, (1, [2.5, None]), {"a": math.inf}, {"$x": "y"}, torch.arange(3)):
        again = packing.loads(packing.dumps(value, "it"))
        assert type(again) is type(value)
        assert torch.equal(again, value) if isinstance(value, torch.Tensor) else again == value
    raises(
        meron.ArgumentError, "it['a'] holds a object", lambda: packing.dumps({"a": object()}, "it")
    )


def main(program: dict[str, Any]) -> None:
    """Runs the functions of a program that take nothing and return None."""
    torch.set_num_threads(1)
    promises = [
        (name, function)
        for name, function in program.items()
        if callable(function) and getattr(function, "__annotations__", None) == {"return": "None"}
        if function.__code__.co_argcount == 0 and function.__module__ == program["__name__"]
    ]
    with open(Path(sys.argv[1], str(RANK)), "w", encoding="utf-8") as file:
        for name, function in promises:
            wrong = None
            try:
                function()
            except Exception:
                wrong = traceback.format_exc()
            file.write(json.dumps([name, wrong]) + "\n")
            file.flush()


if __name__ == "__main__":
    main(globals())
