# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing: the bits of a run without it, with any flags and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from checkpointed import BLOCKS, FLAGS, Block, Model, equal, gradients, plain, torchs
from checkpointed import fresh as fresh

import meron
from meron import checkpointing
from meron.checkpointing.layout import Layout, overlaps


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: "+".join(flags) or "none")
def test_gradients_have_the_bits_of_a_run_without(flags: dict[str, Any]) -> None:
    model = Model()
    expected = gradients(model, plain)
    assert equal(expected, gradients(model, torchs))
    checkpointing.configure(None, **flags)
    for _ in range(3):
        assert equal(expected, gradients(model, checkpointing.checkpoint))
    assert equal(expected, gradients(model, checkpointing.non_reentrant_checkpoint))


def test_checkpoints_beside_and_within_each_other() -> None:
    model = Model()
    expected = gradients(model, plain)
    ours = checkpointing.checkpoint
    checkpointing.configure(None, contiguous_checkpointing=True, profile=True)
    pairs = [(ours, ours), (ours, torchs), (torchs, ours)]
    for outer, inner in pairs:
        nested = lambda block, x, o=outer, i=inner: o(lambda y: i(block, y), x)  # noqa: E731
        assert equal(expected, gradients(model, nested))
    turns = iter([ours, torchs] * BLOCKS)
    assert equal(expected, gradients(model, lambda block, x: next(turns)(block, x)))
    with torch.autograd.graph.save_on_cpu():
        assert equal(expected, gradients(model, ours))


def test_arguments_of_any_kind() -> None:
    """Nested, by keyword, without gradients, no tensors, several outputs."""
    weight = torch.randn(4, 4, requires_grad=True)

    def function(pair: Any, *, scale: float, parts: dict[str, Any], mask: torch.Tensor) -> Any:
        (x, count), name = pair
        assert name == "name" and parts["none"] is None
        y = torch.where(mask, x @ weight, parts["y"][0]).exp() * scale
        return {"y": y, "rest": [y.sum(), count, x * parts["y"][0]]}

    def run(call: Callable[..., Any]) -> list[torch.Tensor]:
        x = torch.arange(16.0).view(4, 4).div(9).requires_grad_()
        y = torch.ones(4, 4, requires_grad=True)
        mask = torch.eye(4) > 0
        out = call(
            function, ((x * 2, 3), "name"), scale=0.5, parts={"y": [y], "none": None}, mask=mask
        )
        assert out["rest"][1] == 3
        (out["y"].sum() + out["rest"][0] * 3 + out["rest"][2].sum()).backward()
        found = [x.grad, y.grad, weight.grad]
        weight.grad = None
        return found  # type: ignore[return-value]

    expected = run(plain)
    for flags in FLAGS:
        checkpointing.configure(None, **flags)
        assert equal(expected, run(checkpointing.checkpoint))


def test_inputs_without_gradients_still_train_the_params() -> None:
    block, x = Block(), torch.randn(2, 16)
    checkpointing.checkpoint(block, x).sum().backward()
    assert all(param.grad is not None for param in block.parameters())


def test_autograd_grad_and_retained_graphs_and_second_derivatives() -> None:
    x = torch.randn(5, requires_grad=True)
    results = []
    for call in (plain, checkpointing.checkpoint):
        y = call(lambda v: (v.sin() * v.exp()).sum(), x * 1)
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
        (again,) = torch.autograd.grad(y, x, retain_graph=True)
        results.append([first.detach(), second, again])
    assert equal(*results)


def test_a_node_that_reads_its_tensors_twice() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, x * 2)
            return x * x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient * (ctx.saved_tensors[0] + ctx.saved_tensors[1] / 2) * 2

    x = torch.randn(3, requires_grad=True)
    calls = []
    checkpointing.checkpoint(lambda v: (calls.append(1), Twice.apply(v).sum())[1], x * 1).backward()
    torch.testing.assert_close(x.grad, x.detach() * 4)
    assert len(calls) == 3  # once more than usual


