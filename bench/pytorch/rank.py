# SPDX-License-Identifier: Apache-2.0
"""One rank of one arm: trains a model for some steps, and rank 0 prints its figures as JSON.

On a device a step's times are the host's: until all was asked of the device, which is waited for
between steps."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import late_threads  # noqa: F401 - at the end
import torch
from torch import nn

WARM_UP = 4
# A step. Gives the seconds of its forward, of its backward, and of the optimizer's part.
Step = Callable[[], tuple[float, float, float]]
now = time.perf_counter


class Model:
    """A model, its units as each system is to see them, and its loss."""

    def __init__(self, name: str, ranks: int, rank: int, device: str = "cpu") -> None:
        torch.manual_seed(1)
        self.device = device
        place = self.place = torch.device(device if device.startswith("cuda") else "cpu")
        if place.index is not None:  # what a mesh of devices goes by
            torch.cuda.set_device(place)
        generator = torch.Generator().manual_seed(100 + rank)
        self.rows = 1
        if name == "gpt":
            sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "03_gpt"))
            from gpt.model import GPT, Block, loss_of

            self.module: nn.Module = GPT(width=320, layers=8, heads=5, context=128)
            self.unit: type[nn.Module] = Block
            batch = torch.randint(0, 256, (4, 129), generator=generator).to(place)
            self.loss = lambda module: loss_of(module, batch)
        else:
            width = {"many": 256, "tiny": 16}[name]
            self.module = nn.Sequential(*(nn.Linear(width, width) for _ in range(200)))
            self.unit = nn.Linear
            inputs = torch.randn(8, width, generator=generator).to(place)
            self.loss = lambda module: module(inputs).square().mean()
        self.units = sum(isinstance(part, self.unit) for part in self.module.modules())
        self.params = sum(param.numel() for param in self.module.parameters())


# ---- Arms: each gives a function for one step, and one that counts this rank's bytes -------------


def plain(model: Model) -> tuple[Step, Callable[[], int]]:
    model.module.to(model.place)
    optimizer = torch.optim.AdamW(model.module.parameters())
    return loop(model.module, model, optimizer), lambda: 0


def ddp(model: Model) -> tuple[Step, Callable[[], int]]:
    torch.distributed.init_process_group("gloo")
    module = nn.parallel.DistributedDataParallel(model.module)
    optimizer = torch.optim.AdamW(model.module.parameters())
    return loop(module, model, optimizer), loopback_bytes


def fsdp2(model: Model) -> tuple[Step, Callable[[], int]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    kind = model.place.type
    torch.distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
    model.module.to(model.place)
    mesh = init_device_mesh(kind, (torch.distributed.get_world_size(),))
    for part in list(model.module.modules()):
        if isinstance(part, model.unit):
            fully_shard(part, mesh=mesh)
    fully_shard(model.module, mesh=mesh)
    optimizer = torch.optim.AdamW(model.module.parameters())
    return loop(model.module, model, optimizer), loopback_bytes


def deepspeed(model: Model) -> tuple[Step, Callable[[], int]]:
    import deepspeed  # type: ignore[import-not-found]

    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0,
        "steps_per_print": 10**9,
    }
    optimizer = torch.optim.AdamW(model.module.parameters())
    engine, *_ = deepspeed.initialize(model=model.module, optimizer=optimizer, config=config)

    def step() -> tuple[float, float, float]:
        begun = now()
        loss = model.loss(engine)
        forward = now()
        engine.backward(loss)
        backward = now()
        engine.step()
        return forward - begun, backward - forward, now() - backward

    return step, loopback_bytes


def meron(model: Model, plan: str = "zero3") -> tuple[Step, Callable[[], int]]:
    import meron.torch as mt
    from meron import Plan

    mt.shard(model.module, units=model.unit, plan=plan, device=model.device)
    optimizer = torch.optim.AdamW(model.module.parameters())
    mt.shard_optimizer(model.module, optimizer)
    context = mt.context_for(Plan.preset(plan), device=model.device)

    def read() -> int:
        stats = context.stats()
        return stats.gather_copied_bytes + stats.reduce_bytes + stats.collective_bytes

    return loop(model.module, model, optimizer), read


def meron_adamw(model: Model, **rows: Any) -> tuple[Step, Callable[[], int]]:
    """The engine's own AdamW."""
    import meron.torch as mt
    from meron import Plan

    plan = Plan.parse({"preset": "zero3", **rows})
    mt.shard(model.module, units=model.unit, plan=plan, device=model.device)
    optimizer = mt.AdamW(model.module)
    stats = mt.context_for(plan, device=model.device).stats
    return loop(model.module, model, optimizer), lambda: stats().reduce_bytes


