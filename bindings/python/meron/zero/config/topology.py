# SPDX-License-Identifier: Apache-2.0
"""MiCS, hpZ and ZeRO++ of a config: a mesh of ranks, and codecs between its groups. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meron import errors
from meron.torch.ranks import ranks_of

ZERO = "zero_optimization."
WORLD = "replica x shard"


@dataclass
class Topology:
    """Values of the keys of zero_optimization that are for several nodes."""

    mics: int = 0  # ranks of a group that shards among itself, beside others; 0 is off
    hpz: int = 1  # ranks of a group that keeps a copy of the parameters; 1 is off
    weights: bool = False  # in int8 between groups
    frozen: bool = False  # parameters without gradients lie in int8
    gradients: bool = False  # in int4 between groups
    feedback: tuple[float, int] | None = None  # of what int4 loses: how much, reset after how many

    def keys(self) -> list[tuple[str, str]]:
        """The keys that are on, with their values."""
        values: dict[str, Any] = {
            "mics_shard_size": self.mics or None,
            "zero_hpz_partition_size": self.hpz if self.hpz > 1 else None,
            "zero_quantized_weights": self.weights or None,
            "zero_quantized_nontrainable_weights": self.frozen or None,
            "zero_quantized_gradients": self.gradients or None,
            "zeropp_loco_param": self.feedback and "{...}",
        }
        return [
            (ZERO + key, str(value).lower()) for key, value in values.items() if value is not None
        ]

    def check(self, stage: int) -> None:
        """ArgumentError naming the keys that contradict each other."""
        keys = self.keys()
        if keys and stage < 3:
            listed = ", ".join(f"{key} {value}" for key, value in keys)
            raise errors.argument(
                f"{listed}: these are of stage 3, and {ZERO}stage is {stage}",
                subject=keys[0][0],
                advice='Set the stage to 3, or remove them. (A plan such as {"mesh": {"shard": '
                '"node"}, "optimizer": {"sharding": "shard"}} of meron.torch.shard has a mesh '
                "without sharded parameters.)",
            )
        if self.mics and self.hpz > 1:
            raise errors.argument(
                f"{ZERO}mics_shard_size {self.mics} and {ZERO}zero_hpz_partition_size {self.hpz} "
                "are both on: under MiCS each group has all parameters anyway",
                subject=f"{ZERO}mics_shard_size",
                advice="Remove one of them: MiCS keeps all states once per group, hpZ only the "
                "parameters, from forward to backward.",
            )
        if self.mics and self.weights:
            raise errors.argument(
                f"{ZERO}mics_shard_size {self.mics} and {ZERO}zero_quantized_weights true are both "
                "on: under MiCS parameters do not travel between groups",
                subject=f"{ZERO}zero_quantized_weights",
                advice="Remove zero_quantized_weights, or take zero_hpz_partition_size.",
            )
        if self.feedback is not None and not self.gradients:
            raise errors.argument(
                f"{ZERO}zeropp_loco_param is given, but {ZERO}zero_quantized_gradients is false: "
                "nothing is lost that could be made up for",
                subject=f"{ZERO}zeropp_loco_param",
                advice="Switch zero_quantized_gradients on, or remove zeropp_loco_param.",
            )

    def misfit(self, error: errors.Error) -> errors.Error:
        """The engine's error about a plan that does not fit the ranks, with the keys behind it."""
        listed = ", ".join(f"{key} {value}" for key, value in self.keys())
        return type(error)(
            f"{listed}: {error.message}", subject=self.keys()[0][0], advice=error.advice
        )

    def idle(self, ranks: int, one_node: bool, on_device: bool = False) -> str:
        """Names the keys that save nothing on these ranks, and the reason; empty if all do.

        Args:
            one_node: all ranks are on one node.
            on_device: parameters reside on devices, which do not read each other's in place.
        """
        coded = [
            key.removeprefix(ZERO)
            for key, _ in self.keys()
            if key.endswith(("zero_quantized_weights", "zero_quantized_gradients"))
        ]
        if not one_node or ranks == 1:
            return ""
        if 1 < self.hpz < ranks and on_device:
            return ""
        if self.hpz > 1:
            lossy = self.hpz < ranks and coded
            return (
                f"zero_hpz_partition_size {self.hpz} saves nothing here: the {ranks} ranks are on "
                "one node and read each other's parameters in place, so there is no "
                "secondary partition to make, and none is made"
            ) + (f". {' and '.join(coded)} cost accuracy all the same" if lossy else "")
        if coded and not self.mics:
            return (
                f"{' and '.join(coded)} change{'s' * (len(coded) == 1)} nothing here: the {ranks} "
                "ranks are on one node, and only what travels between nodes is encoded"
            )
        return ""

    def table(self, stage: int) -> dict[str, Any]:
        """The plan as meron.Plan.parse takes it."""
        self.check(stage)
        table: dict[str, Any] = {"preset": f"zero{stage}"}
        if self.mics:
            table["preset"] = f"mics({self.mics})"
        elif self.hpz > 1:
            table["preset"] = f"hpz({self.hpz})"
        elif self.weights or self.gradients:
            # Between nodes, whatever their size: gathers and sums within one share memory.
            table["mesh"] = {"shard": "node"}
            for row in ("param", "gradient", "optimizer"):
                table[row] = {"sharding": WORLD}
        if self.weights:
            table.setdefault("param", {})["codec"] = "int8"
        if self.frozen:
            table.setdefault("param", {})["frozen"] = "int8"
        if self.gradients:
            codec: dict[str, Any] = {"kind": "int4"}
            if self.feedback is not None:
                beta, reset = self.feedback
                codec["feedback"] = {"beta": beta, "reset": reset}
            table.setdefault("gradient", {})["codec"] = codec
        return table

    def take_copy_group(self, copies: Any, group: Any) -> None:
        """hpZ by a torch.distributed group (`zero_param_parallel_group`) of ranks of `group`.

        ArgumentError where the config says otherwise, UnsupportedError for other ranks than
        neighbours.
        """
        import torch.distributed as dist  # absent where torch was built without

        inner = ranks_of(copies) or tuple(range(dist.get_world_size()))
        outer = ranks_of(group) or tuple(range(dist.get_world_size()))
        size = len(inner)
        places = [outer.index(rank) for rank in inner if rank in outer]
        first = places[0] if places else 0
        if places != list(range(first, first + size)) or first % size:
            raise errors.UnsupportedError(
                f"zero_param_parallel_group has the ranks {list(inner)}, which are not "
                f"neighbours, {size} by {size}, among {list(outer)}",
                subject="zero_param_parallel_group",
                advice="Give groups of consecutive ranks, or zero_hpz_partition_size in the "
                "config.",
            )
        if self.hpz > 1 and self.hpz != size:
            raise errors.argument(
                f"zero_param_parallel_group has {size} ranks, and {ZERO}zero_hpz_partition_size is "
                f"{self.hpz}",
                subject="zero_param_parallel_group",
                advice="Give one of the two.",
            )
        self.hpz = size
