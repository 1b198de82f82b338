# SPDX-License-Identifier: Apache-2.0
"""Loaders of data, whose samples are spread over the ranks."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from meron import errors
from meron.zero.facts import Facts

TRAIN, EVALUATE, PREDICT = "train", "eval", "predict"  # DeepSpeed's routes of data


def is_dataset(given: Any) -> bool:
    whole = hasattr(given, "__getitem__") and hasattr(given, "__len__")
    return whole or isinstance(given, IterableDataset)


def make_loader(
    engine: Facts,
    dataset: Any,
    route: str = TRAIN,
    *,
    batch_size: int | None = None,
    sampler: Any = None,
    **options: Any,
) -> DataLoader[Any]:
    """A loader of the micro-batches of an engine. Local. `options` are those of DataLoader.

    Raises ArgumentError for another route, or what is no dataset.
    """
    if route not in (TRAIN, EVALUATE, PREDICT):
        raise errors.argument(f'route is {route!r}: "train", "eval" and "predict" are known')
    if not is_dataset(dataset):
        raise errors.argument(
            f"dataset is a {type(dataset).__name__}: a torch Dataset is needed",
            subject="dataset",
        )
    if sampler is None and not isinstance(dataset, IterableDataset):
        sampler = DistributedSampler(
            dataset, engine.dp_world_size, engine.global_rank, shuffle=route == TRAIN
        )
    return DataLoader(
        dataset,
        batch_size=batch_size or engine.config.micro_batch_size or 1,
        sampler=sampler,
        drop_last=engine.config.drop_last,
        **options,
    )
