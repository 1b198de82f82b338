# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing: functions that fail or change, and wrong configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from checkpointed import BLOCKS, Block, Model, equal, gradients, plain
from checkpointed import fresh as fresh

import meron
from meron import checkpointing


def test_two_backwards_are_refused_by_torch() -> None:
    out = checkpointing.checkpoint(Block(), torch.randn(2, 16, requires_grad=True)).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_an_exception_leaves_everything_usable() -> None:
    model = Model()
    expected = gradients(model, plain)
    fails: list[int] = []

    def failing(block: Any, x: torch.Tensor) -> torch.Tensor:
        if len(fails) and fails.pop():
            raise KeyError("in the function")
        return block(x)  # type: ignore[no-any-return]

    checkpointing.configure(None, contiguous_checkpointing=True, num_checkpoints=BLOCKS)
    call = lambda block, x: checkpointing.checkpoint(failing, block, x)  # noqa: E731
    for turn in (2, BLOCKS + 2):  # in the forward, and in a recomputation
        fails[:] = [0] * (BLOCKS * 2 - turn) + [1] + [0] * (turn - 1)
        with pytest.raises(KeyError):
            gradients(model, call)
        fails.clear()
        assert checkpointing.frame.active.depth == 0 and not torch.is_autocast_enabled("cpu")
        assert equal(expected, gradients(model, call))


def test_a_failed_backward_can_be_run_again() -> None:
    x = torch.randn(4, requires_grad=True)
    fail = [False]

    def function(v: torch.Tensor) -> torch.Tensor:
        if fail[0]:
            raise OSError("drive")
        return v.sin() * v.cos()

    loss = checkpointing.checkpoint(function, x * 1).sum()
    fail[0] = True
    with pytest.raises(OSError, match="drive"):
        loss.backward(retain_graph=True)
    fail[0] = False
    loss.backward()
    torch.testing.assert_close(x.grad, (2 * x.detach()).cos())


@pytest.mark.parametrize("change", ["shape", "fewer", "dtype"])
def test_a_function_that_does_something_else_the_second_time(change: str) -> None:
    again: list[int] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        if again:
            if change == "fewer":
                return x
            x = x.double() if change == "dtype" else x[:1]
        again.append(1)
        return x.exp().sin()

    out = checkpointing.checkpoint(function, torch.ones(3, requires_grad=True) * 1)
    with pytest.raises(meron.StateError, match="must do the same"):
        out.sum().backward()


def test_an_argument_that_is_changed_in_place() -> None:
    x = torch.ones(3, requires_grad=True) * 1
    out = checkpointing.checkpoint(lambda v: v.exp().sin(), x)
    x.add_(1)
    with pytest.raises(meron.StateError, match="changed in place"):
        out.sum().backward()


def test_more_checkpoints_than_said() -> None:
    model = Model()
    checkpointing.configure(None, contiguous_checkpointing=True, num_checkpoints=2)
    with pytest.raises(meron.StateError, match="number_checkpoints is 2"):
        model(checkpointing.checkpoint)
    checkpointing.configure(num_checkpoints=BLOCKS)
    outs = [model(checkpointing.checkpoint)]
    with pytest.raises(meron.StateError, match=r"reset\(\)"):
        model(checkpointing.checkpoint)
    checkpointing.reset()
    outs.append(model(checkpointing.checkpoint))
    for out in outs:
        out.sum().backward()


def test_configure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not checkpointing.is_configured()
    block = {
        "partition_activations": True,
        "cpu_checkpointing": True,
        "contiguous_memory_optimization": True,
        "number_checkpoints": 3,
        "synchronize_checkpoint_boundary": True,
        "profile": "auto",
    }
    config = {"train_batch_size": 3, "activation_checkpointing": block}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    attributes = type("Config", (), {"activation_checkpointing_config": type("Block", (), block)})
    for source in (config, path, str(path), attributes()):
        checkpointing.configure(None, source)
        settings = checkpointing.state.settings
        assert (settings.partition, settings.to_host, settings.contiguous) == (True, True, True)
        assert (settings.count, settings.synchronize, settings.profile) == (3, True, False)
    checkpointing.configure(None, config, partition_activations=False, profile=True)
    assert not checkpointing.state.settings.partition and checkpointing.state.settings.count == 3
    checkpointing.partition_activations_in_checkpoint(True)
    checkpointing.set_num_layers(5)
    settings = checkpointing.state.settings
    assert settings.partition and settings.count == 5 and settings.to_host
    assert checkpointing.is_configured()
    checkpointing.reset()
    assert "0 recomputations" in capsys.readouterr().out
    checkpointing.configure(None, {})  # all defaults again
    assert not checkpointing.state.settings.partition


def test_misuse_of_configure(tmp_path: Path) -> None:
    configure = checkpointing.configure
    with pytest.raises(TypeError):
        configure(None, partition_activation=True)  # type: ignore[call-arg]
    with pytest.raises(meron.ArgumentError, match="'partition_activations'"):
        configure(None, {"activation_checkpointing": {"partition_activation": True}})
    with pytest.raises(meron.ArgumentError, match="number_checkpoints is 0"):
        configure(None, num_checkpoints=0)
    with pytest.raises(meron.ArgumentError, match="profile is 'yes'"):
        configure(None, profile="yes")  # type: ignore[arg-type]
    with pytest.raises(meron.ArgumentError, match="without activation_checkpointing"):
        configure(None, 3)
    with pytest.raises(meron.ArgumentError, match="get_model_parallel_group"):
        configure(object(), partition_activations=True)
    with pytest.raises(FileNotFoundError):
        configure(None, tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(meron.ParseError, match=r"bad\.json"):
        configure(None, tmp_path / "bad.json")
    assert not checkpointing.is_configured()
    mpu = type("Mpu", (), {"get_model_parallel_group": lambda _: None})()
    configure(mpu, partition_activations=True)
    with pytest.raises(meron.StateError, match="init_process_group"):
        checkpointing.checkpoint(torch.sin, torch.ones(2, requires_grad=True) * 1)


def test_meron_alone_imports_no_torch() -> None:
    code = "import sys, meron; assert 'torch' not in sys.modules, 'torch'"
    done = ranks.launch(1, source=code)
    assert done.returncode == 0, done.stderr
