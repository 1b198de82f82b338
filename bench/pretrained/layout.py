# SPDX-License-Identifier: Apache-2.0
"""A Llama of random weights as Hugging Face publishes models: safetensors files and an index."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

FILE_BYTES = 1 << 30  # at most, of a file


@dataclass(frozen=True)
class Llama:
    """The shape of TinyLlama, with so many layers that it has about `millions` of params."""

    millions: int

    @property
    def width(self) -> int:
        return 2048 if self.millions >= 400 else 256

    @property
    def config(self) -> dict[str, Any]:
        small = self.width == 256
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.width,
            "intermediate_size": 688 if small else 5632,
            "num_attention_heads": 4 if small else 32,
            "num_key_value_heads": 2 if small else 4,
            "num_hidden_layers": self.layers,
            "vocab_size": 2000 if small else 32000,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        }

    def layer(self, number: int) -> dict[str, tuple[int, ...]]:
        width = self.width
        kv, inner = (128, 688) if width == 256 else (256, 5632)
        head = f"model.layers.{number}"
        return {
            f"{head}.self_attn.q_proj.weight": (width, width),
            f"{head}.self_attn.k_proj.weight": (kv, width),
            f"{head}.self_attn.v_proj.weight": (kv, width),
            f"{head}.self_attn.o_proj.weight": (width, width),
            f"{head}.mlp.gate_proj.weight": (inner, width),
            f"{head}.mlp.up_proj.weight": (inner, width),
            f"{head}.mlp.down_proj.weight": (width, inner),
            f"{head}.input_layernorm.weight": (width,),
            f"{head}.post_attention_layernorm.weight": (width,),
        }

    @property
    def layers(self) -> int:
        each = sum(elements(shape) for shape in self.layer(0).values())
        ends = 2 * self.width * (2000 if self.width == 256 else 32000)
        return max(1, round((self.millions * 1e6 - ends) / each))

    def units(self) -> list[tuple[str, dict[str, tuple[int, ...]]]]:
        """Names and shapes, by unit."""
        vocabulary = 2000 if self.width == 256 else 32000
        return [
            ("embed", {"model.embed_tokens.weight": (vocabulary, self.width)}),
            *((f"layer.{i}", self.layer(i)) for i in range(self.layers)),
            ("norm", {"model.norm.weight": (self.width,)}),
            ("head", {"lm_head.weight": (vocabulary, self.width)}),
        ]


def elements(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def values_of(number: int, count: int) -> np.ndarray[Any, Any]:
    """The bits of a tensor of bf16: from its number, so that a loaded one can be checked."""
    import numpy as np  # --help needs none

    bits = np.random.default_rng(5).standard_normal(1 << 16, np.float32).view("<u4") >> 16
    return np.resize(np.roll(bits.astype("<u2"), number), count)


def write_llama(model: Llama, folder: Path) -> list[Path]:
    """Writes the layout and returns the files with weights."""
    tensors = [(name, shape) for _, unit in model.units() for name, shape in unit.items()]
    files: list[list[int]] = [[]]
    size = 0
    for number, (_, shape) in enumerate(tensors):
        size += 2 * elements(shape)
        if size > FILE_BYTES and files[-1]:
            files.append([])
            size = 2 * elements(shape)
        files[-1].append(number)
    weight_map, paths = {}, []
    for index, numbers in enumerate(files):
        name = f"model-{index + 1:05d}-of-{len(files):05d}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        place = 0
        for number in numbers:
            tensor, shape = tensors[number]
            end = place + 2 * elements(shape)
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [place, end]}
            weight_map[tensor] = name
            place = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / name, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for number in numbers:
                file.write(values_of(number, elements(tensors[number][1])).tobytes())
        paths.append(folder / name)
    total = sum(2 * elements(shape) for _, shape in tensors)
    listing = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(listing))
    (folder / "config.json").write_text(json.dumps(model.config))
    return paths
