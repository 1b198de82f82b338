# SPDX-License-Identifier: Apache-2.0
"""deepspeed.elasticity: the batch size that suits the most numbers of ranks.

A job whose number of ranks changes keeps its batch size if every number in use divides it, together
with a micro-batch size that fits the memory. Meron's config has no elasticity block, as every
checkpoint loads at any number of ranks: the results go into train_batch_size and
train_micro_batch_size_per_gpu.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from meron import errors
from meron.zero.compat.versions import numbers_of

FIRST_VERSION = (0, 3, 8)  # of DeepSpeed that has elasticity


class ElasticityError(errors.ArgumentError):
    """An elasticity block, or a number of ranks, that has no batch size."""


class ElasticityConfigError(ElasticityError):
    """An elasticity block with a wrong key or value."""


class ElasticityIncompatibleWorldSize(ElasticityError):
    """A number of ranks that the batch size does not suit."""


@dataclass
class ElasticityConfig:
    """The elasticity block of a config, with DeepSpeed's keys and defaults.

    Attributes:
        max_train_batch_size: samples of a step, at most.
        micro_batch_sizes: samples per rank and micro-batch that fit the memory.
        min_gpus, max_gpus: numbers of ranks that are wanted.
        prefer_larger_batch: of batch sizes that suit as many numbers of ranks, the largest.
        model_parallel_size, num_gpus_per_node: version 0.2: ranks of a model, and of a node; nodes
            are whole.
        ignore_non_elastic_batch_info, min_time: without effect here.
    """

    enabled: bool = False
    max_train_batch_size: int = 2000
    micro_batch_sizes: list[int] = field(default_factory=lambda: [2, 4, 6])
    min_gpus: int = 1
    max_gpus: int = 10000
    min_time: int = 0
    version: float = 0.2
    prefer_larger_batch: bool = True
    ignore_non_elastic_batch_info: bool = False
    model_parallel_size: int = 1
    num_gpus_per_node: int = 1

    def __post_init__(self) -> None:
        for name in (
            *("max_train_batch_size", "min_gpus", "max_gpus"),
            *("model_parallel_size", "num_gpus_per_node"),
        ):
            if not whole(getattr(self, name)):
                raise wrong(f"{name} is {getattr(self, name)!r}: a whole number above 0", name)
        sizes = self.micro_batch_sizes
        if not isinstance(sizes, (list, tuple)) or not sizes or not all(map(whole, sizes)):
            raise wrong(
                f"micro_batch_sizes is {sizes!r}: whole numbers above 0", "micro_batch_sizes"
            )
        if self.max_gpus < self.min_gpus:
            raise wrong(f"max_gpus is {self.max_gpus}, below min_gpus {self.min_gpus}", "max_gpus")
        if self.version not in (0.1, 0.2):
            raise wrong(f"version is {self.version!r}: 0.1 and 0.2 are known", "version")
        if self.num_gpus_per_node % self.model_parallel_size:
            raise wrong(
                f"num_gpus_per_node {self.num_gpus_per_node} is no multiple of "
                f"model_parallel_size {self.model_parallel_size}",
                "num_gpus_per_node",
            )
        if self.version == 0.1 and self.model_parallel_size > 1:
            raise wrong("version 0.1 has no models of several ranks: use 0.2", "version")


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def wrong(message: str, key: str) -> ElasticityConfigError:
    return ElasticityConfigError(message, subject=f"elasticity.{key}")


def elasticity_enabled(ds_config: Mapping[str, Any]) -> bool:
    """True if a config enables its elasticity block."""
    return bool((ds_config.get("elasticity") or {}).get("enabled", False))


def compute_elastic_config(
    ds_config: Mapping[str, Any],
    target_deepspeed_version: str = "",
    world_size: int = 0,
    return_microbatch: bool = False,
) -> Any:
    """The batch size, and the numbers of ranks that it suits. Local.

    Args:
        ds_config: a config with an `elasticity` block.
        target_deepspeed_version: of the run: 0.3.8 or later. An empty one is not checked.
        world_size: the present number of ranks: the result has the micro-batch size for it. Default
            is WORLD_SIZE, with `return_microbatch` or in version 0.2.
        return_microbatch: the result has the micro-batch size for WORLD_SIZE.

    Returns:
        (batch size, numbers of ranks), then the micro-batch size if it was asked for.

    Raises ElasticityConfigError, ElasticityError, ElasticityIncompatibleWorldSize: all are
    ArgumentErrors.
    """
    if target_deepspeed_version and numbers_of(target_deepspeed_version) < FIRST_VERSION:
        raise ElasticityError(
            f"DeepSpeed {target_deepspeed_version} has no elasticity: it is older than 0.3.8",
            subject="target_deepspeed_version",
        )
    block = ds_config.get("elasticity")
    if not isinstance(block, Mapping):
        raise wrong("the config has no elasticity block", "enabled")
    known = [each.name for each in fields(ElasticityConfig)]
    for key in block:
        if key not in known:
            raise wrong(f"unknown key {key!r}: {', '.join(known)} are known", key)
    config = ElasticityConfig(**block)
    if not config.enabled:
        raise wrong("elasticity is not enabled", "enabled")
    for key in ("max_train_batch_size", "micro_batch_sizes"):
        if key not in block:
            raise wrong(f"{key} is missing: an enabled elasticity block has it", key)
    given = bool(world_size)
    if not world_size and (return_microbatch or config.version == 0.2):
        world_size = launched_ranks()
    if not world_size and return_microbatch:
        raise wrong(
            "return_microbatch needs world_size, or WORLD_SIZE in the environment", "version"
        )
    if config.version == 0.1:
        batch, ranks = best_batch(
            config, config.max_train_batch_size, config.min_gpus, config.max_gpus
        )
        if world_size and world_size not in ranks:
            raise ElasticityIncompatibleWorldSize(
                f"{world_size} ranks do not suit a batch of {batch}: {ranks} do",
                subject="world_size",
            )
    else:
        batch, ranks = best_batch_of_nodes(config, world_size)
    if not (given or return_microbatch):
        return batch, ranks
    return batch, ranks, micro_batch(config, batch, world_size // config.model_parallel_size or 1)


def launched_ranks() -> int:
    """WORLD_SIZE of the environment; 0 without it."""
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdecimal() else 0


def best_batch(
    config: ElasticityConfig, limit: int, least: int, most: int
) -> tuple[int, list[int]]:
    """The batch size of at most `limit` that suits the most numbers of ranks."""
    if min(config.micro_batch_sizes) > limit:
        raise ElasticityError(
            f"every micro-batch size of {config.micro_batch_sizes} is above the largest batch, "
            f"{limit}",
            subject="elasticity.micro_batch_sizes",
        )
    bases = {*config.micro_batch_sizes, math.lcm(*config.micro_batch_sizes)}
    bases = {base for base in bases if base <= limit}
    found: tuple[int, list[int]] | None = None
    sign = 1 if config.prefer_larger_batch else -1
    for batch in sorted((base * many_divisors(limit // base) for base in bases), reverse=sign > 0):
        ranks = suited(config, batch, least, most)
        if found is None or len(ranks) > len(found[1]):
            found = batch, ranks
    assert found is not None
    if not found[1]:
        raise ElasticityError(
            f"no batch size up to {limit} suits any number of ranks from {least} to {most}",
            subject="elasticity.max_train_batch_size",
        )
    return found


def best_batch_of_nodes(config: ElasticityConfig, world_size: int) -> tuple[int, list[int]]:
    """As best_batch, for whole nodes of ranks that hold models of several ranks: numbers of model
    replicas rather than of ranks."""
    per_node = config.num_gpus_per_node // config.model_parallel_size
    batch, nodes = best_batch(
        config,
        config.max_train_batch_size // per_node,
        max(config.min_gpus // config.num_gpus_per_node, 1),
        max(config.max_gpus // config.num_gpus_per_node, 1),
    )
    batch, replicas = batch * per_node, [count * per_node for count in nodes]
    present = world_size // config.model_parallel_size
    if not world_size or present in replicas:
        return batch, replicas
    fitting = [size * present for size in config.micro_batch_sizes]
    fitting = [step * (config.max_train_batch_size // step) for step in fitting]
    fitting = [size for size in fitting if size]
    if not fitting:
        raise ElasticityIncompatibleWorldSize(
            f"{present} replicas take more than {config.max_train_batch_size} samples a step",
            subject="world_size",
        )
    return (max if config.prefer_larger_batch else min)(fitting), [present]


def suited(config: ElasticityConfig, batch: int, least: int, most: int) -> list[int]:
    """Numbers of ranks that divide a batch into whole micro-batches."""
    counts = [batch // size for size in config.micro_batch_sizes if batch % size == 0]
    return [
        ranks
        for ranks in range(least, min(most, max(counts, default=0)) + 1)
        if any(count % ranks == 0 for count in counts)
    ]


def many_divisors(limit: int) -> int:
    """The largest highly composite number up to `limit`: more divisors than any smaller one.

    Its primes are the first ones, with exponents that do not grow.
    """
    found: list[tuple[int, int]] = [(1, 1)]  # numbers of that form, and their divisors

    def extend(value: int, divisors: int, primes: tuple[int, ...], most: int) -> None:
        for exponent in range(1, most + 1):
            value *= primes[0]
            if value > limit:
                return
            found.append((value, divisors * (exponent + 1)))
            if primes[1:]:
                extend(value, divisors * (exponent + 1), primes[1:], exponent)

    extend(1, 1, (2, 3, 5, 7, 11, 13, 17, 19, 23), limit.bit_length())
    best, most = 1, 0
    for value, divisors in sorted(found):
        if divisors > most:
            best, most = value, divisors
    return best


def micro_batch(config: ElasticityConfig, batch: int, ranks: int) -> int:
    """The micro-batch size of a number of ranks: the largest that divides, or the smallest."""
    fitting = [size for size in config.micro_batch_sizes if (batch // ranks) % size == 0]
    if not fitting:
        raise ElasticityIncompatibleWorldSize(
            f"no micro-batch size of {config.micro_batch_sizes} divides {batch // ranks} samples "
            f"of each of {ranks} ranks",
            subject="world_size",
        )
    return (max if config.prefer_larger_batch else min)(fitting)


__all__ = [
    "ElasticityConfig",
    "ElasticityConfigError",
    "ElasticityError",
    "ElasticityIncompatibleWorldSize",
    "compute_elastic_config",
    "elasticity_enabled",
]
