# SPDX-License-Identifier: Apache-2.0
"""The device that a model trains on, and the calls of torch for a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import meron
from meron.torch.residency.devices import CachingAllocator, CudaDevice, torch_device_of
from meron.torch.resolve.device import DEVICE_VARIABLE, device_for, device_name, new_device


class OnDevices(torch.nn.Module):
    """A module whose params claim to be on these devices."""

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
    monkeypatch.delenv("MERON_LOCAL_RANK", raising=False)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)


def test_names_devices_by_index(two_gpus: None) -> None:
    assert device_name("cuda") == "cuda:1"
    assert device_name(torch.device("cuda", 0)) == "cuda:0"
    assert device_name("cpu") == device_name(torch.device("cpu")) == ""
    assert device_name("emulated") == "emulated"
    for wrong, text in (("cuda:2", "2 devices"), ("xpu", "'xpu'"), ("cuda:x", "'cuda:x'")):
        with pytest.raises(meron.ArgumentError, match=text):
            device_name(wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_rejects_cuda_if_torch_has_none() -> None:
    with pytest.raises(meron.ArgumentError, match="this PyTorch") as caught:
        device_for([OnDevices("cpu")], "cuda")
    assert "leave the device out" in caught.value.advice


def test_params_choose_the_device(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_for([OnDevices("cpu", "meta")]) == ""
    assert device_for([OnDevices("cuda:0", "meta")]) == "cuda:0"
    assert device_for([OnDevices("cpu")], "cuda") == "cuda:1"
    assert device_for([OnDevices("cpu")], "emulated") == "emulated"
    # The launcher decides for params that are on no device.
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
    """As in DeepSpeed, it becomes the current device."""
    current = [1]
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: current.append(index))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert new_device(None) == "cuda:0" and current == [1, 0]
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert new_device(None) == "cuda:1"
    monkeypatch.setenv("LOCAL_RANK", "5")  # of a rank that sees its own device only
    current.append(0)
    assert new_device(None) == "cuda:0" and current[-1] == 0
    assert new_device("cuda:1") == "cuda:1" and current[-1] == 0
    monkeypatch.setenv("MERON_LOCAL_RANK", "1")  # of meron run, which precedes all others
    assert new_device(None) == "cuda:1"


def test_rejects_params_on_other_devices(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
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


# ---- Calls of torch for CUDA, without a GPU -----------------------------------------------------


class FakeStream:
    def __init__(self, address: int) -> None:
        self.cuda_stream = address
        self.waited_for: list[int] = []

    def wait_stream(self, other: FakeStream) -> None:
        self.waited_for.append(other.cuda_stream)


def test_cuda_device_waits_on_the_current_stream(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_allocates_from_the_cache_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
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
