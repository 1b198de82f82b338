# SPDX-License-Identifier: Apache-2.0
"""AdamW as torch and DeepSpeed step on a CPU, on tensors as they come and on staggered ones."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deepspeed_package
import torch

NUMBERS: dict[str, Any] = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
# impl/base/layout.h: how far the engine's arena staggers buffers that lie one after another.
STAGGER = 3 * 4096 + 5 * 64
ATTEMPTS, DISTURBED = 4, 0.03
NAMES = ("p", "g", "m", "v")


class Tensors:
    """Tensors that a step of AdamW reads and writes: parameters of 1, moments of 0."""

    def __init__(self, elements: int, staggered: bool) -> None:
        sizes = {name: 4 * elements for name in NAMES} | {"g16": 2 * elements, "w16": 2 * elements}
        block = torch.empty(sum(sizes.values()) + len(sizes) * STAGGER * 2, dtype=torch.uint8)
        made: dict[str, torch.Tensor] = {}
        at = 0
        for name, size in sizes.items():
            dtype = torch.bfloat16 if name.endswith("16") else torch.float32
            if staggered:
                made[name] = block[at : at + size].view(dtype)
                at += size + STAGGER
            else:
                made[name] = torch.empty(elements, dtype=dtype)
            made[name].zero_()
        self.m, self.v, self.g16, self.w16 = made["m"], made["v"], made["g16"], made["w16"]
        self.param = torch.nn.Parameter(made["p"])
        self.param.data.fill_(1.0)
        self.grad = made["g"]
        self.grad[0::2] = 0.01
        self.grad[1::2] = -0.02
        self.g16.copy_(self.grad)
        self.param.grad = self.grad

    def reset(self) -> None:
        self.param.data.fill_(1.0)
        self.m.zero_()
        self.v.zero_()


def timed(step: Callable[[], object]) -> float:
    """Again, a few times at most, where other programs had the CPUs: as bench/workers.h does."""
    best, least_lost = 0.0, 2.0
    for _ in range(ATTEMPTS):
        if least_lost <= DISTURBED:
            break
        begin, busy = time.perf_counter(), time.process_time()
        step()
        seconds = time.perf_counter() - begin
        lost = 1 - (time.process_time() - busy) / (seconds * torch.get_num_threads())
        if lost < least_lost:
            best, least_lost = seconds, lost
    return best


def torch_optimizer(tensors: Tensors) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW([tensors.param], fused=True, **NUMBERS)
    optimizer.state[tensors.param] = {
        "step": torch.zeros(()),
        "exp_avg": tensors.m,
        "exp_avg_sq": tensors.v,
    }
    return optimizer


class TorchPeers:
    """Peers of run.py."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        torch.set_num_threads(arguments.threads)
        self.missing: dict[str, str] = {}
        self.versions = {"torch": str(torch.__version__)}
        self.makers: dict[str, Callable[[Tensors], Any]] = {"torch": torch_optimizer}
        reason = self.find_deepspeed(arguments)
        if reason is not None:
            self.missing["DeepSpeed"] = reason
        elements = arguments.elements
        self.tensors = {"": Tensors(elements, False), ", staggered": Tensors(elements, True)}

    def find_deepspeed(self, arguments: argparse.Namespace) -> str | None:
        """Installs it and builds its kernel, where that has not been done before."""
        folder = deepspeed_package.folder_of(arguments.build).resolve()
        kernels = folder / "extensions"
        if arguments.quick and not any(kernels.glob("*/*.so")):
            return "it takes minutes to build, which --quick leaves out"
        reason = deepspeed_package.install_deepspeed(folder)
        if reason is not None:
            return reason
        os.environ["DS_ACCELERATOR"] = "cpu"
        os.environ["TORCH_EXTENSIONS_DIR"] = str(kernels)
        os.environ["PATH"] = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
        reason = build_deepspeed_kernel(folder, kernels)
        if reason is not None:
            return reason
        sys.path.append(str(folder))
        with silence():
            import deepspeed
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            made = DeepSpeedCPUAdam([torch.nn.Parameter(torch.ones(1))])
        del made
        self.versions["DeepSpeed"] = deepspeed.__version__

        def make(tensors: Tensors) -> Any:
            with silence():
                optimizer = DeepSpeedCPUAdam([tensors.param], adamw_mode=True, **NUMBERS)
            optimizer.state[tensors.param] = {
                "step": 0,
                "exp_avg": tensors.m,
                "exp_avg_sq": tensors.v,
            }
            return optimizer

        self.makers["DeepSpeed"] = make
        return None

    def steps(self) -> list[tuple[str, str, Callable[[int], float]]]:
        result: list[tuple[str, str, Callable[[int], float]]] = []
        for where, tensors in self.tensors.items():
            tensors.reset()
            for name, make in self.makers.items():
                optimizer = make(tensors)
                result.append(("AdamW f32", name + where, step_of(optimizer)))
                mixed = mixed_step_of(optimizer, tensors)
                result.append(("AdamW f32, 16-bit", name + where, mixed))
        return result

    def first_steps(self, steps: int, params: int) -> list[tuple[str, list[float]]]:
        result = []
        for where, tensors in self.tensors.items():
            for name, make in self.makers.items():
                tensors.reset()
                optimizer = make(tensors)
                for _ in range(steps):
                    optimizer.step()
                result.append((name + where, tensors.param.data[:params].tolist()))
        return result


def step_of(optimizer: Any) -> Callable[[int], float]:
    return lambda number: timed(optimizer.step)


def mixed_step_of(optimizer: Any, tensors: Tensors) -> Callable[[int], float]:
    """The step of 16-bit training with f32 masters: gradients to f32, a step, weights back."""

    def step() -> None:
        tensors.grad.copy_(tensors.g16)
        optimizer.step()
        tensors.w16.copy_(tensors.param.data)

    return lambda number: timed(step)


def build_deepspeed_kernel(folder: Path, kernels: Path) -> str | None:
    """Builds the kernel in a separate process. Returns the error, or None on success."""
    if not any(kernels.glob("*/*.so")):
        print("Building DeepSpeed's CPU Adam, which takes minutes ...", file=sys.stderr)
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))
    code = (
        "import torch; from deepspeed.ops.adam import DeepSpeedCPUAdam; "
        "DeepSpeedCPUAdam([torch.nn.Parameter(torch.ones(1))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return None
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it does not load"


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """DeepSpeed and the compiler it starts report on both streams."""
    sys.stdout.flush()
    saved = os.dup(1), os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            for stream, copy in zip((1, 2), saved):
                os.dup2(copy, stream)
                os.close(copy)
