# SPDX-License-Identifier: Apache-2.0
"""torch.compile and torch.func on sharded modules."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mlp import RANK, RANKS, data, same
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import meron
import meron.torch as mt
import meron.zero

pytestmark = pytest.mark.ranks(2)
Make = Callable[[nn.Module], Any]
MakeCompiled = Callable[[Any], tuple[nn.Module, nn.Module]]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.down(torch.tanh(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def model() -> Model:
    torch.manual_seed(7)
    return Model()


def sharded(**options: Any) -> Model:
    return mt.shard(model(), **{"units": Block, **options})


def loss(module: nn.Module, seed: int) -> torch.Tensor:
    return module(data(seed)).float().square().mean()


# ---- torch.compile ------------------------------------------------------------------------------


def trains_compiled(make: MakeCompiled) -> None:
    """Trains a compiled model beside plain torch, and checks the number of graphs.

    Args:
        make: returns a sharded model and the module to call, compiled by the given backend.
    """
    made = 0

    def backend(module: torch.fx.GraphModule, _inputs: Any) -> Any:
        nonlocal made
        made += 1
        return module.forward

    torch._dynamo.reset()
    sharded_model, called = make(backend)
    plain = model()
    optimizer = mt.shard_optimizer(
        sharded_model, torch.optim.SGD(sharded_model.parameters(), lr=0.1)
    )
    twin = torch.optim.SGD(plain.parameters(), lr=0.1)
    first = 0
    for step in range(3):
        value = loss(called, RANK + 10 * step)
        torch.testing.assert_close(value, loss(plain, RANK + 10 * step))
        value.backward()
        optimizer.step()
        twin.zero_grad()
        for rank in range(RANKS):
            (loss(plain, rank + 10 * step) / RANKS).backward()
        twin.step()
        first = first or made
    same(sharded_model, plain)
    assert 1 <= made == first <= 3


def compile_itself(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = model()
    made.compile(backend=backend)
    mt.shard(made, units=Block)
    return made, made


def compile_blocks(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = model()
    for block in made.blocks:
        block.compile(backend=backend)
    mt.shard(made, units=Block)
    return made, made


def shard_the_compiled(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = model()
    compiled = torch.compile(made, backend=backend)
    mt.shard(compiled, units=Block)
    return made, compiled


def shard_the_original(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = model()
    compiled = torch.compile(made, backend=backend)
    mt.shard(made, units=Block)
    return made, compiled


@pytest.mark.parametrize(
    "make", [compile_itself, compile_blocks, shard_the_compiled, shard_the_original]
)
def test_trains_a_model_compiled_before_shard(make: MakeCompiled) -> None:
    trains_compiled(make)


def compile_units(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = sharded()
    return made, torch.compile(made, backend=backend)


def compile_one_unit(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = sharded(units=None)
    return made, torch.compile(made, backend=backend)


def compile_without_reshard(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = sharded(reshard_after_forward=False)
    made.compile(backend=backend)
    return made, made


def compile_forwards(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = sharded()
    for block in made.blocks:
        block.forward = torch.compile(block.forward, backend=backend)
    return made, made


@pytest.mark.parametrize(
    "make", [compile_units, compile_one_unit, compile_without_reshard, compile_forwards]
)
def test_trains_a_model_compiled_after_shard(make: MakeCompiled) -> None:
    trains_compiled(make)


def test_engine_runs_a_compiled_module() -> None:
    seen: list[int] = []

    def backend(module: torch.fx.GraphModule, _inputs: Any) -> Any:
        seen.append(1)
        return module.forward

    torch._dynamo.reset()
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}
    engine = meron.zero.initialize(model=model(), config=config)[0]
    engine.module.compile(backend=backend)
    torch.testing.assert_close(loss(engine, 3), loss(model(), 3))
    assert seen


def compile_full_blocks(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = sharded()
    for block in made.blocks:
        block.compile(backend=backend, fullgraph=True)
    return made, made


def replace_full_blocks(backend: Any) -> tuple[nn.Module, nn.Module]:
    made = sharded()
    for i, block in enumerate(list(made.blocks)):
        made.blocks[i] = torch.compile(block, backend=backend, fullgraph=True)
    return made, made


@pytest.mark.parametrize("make", [compile_full_blocks, replace_full_blocks])
def test_trains_sharded_blocks_compiled_as_full_graphs(make: MakeCompiled) -> None:
    trains_compiled(make)


def test_rejects_a_full_graph_of_several_units() -> None:
    made = torch.compile(sharded(), backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="With fullgraph=True compile the modules that are"):
        made(data(0))
    loss(sharded(), 0).backward()


@pytest.mark.parametrize("plan", ["zero1", "zero3"])
@pytest.mark.parametrize("kind", ["torch", "engine"])
@pytest.mark.parametrize("scheduled", [False, True])
def test_a_compiled_step_is_the_plain_one(plan: str, kind: str, scheduled: bool) -> None:
    torch._dynamo.reset()
    made, plain = sharded(plan=plan), model()
    twin = torch.optim.SGD(plain.parameters(), lr=0.1)
    optimizer: torch.optim.Optimizer
    if kind == "engine":
        optimizer = mt.SGD(made, lr=0.1)
    else:
        optimizer = mt.shard_optimizer(made, torch.optim.SGD(made.parameters(), lr=0.1))
    if scheduled:
        torch.optim.lr_scheduler.StepLR(optimizer, 10)
    step = torch.compile(optimizer.step, backend="aot_eager")
    for seed in range(3):
        loss(made, RANK + 10 * seed).backward()
        step()
        optimizer.zero_grad()
        twin.zero_grad()
        for rank in range(RANKS):
            (loss(plain, rank + 10 * seed) / RANKS).backward()
        twin.step()
    same(made, plain)


@pytest.mark.parametrize("plan", ["zero1", "zero3"])
def test_compiled_autograd_computes_the_same(plan: str) -> None:
    torch._dynamo.reset()
    made, plain = sharded(plan=plan), model()
    optimizer = mt.shard_optimizer(made, torch.optim.SGD(made.parameters(), lr=0.1))
    twin = torch.optim.SGD(plain.parameters(), lr=0.1)
    called = torch.compile(made, backend="aot_eager")
    for seed in range(3):
        with torch._dynamo.config.patch(compiled_autograd=True):
            loss(called, RANK + 10 * seed).backward()
        optimizer.step()
        optimizer.zero_grad()
        twin.zero_grad()
        for rank in range(RANKS):
            (loss(plain, rank + 10 * seed) / RANKS).backward()
        twin.step()
    same(made, plain)


def test_rejects_tracers() -> None:
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def fake(module: nn.Module) -> None:
        with FakeTensorMode(allow_non_fake_inputs=True):
            module(torch.ones(1, 8))

    for record, words in (
        (lambda m: torch.jit.trace(m, (X,)), "torch.jit.trace"),
        (torch.jit.script, "torch.jit.script"),
        (lambda m: torch.jit.script(nn.Sequential(m)), "torch.jit.script"),
        (lambda m: make_fx(m)(X), "torch.export or another tracer"),
        (lambda m: torch.export.export(m, (X,), strict=False), "is sharded"),
        (fake, "FakeTensorMode"),
    ):
        made = sharded()
        with pytest.raises(meron.StateError, match=re.escape(words)):
            record(made)
        torch.testing.assert_close(made(X), PLAIN(X))
    with torch.utils.flop_counter.FlopCounterMode(display=False) as flops:  # it records nothing
        sharded()(X)
    assert flops.get_total_flops() > 0


# ---- torch.func ---------------------------------------------------------------------------------


def values(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    items = result.values() if isinstance(result, dict) else result
    return [tensor for item in items for tensor in values(item)]


def by_params(module: nn.Module, params: Any, x: torch.Tensor) -> torch.Tensor:
    return functional_call(module, params, (x,)).square().sum()


def full(module: nn.Module) -> dict[str, torch.Tensor]:
    """Returns full values of the params, as functional_call takes them."""
    if module is PLAIN:
        return {name: param.detach() for name, param in module.named_parameters()}
    return {name: mt.full_param(param) for name, param in module.named_parameters()}


PLAIN = model()
X = data(1)
FUNCTIONS: dict[str, Make] = {
    "grad": lambda m: grad(lambda x: m(x).sum())(X),
    "vjp": lambda m: vjp(m, X)[1](torch.ones(4, 4)),
    "jvp": lambda m: jvp(m, (X,), (torch.ones_like(X),)),
    "jacrev": lambda m: jacrev(m)(X),
    "jacfwd": lambda m: jacfwd(m)(X),
    "hessian": lambda m: hessian(lambda x: m(x).sum())(X[0]),
    "vmap": lambda m: vmap(m)(X),
    "functional_call": lambda m: by_params(m, full(m), X),
    "grad of params": lambda m: grad(lambda p: by_params(m, p, X))(full(m)),
    "grad per sample": lambda m: vmap(grad(lambda p, x: by_params(m, p, x)), (None, 0))(full(m), X),
    "vectorized": lambda m: torch.autograd.functional.jacobian(m, X, vectorize=True),
}


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_torch_func_equals_plain_torch(plan: str) -> None:
    """For a module that has run before, and for one that has not."""
    used = sharded(plan=plan)
    loss(used, 0)
    for name, function in FUNCTIONS.items():
        expected = values(function(PLAIN))
        fresh = sharded(plan=plan)
        for module in (fresh, used):
            for got, wanted in zip(values(function(module)), expected):
                torch.testing.assert_close(got, wanted, msg=f"{name}, {plan}")
        loss(fresh, RANK).backward()  # the module still trains
        plain = model()
        for rank in range(RANKS):
            (loss(plain, rank) / RANKS).backward()
        for param, wanted in zip(fresh.parameters(), plain.parameters()):
            torch.testing.assert_close(mt.full_grad(param), wanted.grad)


def test_torch_func_works_on_an_engine() -> None:
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}
    for name in ("grad", "jvp", "vmap", "grad of params"):
        engine = meron.zero.initialize(model=model(), config=config)[0]
        if name == "grad of params":
            whole = {k: mt.full_param(p) for k, p in engine.named_parameters()}
            got = grad(lambda p: by_params(engine, p, X))(whole)  # noqa: B023
        else:
            got = FUNCTIONS[name](engine)
        for value, wanted in zip(values(got), values(FUNCTIONS[name](PLAIN))):
            torch.testing.assert_close(value, wanted, msg=name)


@pytest.mark.parametrize("plan", ["zero1", "zero3"])
def test_detached_params_give_values_or_a_refusal(plan: str) -> None:
    module, plain = sharded(plan=plan), model()
    x = data(0)

    def per_sample(of: nn.Module, params: Any) -> Any:
        def value(params: Any, x: torch.Tensor) -> torch.Tensor:
            return functional_call(of, params, (x[None],)).square().mean()

        return vmap(grad(value), (None, 0))(params, x)

    expected = per_sample(plain, {k: v.detach() for k, v in plain.named_parameters()})
    detached = {key: value.detach() for key, value in module.named_parameters()}
    weight = module.head.weight
    transforms: list[Callable[[], Any]] = [
        lambda: per_sample(module, detached),
        lambda: jacrev(lambda p: functional_call(module, p, (x,)))(detached),
        lambda: vjp(lambda p: functional_call(module, p, (x,)), detached)[0],
        lambda: vmap(lambda p: p.sum())(weight),
        lambda: vmap(lambda p: p.sum())(weight.detach()),
        lambda: weight.as_subclass(torch.Tensor).sum(),
        lambda: torch.nested.nested_tensor([weight, weight.detach()]),
    ]
    for transform in transforms:
        if plan == "zero3":
            with pytest.raises(meron.StateError, match=r"sharded and not in use"):
                transform()
        else:
            transform()
    for params in (detached,) if plan == "zero1" else ():
        torch.testing.assert_close(per_sample(module, params), expected)
    torch.testing.assert_close(per_sample(module, dict(module.named_parameters())), expected)
    with meron.zero.GatheredParameters(list(module.parameters())):
        detached = {key: value.detach() for key, value in module.named_parameters()}
        torch.testing.assert_close(per_sample(module, detached), expected)
