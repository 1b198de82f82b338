# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of sharded modules: a capture is refused, and torch.compile's graphs warn.

tests/gpu/torch/test_cuda.py has the capture on a GPU.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import meron
import meron.torch as mt
from meron.torch.api import own_scope
from meron.torch.torch_internals import not_compiled, set_eval_frame
from meron.torch.tracing import replays_graphs

GRAPHS: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"mode": "reduce-overhead"}, True),
    ({"mode": "max-autotune"}, True),
    ({"mode": "max-autotune-no-cudagraphs"}, False),
    ({"options": {"triton.cudagraphs": True}}, True),
    ({"backend": "eager"}, False),
]


def on_cuda(model: torch.nn.Module, patch: pytest.MonkeyPatch) -> torch.nn.Module:
    """Marks sharded modules as those of a CUDA device whose stream is not captured."""
    patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for module in model.modules():
        own_scope(module).on_cuda = True
    return model


def test_rejects_a_forward_within_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    model = on_cuda(mt.shard(torch.nn.Linear(3, 3), plan="zero1"), monkeypatch)
    before = model(torch.ones(1, 3))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(meron.StateError, match=r"Linear is sharded.*CUDA graph"):
        model(torch.ones(1, 3))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert torch.equal(model(torch.ones(1, 3)), before)


@pytest.mark.parametrize(("options", "graphs"), GRAPHS)
def test_knows_whether_a_compiler_uses_cuda_graphs(options: dict[str, Any], graphs: bool) -> None:
    """Also of the compiler that is active when a sharded module runs."""
    active = []

    @not_compiled
    def probe(x: torch.Tensor) -> torch.Tensor:
        compiler = set_eval_frame(None)
        active.append(replays_graphs(compiler))
        set_eval_frame(compiler)
        return x

    compiled = torch.compile(lambda x: probe(x), **options)
    assert replays_graphs(compiled) == graphs
    compiled(torch.ones(1))
    assert active == [graphs]
    module = torch.nn.Linear(1, 1)
    module.compile(**options)
    assert replays_graphs(module._compiled_call_impl) == graphs
    assert not replays_graphs(None)


@pytest.mark.parametrize(("options", "graphs"), GRAPHS[:2])
@pytest.mark.parametrize("way", ["torch.compile", "module.compile", "before shard"])
def test_warns_of_a_compiled_module_that_uses_cuda_graphs(
    options: dict[str, Any], graphs: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    model = torch.nn.Linear(3, 3)
    if way == "before shard":
        model.compile(**options)
    on_cuda(mt.shard(model), monkeypatch)
    call: Any = model
    if way == "torch.compile":
        call = torch.compile(model, **options)
    elif way == "module.compile":
        model.compile(**options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            call(torch.ones(1, 3))
    found = [one for one in caught if "graphs of Linear again and again" in str(one.message)]
    assert len(found) == graphs
