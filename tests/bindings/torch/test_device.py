# SPDX-License-Identifier: Apache-2.0
"""Training on a device: on the emulated one with the bits of the host, and which one is chosen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked
import pytest
import torch
from twin import compare

import meron
from meron.torch.residency.devices import CachingAllocator, CudaDevice, torch_device_of
from meron.torch.resolve.device import DEVICE_VARIABLE, device_for, device_name, new_device

HERE = Path(__file__).parent
# Copies come late, so that what nobody has waited for is seen.
SLOW = "delay=200"
PLANS = ("zero0", "zero1", "zero2", "zero3")


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_bits_of_the_host(ranks: int) -> None:
    run_program("device/training", ranks, MERON_EMULATED_DEVICE=SLOW)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_transformer(plan: str, accumulate: int) -> None:
    runs = compare("models/transformer.py", 2, PLANS, (1, 2), device="emulated")
    runs[plan, accumulate].check()


@pytest.mark.parametrize("plan", ["mics(2)", "hpz(2)"])
def test_a_transformer_over_a_mesh(plan: str) -> None:
    compare("models/transformer.py", 4, ("mics(2)", "hpz(2)"), device="emulated")[plan, 1].check()


@pytest.mark.parametrize(
    ("program", "ranks"),
    [
        ("engine", 2),
        ("build", 2),
        ("params", 3),
        ("steps", 1),
        ("offload", 1),
        ("gradients", 1),
        ("precision", 1),
    ],
)
def test_a_program_of_zero(program: str, ranks: int, tmp_path: Path) -> None:
    """The same programs as without a device."""
    environment = {"MEETING": str(tmp_path / "meeting"), "MERON_TORCH_DEVICE": "emulated"}
    if program == "offload":  # of states on the host
        environment["MERON_ZERO_TIERS"] = "host"
    run_program(f"zero/{program}", ranks, **environment)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_config_keeps_its_rows_on_the_device(ranks: int) -> None:
    """As DeepSpeed does with what is not offloaded; without collectives some stay on the host."""
    run_program("device/tiers", ranks)
    run_program("device/tiers", ranks, MERON_EMULATED_DEVICE="shared=1", SHARED="1")


@pytest.mark.parametrize(("saving", "loading"), [(2, 2), (2, 1), (1, 2)])
def test_a_model_on_the_device_is_saved_and_loaded(
    saving: int, loading: int, tmp_path: Path
) -> None:
    """Also from the device to the host and back, and while training goes on."""
    environment = {"FOLDER": str(tmp_path), "MERON_EMULATED_DEVICE": SLOW}
    run_program("device/saving", saving, ACTION="save", **environment)
    run_program("device/saving", loading, ACTION="load", **environment)


def run_program(program: str, ranks: int, **environment: str) -> None:
    path = os.pathsep.join([str(HERE / "zero"), os.environ.get("PYTHONPATH", "")])
    done = forked.run(ranks, HERE / f"{program}.py", PYTHONPATH=path, **environment)
    # Not an assertion's own display: what the ranks wrote says it all.
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    assert sorted(done.stdout.split("\n")[:-1]) == [f"rank {rank} done" for rank in range(ranks)]


# ---- Which device -------------------------------------------------------------------------------


class OnDevices(torch.nn.Module):
    """A module that says of its params where they are."""

    def __init__(self, *devices: str) -> None:
        super().__init__()
        self.devices = devices

    def named_parameters(self, *_args: Any, **_kwargs: Any) -> Iterator[tuple[str, Any]]:
        for number, device in enumerate(self.devices):
            yield f"p{number}", SimpleNamespace(device=torch.device(device))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEVICE_VARIABLE, raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)


def test_names(two_gpus: None) -> None:
    assert device_name("cuda") == "cuda:1"
    assert device_name(torch.device("cuda", 0)) == "cuda:0"
    assert device_name("cpu") == device_name(torch.device("cpu")) == ""
    assert device_name("emulated") == "emulated"
    for wrong, text in (("cuda:2", "2 devices"), ("xpu", "'xpu'"), ("cuda:x", "'cuda:x'")):
        with pytest.raises(meron.ArgumentError, match=text):
            device_name(wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_torch_without_cuda() -> None:
    with pytest.raises(meron.ArgumentError, match="this PyTorch") as caught:
        device_for([OnDevices("cpu")], "cuda")
    assert "leave the device out" in caught.value.advice


def test_the_params_say_it(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_for([OnDevices("cpu", "meta")]) == ""
    assert device_for([OnDevices("cuda:0", "meta")]) == "cuda:0"
    assert device_for([OnDevices("cpu")], "cuda") == "cuda:1"
    assert device_for([OnDevices("cpu")], "emulated") == "emulated"
    # Of params that are nowhere the launcher says it.
    assert device_for([OnDevices("meta")]) == new_device(None) == ""
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert device_for([OnDevices("meta")]) == new_device(None) == "cuda:1"
    assert device_for([OnDevices("cpu", "meta")]) == ""
    assert device_for([OnDevices("meta")], "cpu") == new_device("cpu") == ""
    monkeypatch.setenv(DEVICE_VARIABLE, "emulated")
    assert device_for([OnDevices("meta")]) == device_for([OnDevices("cpu")]) == "emulated"
    assert device_for([OnDevices("cpu")], "cpu") == ""


def test_zero_init_takes_the_device_of_its_local_rank(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As DeepSpeed, which makes it the current one."""
    current = [1]
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: current.append(index))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert new_device(None) == "cuda:0" and current == [1, 0]
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert new_device(None) == "cuda:1"
    monkeypatch.setenv("LOCAL_RANK", "5")  # of a rank that sees its own device alone
    current.append(0)
    assert new_device(None) == "cuda:0" and current[-1] == 0
    assert new_device("cuda:1") == "cuda:1" and current[-1] == 0


