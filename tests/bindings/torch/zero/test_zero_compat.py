# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's module tree: scripts, collectives and optimizers."""

from __future__ import annotations

import argparse
import re
from typing import Any

import pytest
import torch
from torch import nn

import meron
from model import RANK, RANKS, Model, assert_equal_weights, config, on_device, train

pytestmark = [pytest.mark.ranks(3), on_device(3)]


def test_runs_a_deepspeed_script() -> None:
    import meron.zero.compat as deepspeed

    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    args = parser.parse_args(["--deepspeed", "--local_rank", "0"])
    assert args.deepspeed
    deepspeed.init_distributed("gloo")
    assert torch.distributed.get_world_size() == RANKS
    assert deepspeed.comm.get_rank() == RANK and deepspeed.comm.get_world_size() == RANKS
    total = torch.tensor([float(RANK), 1.0])
    deepspeed.comm.all_reduce(total)
    assert total.tolist() == [sum(range(RANKS)), RANKS]
    deepspeed.comm.broadcast(total.fill_(RANK), RANKS - 1)
    assert total.tolist() == [RANKS - 1] * 2
    deepspeed.comm.barrier()
    torch.manual_seed(0)
    own = config(gradient_clipping=0.0)  # without an optimizer: the script has one
    own.pop("optimizer", None)
    with deepspeed.zero.Init(config_dict_or_path=own):
        model = Model()
    optimizer = deepspeed.ops.adam.FusedAdam(model.parameters(), lr=0.01)
    engine, optimizer, _, _ = deepspeed.initialize(
        args=args, model=model, optimizer=optimizer, config=own
    )
    assert isinstance(engine, deepspeed.DeepSpeedEngine)
    torch.manual_seed(0)
    plain = Model()
    train(engine, plain, torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0), 3)
    assert_equal_weights(model, plain, 1e-5)
    value = deepspeed.utils.safe_get_full_fp32_param(model.shift)
    with deepspeed.zero.GatheredParameters(model.shift):
        assert torch.equal(model.shift, value)

    deepspeed.install("deepspeed_of_a_test")
    scope: dict[str, Any] = {}
    exec(
        "import deepspeed_of_a_test as d\n"
        "from deepspeed_of_a_test.utils import safe_get_full_grad\n"
        "from deepspeed_of_a_test.ops.adam import DeepSpeedCPUAdam\n"
        "from deepspeed_of_a_test.runtime.zero.stage3 import "
        "estimate_zero3_model_states_mem_needs\n"
        "from deepspeed_of_a_test.runtime.lr_schedules import WarmupLR\n"
        "from deepspeed_of_a_test.zero import GatheredParameters, register_external_parameter\n",
        scope,
    )
    assert scope["d"] is deepspeed


def test_init_makes_the_process_group_of_torch() -> None:
    """As DeepSpeed's, so that a model can be built before anything else is called."""
    import meron.zero.compat as deepspeed

    assert not torch.distributed.is_initialized()
    with deepspeed.zero.Init(enabled=False):
        assert not hasattr(nn.Linear(3, 4).weight, "ds_id")
    assert torch.distributed.get_world_size() == RANKS
    assert torch.distributed.get_rank() == RANK
    with deepspeed.zero.Init(config_dict_or_path=config()):
        assert hasattr(nn.Linear(3, 4).weight, "ds_id")
    torch.distributed.destroy_process_group()
    with pytest.raises(meron.ArgumentError, match="mics_shard_size"):
        deepspeed.zero.MiCS_Init(config_dict_or_path=config())
    assert torch.distributed.is_initialized()


def test_collectives_honor_or_reject_each_argument() -> None:
    from meron.zero import comm

    total = torch.tensor([float(RANK)])
    comm.all_reduce(total, comm.ReduceOp.SUM)
    assert total.tolist() == [sum(range(RANKS))]
    with pytest.raises(meron.UnsupportedError, match="MAX"):
        comm.all_reduce(total, op=comm.ReduceOp.MAX)
    for collective in (comm.all_reduce, comm.broadcast):
        with pytest.raises(meron.UnsupportedError, match="async_op"):
            collective(total, async_op=True)
    with pytest.raises(meron.ArgumentError, match="int64"):
        comm.all_reduce(torch.tensor([1]))
    with pytest.raises(meron.ArgumentError, match="src"):
        comm.broadcast(total, RANKS)
    strided = torch.full((4, 3), float(RANK)).t()
    comm.broadcast(strided, RANKS - 1)
    assert torch.equal(strided, torch.full((3, 4), RANKS - 1.0))
    with pytest.raises(meron.ArgumentError, match=re.escape("torch.distributed")):
        comm.get_rank(group=object())


def test_rejects_unsupported_options_of_deepspeeds_adam() -> None:
    from meron.zero.compat import ops

    params = [nn.Parameter(torch.ones(2))]
    for kind, option in (
        (ops.adam.FusedAdam, {"bias_correction": False}),
        (ops.adam.FusedAdam, {"adam_w_mode": False, "weight_decay": 0.1}),
        (ops.adam.FusedAdam, {"set_grad_none": False}),
        (ops.adam.DeepSpeedCPUAdam, {"fp32_optimizer_states": False}),
    ):
        with pytest.raises(meron.UnsupportedError, match=re.escape(next(iter(option)))):
            kind(params, **option)
    assert ops.adam.DeepSpeedCPUAdam(params).defaults["weight_decay"] == 0.0
