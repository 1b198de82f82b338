# SPDX-License-Identifier: Apache-2.0
"""One rank of an arm: makes a sharded model and loads its weights. Rank 0 prints figures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import late_threads  # noqa: F401 - at the end
import numpy as np
from layout import Llama, elements, values_of
from rank_memory import measured, status_bytes

Result = dict[str, Any]


def meron_arm(model: Llama, folder: Path) -> tuple[Result, int]:
    import meron

    with meron.open(plan="zero3") as context:
        before = status_bytes("VmRSS")
        params, units = {}, []
        for name, shapes in model.units():
            members = {key: context.param(key, shape, "bf16") for key, shape in shapes.items()}
            units.append(context.unit(name, members.values()))
            params |= members
        context.world.barrier()
        with measured() as load:
            loaded = context.load(folder, values_only=True)
        peak = status_bytes("VmHWM") - before  # the gather below is not the load's
        last = len(params) - 1
        name, param = list(params.items())[last]
        gathered = units[-1].gather()
        with gathered:
            bits = np.asarray(gathered[param]).reshape(-1).view("<u2")
            if not np.array_equal(bits, values_of(last, bits.size)):
                raise SystemExit(f"{name}: other values were loaded than the files have")
        figures = np.zeros((context.world_size, 4), np.float32)
        mib = 1 << 20
        figures[context.rank] = (
            load.seconds,
            peak / mib,
            loaded.bytes_read / mib,
            load.extra_bytes / mib,
        )
        context.world.all_reduce(figures.reshape(-1))
        result = {
            "seconds": float(figures[:, 0].max()),
            "peak_bytes": float(figures[:, 1].max()) * mib,
            "bytes_read": float(figures[:, 2].sum()) * mib,
            "load_extra_bytes": float(figures[:, 3].max()) * mib,
        }
        return result, context.rank


def torch_figures(seconds: float, before: int) -> tuple[Result, int]:
    import torch
    import torch.distributed as dist

    figures = torch.tensor([seconds, float(status_bytes("VmHWM") - before)], dtype=torch.float64)
    dist.all_reduce(figures, op=dist.ReduceOp.MAX)
    return {"seconds": float(figures[0]), "peak_bytes": float(figures[1])}, dist.get_rank()


def fsdp_arm(model: Llama, folder: Path) -> tuple[Result, int]:
    """Tensors on meta, sharded over the ranks, filled by DCP's reader of Hugging Face's files."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.checkpoint import HuggingFaceStorageReader
    from torch.distributed.fsdp import fully_shard

    class Unit(nn.Module):
        def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
            super().__init__()
            for name, shape in shapes.items():
                empty = torch.empty(shape, dtype=torch.bfloat16, device="meta")
                self.register_parameter(name.replace(".", "/"), nn.Parameter(empty))

    dist.init_process_group("gloo")
    before = status_bytes("VmRSS")
    module = nn.ModuleDict({name.replace(".", "/"): Unit(unit) for name, unit in model.units()})
    for unit in module.values():
        fully_shard(unit)
    module.to_empty(device="cpu")
    dist.barrier()
    with measured() as load:
        state = {
            name.rpartition(".")[2].replace("/", "."): param
            for name, param in module.named_parameters()
        }
        dcp.load(state, storage_reader=HuggingFaceStorageReader(str(folder)))
    return torch_figures(load.seconds, before)


def deepspeed_arm(model: Llama, folder: Path) -> tuple[Result, int]:
    """`from_pretrained` under ZeRO-3's Init, as transformers does it."""
    import deepspeed
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM
    from transformers.integrations import HfDeepSpeedConfig

    deepspeed.init_distributed("gloo")
    before = status_bytes("VmRSS")
    config = HfDeepSpeedConfig(
        {
            "zero_optimization": {"stage": 3},
            "bf16": {"enabled": True},
            "train_micro_batch_size_per_gpu": 1,
        }
    )
    dist.barrier()
    with measured() as load:
        AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.bfloat16)
    del config
    return torch_figures(load.seconds, before)


ARMS: dict[str, Callable[[Llama, Path], tuple[Result, int]]] = {
    "meron": meron_arm,
    "fsdp2 dcp": fsdp_arm,
    "transformers deepspeed": deepspeed_arm,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("arm", choices=tuple(ARMS))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--millions", type=int, required=True)
    arguments = parser.parse_args()
    model = Llama(arguments.millions)
    result, rank = ARMS[arguments.arm](model, arguments.folder)
    count = sum(elements(shape) for _, unit in model.units() for shape in unit.values())
    if rank == 0:
        print(json.dumps({**result, "params": count}))


if __name__ == "__main__":
    main()