def test_autocast_is_as_it_was() -> None:
    model = Model()
    checkpointing.configure(None, contiguous_checkpointing=True)
    results = []
    for call in (plain, checkpointing.checkpoint):
        torch.manual_seed(1)
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(call).float().square().sum()
        loss.backward()  # outside of it
        results.append([param.grad.clone() for param in model.parameters()])  # type: ignore[union-attr]
    assert equal(*results)


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_compiled_models_and_blocks() -> None:
    """A model that is compiled breaks at each checkpoint; blocks that are compiled stay so."""
    model = Model()
    for block in model.blocks:
        block.eval()  # compiled dropout draws other numbers
    expected = gradients(model, plain)
    compiled: Any = torch.compile(model, backend="aot_eager")
    compiled(checkpointing.checkpoint)
    assert equal(expected, gradients(compiled, checkpointing.checkpoint))
    for block in model.blocks:
        block.compile(backend="aot_eager")
    assert equal(expected, gradients(model, checkpointing.checkpoint))


def test_strides_come_back() -> None:
    base = torch.randn(4, 6, 5)
    for tensor in (
        base,
        base.permute(2, 0, 1),
        base[:, ::2, 1:3],
        base[0].expand(3, 6, 5),
        base[:, :1].expand(4, 7, 5).transpose(0, 2),
        base.view(-1).unfold(0, 4, 2),
        base[:0],
        torch.tensor(3.0),
    ):
        layout = Layout(tensor)
        flat = layout.flatten(tensor).clone()
        assert flat.dim() == 1 and flat.numel() == layout.size
        again = layout.rebuild(flat)
        assert torch.equal(again, tensor)
        if not overlaps(layout.core, layout.strides):
            assert again.stride() == tensor.stride()


def test_without_gradients_it_only_calls() -> None:
    block, x = Block().eval(), torch.randn(2, 16)
    checkpointing.configure(None, contiguous_checkpointing=True, num_checkpoints=1, profile=True)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            outs = [checkpointing.checkpoint(block, x) for _ in range(3)]
        assert not outs[0].requires_grad
    assert checkpointing.profile_summary().forwards == 0


# ---- Random numbers -----------------------------------------------------------------------------


def test_the_tracker_draws_on_and_is_replayed() -> None:
    tracker = checkpointing.get_cuda_rng_tracker()
    checkpointing.model_parallel_cuda_manual_seed(7)
    with tracker.fork():
        first = torch.rand(3)
        with tracker.fork():  # in use already: it goes on
            second = torch.rand(3)
    outside = torch.rand(3)
    checkpointing.model_parallel_cuda_manual_seed(7)
    with tracker.fork():
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.rand(3), outside)
    states = tracker.get_states()
    with tracker.fork():
        assert torch.equal(torch.rand(3), second)
    tracker.set_states(states)
    with tracker.fork():
        assert torch.equal(torch.rand(3), second)
    checkpointing.model_parallel_reconfigure_tp_seed(7)
    with tracker.fork():
        assert torch.equal(torch.rand(3), first)

    def noisy(x: torch.Tensor) -> torch.Tensor:
        with tracker.fork():
            x = torch.nn.functional.dropout(x)
        return torch.nn.functional.dropout(x.sin())

    results = []
    for call in (plain, checkpointing.checkpoint):
        checkpointing.model_parallel_cuda_manual_seed(3)
        x = torch.ones(99, requires_grad=True)
        call(noisy, call(noisy, x)).sum().backward()
        with tracker.fork():
            results.append([x.grad, torch.rand(2)])
    assert equal(*results)  # type: ignore[arg-type]


def test_misuse_of_the_tracker() -> None:
    tracker = checkpointing.RNGStatesTracker("cpu")
    tracker.add("one", 1)
    tracker.add("two", 2)
    with pytest.raises(meron.ArgumentError, match="exists already"):
        tracker.add("one", 3)
    with pytest.raises(meron.ArgumentError, match="seed 1"):
        tracker.add("three", 1)
    with (
        pytest.raises(meron.ArgumentError, match="no random state named 'four'"),
        tracker.fork("four"),
    ):
        pass
    with tracker.fork("one"), pytest.raises(meron.StateError):
        tracker.reset()
    with tracker.fork("one"), tracker.fork("two"), pytest.raises(meron.StateError, match="within"):
        tracker.fork("one").__enter__()
    with pytest.raises(meron.ArgumentError, match="model_parallel_cuda_manual_seed"):
        checkpointing.model_parallel_reconfigure_tp_seed(3)
