# SPDX-License-Identifier: Apache-2.0
"""Leaf modules, external params, safe_get and safe_set, and DeepSpeed's module tree."""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import torch
from torch import nn

import meron
from meron import zero
from meron.torch.wrap import scope_of
from model import (
    RANK,
    RANKS,
    Block,
    Model,
    assert_equal_weights,
    config,
    data,
    engine_step,
    loss_of,
    plain_step,
    raises,
    run_cases,
    train,
    twins,
)


class Experts(nn.Module):
    """Which expert runs depends on the data, and on the rank."""

    def __init__(self, size: int = 12, count: int = 3) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(size, size) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = int(x.detach().abs().sum() * 1e3) % len(self.experts)
        return x + self.experts[chosen](x)


class Mixture(Model):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Experts(), Block(12)])


def mixtures(init: bool) -> tuple[Mixture, Mixture]:
    torch.manual_seed(0)
    with zero.Init(enabled=init):
        model = Mixture()
    torch.manual_seed(0)
    return model, Mixture()


def case_leaves_are_one() -> None:
    for init in (False, True):
        model, plain = mixtures(init)
        assert zero.set_z3_leaf_modules(model, [Experts]) == [model.blocks[0]]
        engine = zero.initialize(model=model, config=config())[0]
        scope = scope_of(model.blocks[0])
        assert scope is not None
        assert sum(len(unit.params) for unit in scope.units) == 6
        assert scope_of(model.blocks[0].experts[0]) is None
        assert zero.z3_leaf_module(model.blocks[0]) and not zero.z3_leaf_module(model.blocks[1])
        assert zero.z3_leaf_parameter(model.blocks[0].experts[1].bias)
        assert not zero.z3_leaf_parameter(model.shift)
        train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 4)
        assert_equal_weights(model, plain, 1e-6)
        with raises(meron.StateError, "in use by an engine"):
            zero.set_z3_leaf_modules(model, [Block])


def case_choosing_leaves() -> None:
    class Wide(Block):
        pass

    def model() -> nn.Module:
        return nn.ModuleDict({"a": Block(4), "b": nn.Sequential(Wide(4), nn.Linear(4, 4))})

    first = model()
    assert len(zero.set_z3_leaf_modules(first, Block)) == 2
    assert zero.unset_z3_leaf_modules(first, ["Wide"]) == [first["b"][0]]
    assert zero.get_z3_leaf_modules(first) == [first["a"]]
    assert zero.set_z3_leaf_modules(model(), "model.Block") != []
    with raises(meron.ArgumentError, "Conv2d"):
        zero.set_z3_leaf_modules(first, [nn.Conv2d])
    assert zero.set_z3_leaf_modules(first, [nn.Conv2d], raise_if_not_found=False) == []
    second = model()
    assert zero.set_z3_leaf_modules_by_name(second, ["b.0"]) == ([second["b"][0]], [])
    found, missing = zero.set_z3_leaf_modules_by_suffix(
        second, [".1", "zz"], raise_if_not_found=False
    )
    assert found == [second["b"][1]] and missing == ["zz"]

    third = nn.Sequential(Wide(4), Block(4))
    settings = {"stage": 3, "leaf_module": {"classes": ["Wide"], "name_suffixes": ["1"]}}
    zero.initialize(model=third, config=config(zero_optimization=settings))
    assert zero.get_z3_leaf_modules(third) == [third[0], third[1]]
    small = {"stage": 3, "stage3_module_granularity_threshold": 100}
    fourth = nn.Sequential(Block(4), nn.Linear(64, 64))
    zero.initialize(model=fourth, config=config(zero_optimization=small))
    assert zero.get_z3_leaf_modules(fourth) == [fourth[0]]


class Hidden(nn.Module):
    """Gets a param that no one can see it gets."""

    def __init__(self, get: Any) -> None:
        super().__init__()
        self.get = get
        self.own = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.own(x) @ self.get()