def test_params_elsewhere_are_named(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = OnDevices("cpu", "cuda:0")
    with pytest.raises(meron.ArgumentError, match=r"OnDevices.p0 is on cpu.*p1 on cuda:0"):
        device_for([mixed])
    there = OnDevices("cuda:0")
    for asked in ("cuda:1", "emulated", "cpu"):
        place = "the CPU" if asked == "cpu" else asked
        with pytest.raises(meron.ArgumentError, match=f"p0 is on cuda:0.*{place}") as caught:
            device_for([there], asked)
        assert "device='cuda:0'" in caught.value.advice
    with pytest.raises(meron.ArgumentError, match="mps"):
        device_for([OnDevices("mps")])
    monkeypatch.setenv(DEVICE_VARIABLE, "emulated")
    with pytest.raises(meron.ArgumentError, match=r"p0 is on cuda:0.*emulated"):
        device_for([there])


# ---- CUDA, without any: what torch is asked for -------------------------------------------------


class FakeStream:
    def __init__(self, address: int) -> None:
        self.cuda_stream = address
        self.waited_for: list[int] = []

    def wait_stream(self, other: FakeStream) -> None:
        self.waited_for.append(other.cuda_stream)


def test_streams_of_cuda(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    current = FakeStream(7)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: FakeStream(0))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda address, device: FakeStream(address))
    device = torch_device_of("cuda:1")
    assert isinstance(device, CudaDevice) and device.torch_device == torch.device("cuda", 1)
    assert device.stream() == 7
    device.follow(0)
    device.follow(5)
    assert current.waited_for == [0, 5]
    dense = torch.ones(2, 3)
    assert device.gradient(dense) is dense
    assert device.gradient(torch.ones(3, 2).t()).is_contiguous()


def test_the_cache_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []

    def allocate(size: int, device: int, stream: int) -> int:
        calls.append((size, device, stream))
        if size > 1000:
            raise torch.OutOfMemoryError
        return 4096

    monkeypatch.setattr(torch.cuda, "caching_allocator_alloc", allocate)
    monkeypatch.setattr(torch.cuda, "caching_allocator_delete", lambda at: calls.append((at,)))
    allocator = CachingAllocator(1)
    assert allocator.allocate(10, 3) == 4096
    assert allocator.allocate(1001, 3) is None
    allocator.release(4096, 10, 3)
    assert calls == [(10, 1, 3), (1001, 1, 3), (4096,)]
