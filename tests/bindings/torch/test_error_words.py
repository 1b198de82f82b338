# SPDX-License-Identifier: Apache-2.0
"""Errors name the function that the caller has called, and what differs between ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import meron
import meron.torch as mt
import meron.zero

pytestmark = pytest.mark.ranks(2)


def sharded() -> nn.Module:
    return mt.shard(nn.Linear(4, 4))


def refuses(call: Callable[[], Any], *words: str) -> None:
    """The call raises an error of Meron with these words, the first of them at the beginning."""
    with pytest.raises(meron.Error) as caught:
        call()
    assert str(caught.value).startswith(words[0]), caught.value
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_save_and_a_load_name_their_functions(tmp_path: Path) -> None:
    model = sharded()
    mt.save(tmp_path, "a", model)
    taken = "a checkpoint has the name already. Choose another name, or pass overwrite=True."
    refuses(lambda: mt.save(tmp_path, "a", model), "mt.save failed on rank ", taken)
    handle = mt.save(tmp_path, "a", model, background=True)
    refuses(handle.wait, "mt.save failed on rank ", taken)
    mt.save(tmp_path, "a", model, overwrite=True)
    mt.save_pretrained(model, tmp_path / "b")
    again = "or pass overwrite=True"
    refuses(lambda: mt.save_pretrained(model, tmp_path / "b"), "mt.save_pretrained failed", again)
    with pytest.raises(meron.NotFoundError, match=r"mt\.load failed"):
        mt.load(tmp_path / "none", None, model)
    with pytest.raises(meron.NotFoundError, match=r"mt\.load_pretrained failed.*snapshot_download"):
        mt.load_pretrained(model, "maker/Model-7B")
    engine = meron.zero.initialize(model=nn.Linear(2, 2), config={"train_batch_size": 2})[0]
    with pytest.raises(meron.Error, match=r"^engine\.save_checkpoint failed on rank "):
        engine.save_checkpoint("/proc/none")
    engine.destroy()


def test_wrong_arguments_are_named_before_ranks_exchange_anything() -> None:
    refuses(lambda: mt.shard(nn.Linear(2, 1), mesh="x"), "a str was given as mesh")
    refuses(lambda: mt.shard(nn.Linear(2, 1), plan="zreo3"), "mt.shard failed", '"zero3"')
    model = sharded()
    where = "param group 0 of AdamW: "
    refuses(lambda: mt.AdamW(model, lr="1e-3"), f"{where}lr is '1e-3'", "YAML")  # type: ignore[arg-type]
    refuses(lambda: mt.AdamW(model, lr=None), f"{where}lr is None")  # type: ignore[arg-type]
    refuses(lambda: mt.AdamW(model, betas=0.9), f"{where}betas is 0.9", "two numbers")  # type: ignore[arg-type]
    mt.AdamW(model, lr=torch.tensor(1e-3))
    config = {"train_batch_size": 6, "train_micro_batch_size_per_gpu": 4}
    refuses(
        lambda: meron.zero.initialize(model=nn.Linear(2, 1), config=config),
        "train_batch_size 6 is not a multiple of train_micro_batch_size_per_gpu 4 x 2 ranks",
    )


def test_options_of_optimizers_that_differ_between_ranks_are_named(rank: int) -> None:
    model = sharded()
    for options, words in (
        ({"lr": 0.1 + rank}, "lr of AdamW's param group 0 is 0.1 on rank 0, and 1.1 on rank 1."),
        ({"betas": (0.9, 0.99 - 0.5 * rank)}, "betas[1] of AdamW's param group 0 is 0.99 on rank"),
        ({"max_norm": 1.0 + rank}, "max_norm of AdamW is 1 on rank 0, and 2 on rank 1."),
    ):
        refuses(lambda options=options: mt.AdamW(model, **options), words)
    kind = mt.AdamW if rank else mt.SGD
    refuses(lambda: kind(model, lr=0.1), "rank 0 makes the optimizer SGD, and rank 1 AdamW.")
    optimizer = mt.AdamW(model, lr=0.1)  # nothing was broken
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


def test_a_call_on_one_rank_alone_is_named_on_all(rank: int, tmp_path: Path) -> None:
    model = sharded()
    if rank == 0:
        with pytest.raises(meron.MismatchError) as caught:
            mt.save(tmp_path, "a", model)
        assert str(caught.value).startswith("mt.save failed on rank 0: ranks diverge")
        assert str(caught.value).endswith("Call mt.save on all ranks, with equal arguments.")
    else:
        with pytest.raises(meron.MismatchError) as caught:
            model(torch.ones(2, 4)).sum().backward()
        assert re.search("rank 0 called [a-z_]* of '.*', as mt.save, mt.load", str(caught.value))


def test_names_of_saves_that_differ_are_named(rank: int, tmp_path: Path) -> None:
    with pytest.raises(meron.Error, match=r"'0'.*'1'|'1'.*'0'"):
        mt.save(tmp_path, str(rank), sharded())