class Outer(nn.Module):
    def __init__(self, register: bool) -> None:
        super().__init__()
        self.weights = nn.Linear(4, 4)
        weight = [self.weights.weight]
        self.hidden = Hidden(lambda: weight[0])
        if register:
            zero.register_external_parameter(self.hidden, self.weights.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.hidden(x)


class Returns(nn.Module):
    """Gives its param away; the parent uses it, and another one's by name."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

        def forward(self) -> torch.Tensor:
            return self.weight

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.Inner()
        self.other = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.inner() @ self.other.weight


def case_params_of_others() -> None:
    for make in (lambda: Outer(True), Returns):
        for init in (False, True):
            torch.manual_seed(0)
            with zero.Init(enabled=init):
                model = make()
            torch.manual_seed(0)
            plain = make()
            engine = zero.initialize(model=model, config=config())[0]
            optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
            for step in range(3):
                x = torch.arange(RANKS * 8.0).view(RANKS, 2, 4) / 30 + step
                engine.backward(engine(x[RANK]).tanh().sum())
                engine.step()
                optimizer.zero_grad()
                for rank in range(RANKS):
                    (plain(x[rank]).tanh().sum() / RANKS).backward()
                optimizer.step()
            assert_equal_weights(model, plain, 1e-6)


def case_registering() -> None:
    module, param = nn.Linear(2, 2), nn.Parameter(torch.ones(2))
    with raises(meron.ArgumentError, "torch.nn.Parameter"):
        zero.register_external_parameter(module, torch.ones(2))
    with raises(meron.ArgumentError, "not registered"):
        zero.unregister_external_parameter(module, param)
    with zero.Init():
        first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    zero.register_external_parameter(first, second.weight)
    scope = scope_of(first)
    assert scope is not None and len(scope.units) == 2
    zero.unregister_external_parameter(first, second.weight)
    assert len(scope.units) == 1


def case_moves_that_change_nothing() -> None:
    with zero.Init():
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert model.to("cpu").float() is model
    with raises(meron.StateError, "cannot be moved"):
        model.to(torch.bfloat16)
    with raises(meron.StateError, "cannot be moved"):
        model.to_empty(device="cpu")


def case_values_gradients_and_states() -> None:
    for stage in (1, 2, 3):
        for kind in ("AdamW", "torch"):
            model, plain = twins()
            block = {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": kind == "torch"}}
            engine = zero.initialize(model=model, config=config(stage, optimizer=block))[0]
            expected = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
            generator = torch.Generator().manual_seed(1)
            x, y = data(generator)
            weight, twin = model.blocks[1].up.weight, plain.blocks[1].up.weight
            assert zero.safe_get_full_optimizer_state(weight, "nonsense") is None
            engine.backward(loss_of(engine, x[RANK], y[RANK]))
            gradient = zero.safe_get_full_grad(weight)
            local = zero.safe_get_local_grad(weight)
            zero.safe_set_full_grad(model.shift, torch.zeros(12))
            engine.step()
            plain_step(plain, expected, [(x, y)])
            assert torch.allclose(gradient, twin.grad, atol=1e-6)
            unit, i = weight._meron
            owned = unit.owned(i)
            mine = gradient.view(-1)[owned.start : owned.stop]
            assert torch.equal(local, mine)
            assert float(zero.safe_get_full_fp32_param(model.shift).abs().max()) == 0.0
            for key in ("exp_avg", "exp_avg_sq"):
                state = zero.safe_get_full_optimizer_state(weight, key)
                assert torch.allclose(state, expected.state[twin][key], atol=1e-6), key
                zero.safe_set_full_optimizer_state(weight, state * 2, key)
                part = zero.safe_get_local_optimizer_state(weight, key)
                assert torch.equal(part, state.view(-1)[owned.start : owned.stop] * 2)
                zero.safe_set_local_optimizer_state(weight, part / 2, key)
                assert torch.equal(zero.safe_get_full_optimizer_state(weight, key), state)
            # Sizes that do not divide by the number of ranks.
            zero.safe_set_full_fp32_param(weight, torch.arange(288.0).view(24, 12))
            part = zero.safe_get_local_fp32_param(weight)
            assert torch.equal(part, torch.arange(288.0)[owned.start : owned.stop])
            zero.safe_set_local_fp32_param(weight, part + 1)
            whole = zero.safe_get_full_fp32_param(weight)
            assert torch.equal(whole.view(-1), torch.arange(288.0) + 1)
            engine.backward(loss_of(engine, x[RANK], y[RANK]))
            with raises(meron.ArgumentError, "elements"):
                zero.safe_set_local_grad(weight, torch.zeros(len(owned) + 1))
            zero.safe_update_full_grad_vectorized([weight], lambda g, p: torch.ones_like(p))
            assert torch.equal(zero.safe_get_full_grad(weight), torch.ones(24, 12))
            engine.step()
    assert zero.safe_get_full_grad(nn.Parameter(torch.ones(2))) is None


def case_gradients_in_an_accumulation() -> None:
    model, _ = twins()
    engine = zero.initialize(model=model, config=config(gradient_accumulation_steps=2))[0]
    batch = data(torch.Generator().manual_seed(1))
    engine.backward(loss_of(engine, batch[0][RANK], batch[1][RANK]))
    with raises(meron.StateError, "not complete"):
        zero.safe_get_full_grad(model.shift)
    engine.step()
    engine_step(engine, [batch])


def case_a_script_of_deepspeed() -> None:
    import meron.zero.compat as deepspeed

    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    args = parser.parse_args(["--deepspeed", "--local_rank", "0"])
    assert args.deepspeed
    deepspeed.init_distributed("gloo")
    assert torch.distributed.get_world_size() == RANKS
    assert deepspeed.comm.get_rank() == RANK and deepspeed.comm.get_world_size() == RANKS
    total = torch.tensor([float(RANK), 1.0])
    deepspeed.comm.all_reduce(total)
    assert total.tolist() == [sum(range(RANKS)), RANKS]
    deepspeed.comm.broadcast(total.fill_(RANK), RANKS - 1)
    assert total.tolist() == [RANKS - 1] * 2
    deepspeed.comm.barrier()
    torch.manual_seed(0)
    own = config()  # without an optimizer: the script has one
    own.pop("optimizer", None)
    with deepspeed.zero.Init(config_dict_or_path=own):
        model = Model()
    optimizer = deepspeed.ops.adam.FusedAdam(model.parameters(), lr=0.01)
    engine, optimizer, _, _ = deepspeed.initialize(
        args=args, model=model, optimizer=optimizer, config=own
    )
    assert isinstance(engine, deepspeed.DeepSpeedEngine)
    torch.manual_seed(0)
    plain = Model()
    train(engine, plain, torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0), 3)
    assert_equal_weights(model, plain, 1e-5)
    value = deepspeed.utils.safe_get_full_fp32_param(model.shift)
    with deepspeed.zero.GatheredParameters(model.shift):
        assert torch.equal(model.shift, value)

    deepspeed.install("deepspeed_of_a_test")
    scope: dict[str, Any] = {}
    exec(
        "import deepspeed_of_a_test as d\n"
        "from deepspeed_of_a_test.utils import safe_get_full_grad\n"
        "from deepspeed_of_a_test.ops.adam import DeepSpeedCPUAdam\n"
        "from deepspeed_of_a_test.runtime.zero.stage3 import "
        "estimate_zero3_model_states_mem_needs\n"
        "from deepspeed_of_a_test.runtime.lr_schedules import WarmupLR\n"
        "from deepspeed_of_a_test.zero import GatheredParameters, register_external_parameter\n",
        scope,
    )
    assert scope["d"] is deepspeed


def case_leaves_by_any_base() -> None:
    class Expert:
        """No module, but a base of one."""

    class Both(nn.Linear, Expert):
        pass

    model = nn.Sequential(Both(2, 2), nn.Linear(2, 2))
    assert zero.set_z3_leaf_modules(model, "Expert") == [model[0]]
    for wrong in (model[0], [model[0]], [3]):
        with raises(meron.ArgumentError, "class"):
            zero.set_z3_leaf_modules(model, wrong)
    with raises(meron.ArgumentError, "Module"):
        zero.set_z3_leaf_modules(model, "Module")
    zero.set_z3_leaf_module(model, True)
    zero.set_z3_leaf_module(model[0], False)
    assert zero.z3_leaf_parameter(model[0].weight)  # by the leaf around


def case_known_mixtures_are_leaves() -> None:
    class MixtralSparseMoeBlock(Experts):
        __module__ = "transformers.models.mixtral.modeling_mixtral"
        __qualname__ = "MixtralSparseMoeBlock"

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that none of them is there is no reason to warn
        zero.initialize(model=nn.Linear(2, 2), config=config())
    model = nn.Sequential(MixtralSparseMoeBlock())
    zero.initialize(model=model, config=config())
    assert zero.get_z3_leaf_modules(model) == [model[0]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        settings = {"stage": 3, "leaf_module": {"classes": ["Elsewhere"]}}
        zero.initialize(model=nn.Linear(2, 2), config=config(zero_optimization=settings))
    assert "Elsewhere" in str(caught[0].message)


def case_leaves_after_an_engine() -> None:
    model = nn.Sequential(Block(4))
    engine = zero.initialize(model=model, config=config())[0]
    with raises(meron.StateError, "in use by an engine"):
        zero.set_z3_leaf_module(model[0], True)
    engine.destroy()
    zero.set_z3_leaf_module(model[0], True)


def case_one_rank_has_it_all() -> None:
    """Stage 0: a rank's part is the whole."""
    for kind in ("AdamW", "SGD"):
        model, _ = twins()
        block = {"type": kind, "params": {"lr": 0.1}}
        engine = zero.initialize(model=model, config=config(0, optimizer=block))[0]
        x, y = data(torch.Generator().manual_seed(1))
        engine.backward(loss_of(engine, x[RANK], y[RANK]))
        weight = model.blocks[0].up.weight
        part = zero.safe_get_local_grad(weight)
        assert torch.equal(part, zero.safe_get_full_grad(weight).view(-1))
        zero.safe_set_local_grad(weight, torch.zeros(288))
        zero.safe_set_local_fp32_param(weight, torch.arange(288.0))
        engine.step()
        assert torch.equal(zero.safe_get_full_fp32_param(weight).view(-1), torch.arange(288.0))
        assert torch.equal(zero.safe_get_local_fp32_param(weight), torch.arange(288.0))


def case_f32_values_of_16_bit_params() -> None:
    for kind in ("AdamW", "SGD"):
        model, _ = twins()
        block = {"type": kind, "params": {"lr": 0.0}}
        settings = config(bf16={"enabled": True}, optimizer=block)
        engine = zero.initialize(model=model, config=settings)[0]
        weight = model.blocks[0].up.weight
        unit, i = weight._meron
        values = torch.arange(288.0) + 1 / 3
        owned = unit.owned(i)
        zero.safe_set_local_fp32_param(weight, values[owned.start : owned.stop].double())
        assert torch.equal(zero.safe_get_full_fp32_param(weight).view(-1), values)
        engine_step(engine, [data(torch.Generator().manual_seed(1))])
        assert torch.equal(zero.safe_get_full_fp32_param(weight).view(-1), values)
        assert torch.equal(weight.ds_tensor, values[owned.start : owned.stop].bfloat16())
        zero.safe_set_full_fp32_param(weight, torch.ones(24, 12, dtype=torch.int64))
        assert torch.equal(zero.safe_get_full_fp32_param(weight), torch.ones(24, 12))


def case_writes_to_a_part_are_told() -> None:
    for stage in (1, 3):
        model, _ = twins()
        zero.initialize(model=model, config=config(stage))
        weight = model.blocks[0].up.weight
        before = zero.safe_get_full_fp32_param(weight)
        for write in (
            lambda part: part.fill_(1.0),
            lambda part: part.data.copy_(torch.zeros_like(part)),
            lambda part: part.view(-1)[:1].add_(1),
            lambda part: setattr(part, "data", torch.zeros(3)),
        ):
            with raises(meron.StateError, "up.weight' is sharded: a write"):
                write(weight.ds_tensor)
        assert torch.equal(zero.safe_get_full_fp32_param(weight), before)
        with zero.GatheredParameters(weight), raises(meron.StateError, "safe_set_local_fp32_param"):
            weight.ds_tensor.zero_()


def case_states_that_cannot_be_written() -> None:
    for kind in ("AdamW", "torch"):
        model, _ = twins()
        block = {"type": "AdamW", "params": {"torch_adam": kind == "torch"}}
        engine = zero.initialize(model=model, config=config(optimizer=block))[0]
        engine_step(engine, [data(torch.Generator().manual_seed(1))])
        weight = model.blocks[0].up.weight
        assert float(zero.safe_get_full_optimizer_state(weight, "step")) == 1
        for write in (zero.safe_set_full_optimizer_state, zero.safe_set_local_optimizer_state):
            if kind == "torch":
                write(weight, torch.tensor(5.0), "step")
                assert float(zero.safe_get_local_optimizer_state(weight, "step")) == 5
            else:
                with raises(meron.UnsupportedError, "step"):
                    write(weight, torch.tensor(5.0), "step")
            with raises(meron.ArgumentError, "weight"):
                write(weight, torch.zeros(3), "exp_avg")
            with raises(meron.ArgumentError, "'nonsense'"):
                write(weight, torch.zeros(24, 12), "nonsense")


def case_misuse_names_the_param() -> None:
    outside = nn.Parameter(torch.ones(2))
    for get in (zero.safe_get_full_optimizer_state, zero.safe_get_local_optimizer_state):
        assert get(outside, "exp_avg") is None
    assert zero.safe_get_local_fp32_param(outside) is None
    assert zero.safe_get_local_grad(outside) is None
    for write in (zero.safe_set_full_fp32_param, zero.safe_set_local_fp32_param):
        with raises(meron.ArgumentError, "no sharded param"):
            write(outside, torch.ones(2))
    with zero.Init():
        layer = nn.Linear(2, 3)
    with raises(meron.StateError, "weight has no optimizer"):
        zero.safe_get_full_optimizer_state(layer.weight, "exp_avg")
    with raises(meron.ArgumentError, "(3, 2)"):
        zero.safe_set_full_fp32_param(layer.weight, torch.ones(2, 3))
    engine = zero.initialize(model=layer, config=config())[0]
    with raises(meron.StateError, "has no gradient"):
        zero.safe_set_local_grad(layer.weight, torch.zeros(len(layer.weight._meron[0].owned(0))))
    assert zero.safe_get_full_grad(layer.weight) is None
    engine.backward(engine(torch.ones(2)).sum())
    with raises(meron.ArgumentError, "(3, 2)"):
        zero.safe_set_full_grad(layer.weight, torch.ones(2, 3))
    with raises(meron.ArgumentError, "(3, 2)"):
        zero.safe_update_full_grad_vectorized([layer.weight], lambda g, p: g.sum(0))
    engine.step()


def case_collectives_do_what_they_are_asked() -> None:
    from meron.zero import comm

    total = torch.tensor([float(RANK)])
    comm.all_reduce(total, comm.ReduceOp.SUM)
    assert total.tolist() == [sum(range(RANKS))]
    with raises(meron.UnsupportedError, "MAX"):
        comm.all_reduce(total, op=comm.ReduceOp.MAX)
    for collective in (comm.all_reduce, comm.broadcast):
        with raises(meron.UnsupportedError, "async_op"):
            collective(total, async_op=True)
    with raises(meron.ArgumentError, "int64"):
        comm.all_reduce(torch.tensor([1]))
    with raises(meron.ArgumentError, "src"):
        comm.broadcast(total, RANKS)
    strided = torch.full((4, 3), float(RANK)).t()
    comm.broadcast(strided, RANKS - 1)
    assert torch.equal(strided, torch.full((3, 4), RANKS - 1.0))
    with raises(meron.ArgumentError, "torch.distributed"):
        comm.get_rank(group=object())


def case_options_of_deepspeeds_adam() -> None:
    from meron.zero.compat import ops

    params = [nn.Parameter(torch.ones(2))]
    for kind, option in (
        (ops.adam.FusedAdam, {"bias_correction": False}),
        (ops.adam.FusedAdam, {"adam_w_mode": False, "weight_decay": 0.1}),
        (ops.adam.FusedAdam, {"set_grad_none": False}),
        (ops.adam.DeepSpeedCPUAdam, {"fp32_optimizer_states": False}),
    ):
        with raises(meron.UnsupportedError, next(iter(option))):
            kind(params, **option)
    assert ops.adam.DeepSpeedCPUAdam(params).defaults["weight_decay"] == 0.0


if __name__ == "__main__":
    run_cases(sys.modules[__name__])