def meron_there(model: Model) -> tuple[Step, Callable[[], int]]:
    """With params, sums and states on the device, as FSDP2's are."""
    there = {"tier": "device"}
    return meron_adamw(model, param=there, gradient=there, optimizer=there)


def loop(module: nn.Module, model: Model, optimizer: torch.optim.Optimizer) -> Step:
    def step() -> tuple[float, float, float]:
        begun = now()
        loss = model.loss(module)
        forward = now()
        loss.backward()
        backward = now()
        optimizer.step()
        optimizer.zero_grad()
        return forward - begun, backward - forward, now() - backward

    return step


ARMS = {
    "plain": plain,
    "ddp": ddp,
    "fsdp2": fsdp2,
    "deepspeed": deepspeed,
    "meron": meron,
    "meron adamw": meron_adamw,
    "meron device": meron_there,
}

# ---- Measuring ----------------------------------------------------------------------------------


def loopback_bytes() -> int:
    """Bytes per rank that gloo has sent over this host's loopback: the ranks' mean."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8]) // int(os.environ.get("WORLD_SIZE", "1"))
    return 0


def memory() -> int:
    """This process's memory; pages that ranks share count in equal parts."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def agreed(count: int, arm: str, ranks: int) -> int:
    """Rank 0's number, on every rank."""
    if ranks == 1:
        return count
    value = torch.tensor([float(count)])
    if arm.startswith("meron"):
        import meron.torch as mt
        from meron import Plan

        mt.context_for(Plan.preset("zero3")).world.broadcast(value.numpy())
    else:
        torch.distributed.broadcast(value, 0)
    return int(value)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--model", choices=("gpt", "many", "tiny"), required=True)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N, or Meron's emulated")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rank = int(os.environ.get("RANK", os.environ.get("MERON_RANK", "0")))
    ranks = int(os.environ.get("WORLD_SIZE", os.environ.get("MERON_WORLD_SIZE", "1")))
    cpus = sorted(os.sched_getaffinity(0))
    if options.device == "cpu":  # a device has threads of its own
        torch.set_num_threads(1)
        if ranks <= len(cpus):
            os.sched_setaffinity(0, {cpus[rank]})
    if options.arm == "deepspeed":
        import deepspeed  # noqa: F401  (its memory is not the model's)

    before = memory()
    model = Model(options.model, ranks, rank, options.device)
    issue, moved = ARMS[options.arm](model)

    def step() -> tuple[float, float, float]:
        times = issue()
        if model.place.type == "cuda":
            torch.cuda.synchronize()
        return times

    for _ in range(WARM_UP):
        step()
    gc.collect()
    at_rest = memory() - before
    once = sum(step())
    # The same number on all ranks, whatever each measured: the first one's.
    count = agreed(max(5, min(60, int(options.seconds / once))), options.arm, ranks)
    bytes_before = moved()
    phases = [step() for _ in range(count)]
    bytes_moved = (moved() - bytes_before) // count
    if rank == 0:
        figures: dict[str, Any] = {
            "ms": [sum(times) * 1e3 for times in phases],
            "hooks_ms": [sum(times[:2]) * 1e3 for times in phases],
            "at_rest": at_rest,
            "bytes": bytes_moved,
            "units": model.units,
            "params": model.params,
        }
        # In one write: other ranks, and libraries, write too.
        sys.stdout.write("\n" + json.dumps(figures) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
