# SPDX-License-Identifier: Apache-2.0
"""Memory that a model's states need, by DeepSpeed's rules of thumb, under its names.

They are about GPUs with 16-bit params and Adam. `meron.Plan.predict`, and `meron plan` on the
command line, predict the memory of a plan of Meron to the byte.
"""

from __future__ import annotations

import torch

__all__ = [
    "estimate_zero2_model_states_mem_needs",
    "estimate_zero2_model_states_mem_needs_all_cold",
    "estimate_zero2_model_states_mem_needs_all_live",
    "estimate_zero3_model_states_mem_needs",
    "estimate_zero3_model_states_mem_needs_all_cold",
    "estimate_zero3_model_states_mem_needs_all_live",
]

# Bytes per param: its 16-bit value; all that training keeps of it; the same without the 16-bit
# value; an f32 value.
HALF, TRAINED, UPDATED, WHOLE = 2, 18, 16, 4


def estimate_zero2_model_states_mem_needs(
    total_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    cpu_offload: bool = True,
    additional_buffer_factor: float = 1.5,
) -> tuple[int, int]:
    """Bytes on a node's CPU and on a GPU under stage 2."""
    gpus = num_nodes * num_gpus_per_node
    if cpu_offload:
        host = total_params * max(WHOLE * gpus, UPDATED)
        return int(host * additional_buffer_factor), HALF * total_params
    host = total_params * WHOLE * num_gpus_per_node
    device = HALF * total_params + int(TRAINED * total_params / gpus)
    return int(host * additional_buffer_factor), device


def estimate_zero3_model_states_mem_needs(
    total_params: int,
    largest_layer_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    cpu_offload: bool = True,
    cpu_offload_params: bool = True,
    zero_init: bool = True,
    additional_buffer_factor: float = 1.5,
) -> tuple[int, int, int]:
    """Bytes on a node's CPU, on a GPU, and of the largest layer, under stage 3."""
    gpus = num_nodes * num_gpus_per_node
    layer = WHOLE * largest_layer_params
    building = WHOLE * num_gpus_per_node  # per param, when every rank builds the whole model
    if cpu_offload:
        kept = (TRAINED if cpu_offload_params else UPDATED) / num_nodes
        host = total_params * (kept if zero_init else max(building, kept))
        device = layer if cpu_offload_params else layer + int(HALF * total_params / gpus)
    else:
        host = (largest_layer_params if zero_init else total_params) * building
        device = layer + int(TRAINED * total_params / gpus)
    return int(host * additional_buffer_factor), device, layer


def model_sizes(model: torch.nn.Module) -> tuple[int, int]:
    """Params of a model, and of the module that directly owns most."""
    total = sum({id(p): p.numel() for p in model.parameters()}.values())
    layers = [sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules()]
    return total, max(layers)


def estimate_zero2_model_states_mem_needs_all_live(
    model: torch.nn.Module,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    additional_buffer_factor: float = 1.5,
) -> None:
    """Prints the table for a model."""
    estimate_zero2_model_states_mem_needs_all_cold(
        model_sizes(model)[0], num_gpus_per_node, num_nodes, additional_buffer_factor
    )


def estimate_zero2_model_states_mem_needs_all_cold(
    total_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    additional_buffer_factor: float = 1.5,
) -> None:
    """Prints the table for a number of params."""
    print(heading(2, total_params, None, num_gpus_per_node, num_nodes))
    for offload in (True, False):
        host, device = estimate_zero2_model_states_mem_needs(
            total_params, num_gpus_per_node, num_nodes, offload, additional_buffer_factor
        )
        print(row(host, device, f"offload_optimizer={'cpu' if offload else 'none'}"))


def estimate_zero3_model_states_mem_needs_all_live(
    model: torch.nn.Module,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    additional_buffer_factor: float = 1.5,
) -> None:
    """Prints the table for a model."""
    estimate_zero3_model_states_mem_needs_all_cold(
        *model_sizes(model), num_gpus_per_node, num_nodes, additional_buffer_factor
    )


def estimate_zero3_model_states_mem_needs_all_cold(
    total_params: int,
    largest_layer_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    additional_buffer_factor: float = 1.5,
) -> None:
    """Prints the table for a number of params and that of the largest layer."""
    print(heading(3, total_params, largest_layer_params, num_gpus_per_node, num_nodes))
    for offload, offload_params in ((True, True), (True, False), (False, False)):
        for zero_init in (True, False):
            host, device, _ = estimate_zero3_model_states_mem_needs(
                total_params,
                largest_layer_params,
                num_gpus_per_node,
                num_nodes,
                offload,
                offload_params,
                zero_init,
                additional_buffer_factor,
            )
            options = (
                f"offload_param={'cpu' if offload_params else 'none'}, "
                f"offload_optimizer={'cpu' if offload else 'none'}, zero_init={int(zero_init)}"
            )
            print(row(host, device, options))


def heading(stage: int, total: int, largest: int | None, gpus: int, nodes: int) -> str:
    layer = f", {largest / 1e6:.0f}M in the largest layer" if largest is not None else ""
    return (
        f"Model states under ZeRO-{stage}: {total / 1e6:.0f}M params{layer}, {nodes} nodes with "
        f"{gpus} GPUs each\n  per CPU   |  per GPU   | options"
    )


def row(host: int, device: int, options: str) -> str:
    return f"{host / 2**30:9.2f}GB | {device / 2**30:8.2f}GB | {options}"
