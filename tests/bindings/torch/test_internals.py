# SPDX-License-Identifier: Apache-2.0
"""Names of PyTorch that are missing, and the tables of phases."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from meron import errors  # noqa: E402
from meron.torch import torch_internals, unit  # noqa: E402
from meron.torch.gradients import accumulation  # noqa: E402


def test_missing_name_is_named_with_its_purpose() -> None:
    with pytest.raises(errors.UnsupportedError, match=r"torch\._C\._gone.*do this") as caught:
        torch_internals.need("_C._gone", "do this")
    assert torch.__version__ in str(caught.value) and caught.value.subject == "torch._C._gone"


def test_missing_optional_name_has_a_fallback() -> None:
    assert torch_internals.optional("_C._gone", len) is len
    assert torch_internals.submodule("torch._gone", "name", len) is len


def test_gradient_hooks_of_tensors_and_of_subclasses() -> None:
    seen: list[Any] = []
    x = torch.ones(2, requires_grad=True)
    for tensor in (x * 2, (x * 2).as_subclass(type("Own", (torch.Tensor,), {}))):
        torch_internals.hook_gradient(tensor, tensor.grad_fn, seen.append)
        tensor.sum().backward()
    assert len(seen) == 2


def test_hooks_of_others_join_a_gradient_hook() -> None:
    seen: list[str] = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    torch_internals.hook_gradient(y, y.grad_fn, lambda _: seen.append("own"))
    y.register_hook(lambda _: seen.append("kept"))
    y.register_hook(lambda _: seen.append("removed")).remove()
    y.sum().backward()
    assert seen == ["own", "kept"]


@pytest.mark.parametrize("module", [unit, accumulation])
def test_every_phase_is_reached_and_left(module: Any) -> None:
    steps = [step for table in module.TRANSITIONS.values() for step in table.items()]
    assert {before for before, _ in steps} == {after for _, after in steps} == set(module.Phase)


def test_transitions_of_a_unit_undo_each_other() -> None:
    tables = unit.TRANSITIONS
    for there, back in (("enter", "leave"), ("lend", "take back"), ("reveal", "conceal")):
        assert {after: before for before, after in tables[there].items()} == tables[back]
