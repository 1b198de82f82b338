# SPDX-License-Identifier: Apache-2.0
"""MiCS, hpZ and ZeRO++ of a config: the plans that they become, and what contradicts."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

import meron
from meron import zero
from meron.torch.world import of_hosts
from meron.zero.config import parse

WORLD = "replica x shard"
ALL = {"zero_quantized_weights": True, "zero_quantized_gradients": True}


def plan_of(stage: int = 3, **keys: Any) -> meron.Plan:
    return parse({"zero_optimization": {"stage": stage, **keys}}).plan()


def table_of(**keys: Any) -> Any:
    return json.loads(plan_of(**keys).json())


def test_keys_become_presets() -> None:
    assert plan_of(mics_shard_size=4) == meron.Plan.preset("mics(4)")
    assert plan_of(mics_shard_size=4, mics_hierarchical_params_gather=True) == plan_of(
        mics_shard_size=4
    )
    assert plan_of(zero_hpz_partition_size=8) == meron.Plan.preset("hpz(8)")
    everything = {"zero_hpz_partition_size": 8, **ALL, "zeropp_loco_param": {}}
    assert plan_of(**everything) == meron.Plan.preset("zeropp(8)")


def test_keys_that_are_off() -> None:
    off = {
        "mics_shard_size": -1,
        "mics_hierarchical_params_gather": False,
        "zero_hpz_partition_size": 1,
        "zero_quantized_weights": False,
        "zero_quantized_nontrainable_weights": False,
        "zero_quantized_gradients": False,
        "zeropp_loco_param": None,
    }
    for stage in range(4):
        assert plan_of(stage, **off) == meron.Plan.preset(f"zero{stage}")
    assert plan_of(mics_shard_size=0, zero_hpz_partition_size=0) == meron.Plan.preset("zero3")


def test_codecs_alone_are_between_nodes() -> None:
    table = table_of(**ALL)
    assert table["mesh"] == {"shard": "node"}
    assert {table[row]["sharding"] for row in ("param", "gradient", "optimizer")} == {WORLD}
    assert table["param"]["codec"] == "int8" and table["param"]["secondary_partition"] == "none"
    assert table["gradient"]["codec"] == "int4"


def test_under_mics_gradients_may_have_a_codec() -> None:
    table = table_of(mics_shard_size=2, zero_quantized_gradients=True)
    assert table["mesh"] == {"shard": 2} and table["gradient"]["codec"] == "int4"
    assert {table[row]["sharding"] for row in ("param", "gradient", "optimizer")} == {"shard"}


@pytest.mark.parametrize(
    ("loco", "feedback"),
    [
        ({}, {"beta": 0.8, "reset": 1024}),
        ({"err_beta": 0.5}, {"beta": 0.5, "reset": 1024}),
        ({"err_beta": 0, "reset_T": 7}, {"beta": 0.0, "reset": 7}),
        (None, None),
    ],
)
def test_feedback(loco: Any, feedback: Any) -> None:
    codec = table_of(zero_quantized_gradients=True, zeropp_loco_param=loco)["gradient"]["codec"]
    assert codec == "int4" if feedback is None else codec["feedback"] == feedback


def test_frozen_parameters_need_no_mesh() -> None:
    table = table_of(zero_quantized_nontrainable_weights=True)
    assert table["mesh"] == {"shard": "all"} and table["param"]["frozen"] == "int8"
    assert table_of(mics_shard_size=2, zero_quantized_nontrainable_weights=True)["param"][
        "frozen"
    ] == ("int8")


def test_a_dtype_of_gradients_goes_with_it() -> None:
    config = {
        "zero_optimization": {"stage": 3, "mics_shard_size": 2},
        "communication_data_type": "bf16",
    }
    table = json.loads(parse(config).plan().json())
    assert table["gradient"]["dtype"] == "bf16" and table["name"] == "mics(2)"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"mics_shard_size": 2, "zero_hpz_partition_size": 4},
            ["mics_shard_size 2", "zero_hpz_partition_size 4"],
        ),
        (
            {"mics_shard_size": 2, "zero_quantized_weights": True},
            ["mics_shard_size 2", "zero_quantized_weights"],
        ),
        (
            {"stage": 2, "mics_shard_size": 2, "zero_quantized_gradients": True},
            ["mics_shard_size 2", "zero_quantized_gradients true", "stage is 2"],
        ),
        ({"stage": 1, "zero_hpz_partition_size": 2}, ["zero_hpz_partition_size 2", "stage is 1"]),
        ({"stage": 0, "zero_quantized_nontrainable_weights": True}, ["nontrainable", "stage is 0"]),
        ({"zeropp_loco_param": {}}, ["zeropp_loco_param", "zero_quantized_gradients"]),
        ({"zeropp_loco_param": {"err_bta": 0.5}}, ["err_bta", "err_beta?"]),
        ({"zeropp_loco_param": {"err_beta": 1}}, ["zeropp_loco_param.err_beta", "below 1"]),
        ({"zeropp_loco_param": {"reset_T": 0}}, ["reset_T", "from 1 to"]),
        ({"mics_shard_size": -2}, ["mics_shard_size"]),
        ({"zero_hpz_partition_size": "two"}, ["zero_hpz_partition_size"]),
    ],
)
def test_contradictions_are_named(keys: Any, words: list[str]) -> None:
    with pytest.raises(meron.ArgumentError) as info:
        plan_of(**keys)
    for word in words:
        assert word in str(info.value)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"zero_hpz_partition_size": 2}, "zero_hpz_partition_size 2 saves nothing"),
        ({"zero_hpz_partition_size": 2, **ALL}, "cost accuracy"),
        ({"zero_quantized_weights": True}, "zero_quantized_weights changes nothing"),
        (ALL, "change nothing"),
        ({"mics_shard_size": 2, "zero_quantized_gradients": True}, ""),
        ({}, ""),
    ],
)
def test_plans_without_a_gain_on_one_node_are_reported(keys: Any, text: str) -> None:
    topology = parse({"zero_optimization": {"stage": 3, **keys}}).topology
    assert text in topology.idle(4, one_node=True)
    assert bool(topology.idle(4, one_node=True)) == bool(text)
    assert topology.idle(4, one_node=False) == "" == topology.idle(1, one_node=True)


def test_a_node_is_a_host_where_ranks_share_no_memory() -> None:
    plan = plan_of(**ALL)
    assert json.loads(of_hosts(plan, ["a", "a", "b", "b"]).json())["mesh"] == {"shard": 2}
    assert json.loads(of_hosts(plan, ["a", "b"]).json())["mesh"] == {"shard": 1}
    for hosts in (["a", "b", "a", "b"], ["a", "a", "b"], ["a", "b", "b"]):
        with pytest.raises(meron.UnsupportedError, match="by nodes"):
            of_hosts(plan, hosts)
    same = meron.Plan.preset("hpz(2)")
    assert of_hosts(same, ["a", "b", "b"]) is same


def test_the_arguments_of_init_are_deepspeeds_in_its_order() -> None:
    def names(kind: Any) -> list[str]:
        return list(inspect.signature(kind).parameters)

    # Arguments that DeepSpeed does not have are last.
    *deepspeeds, own = names(zero.MiCS_Init)
    assert own == names(zero.Init)[-1] == "device"
    assert deepspeeds == [
        "module",
        "data_parallel_group",
        "sequence_data_parallel_group",
        "mem_efficient_linear",
        "remote_device",
        "pin_memory",
        "config_dict_or_path",
        "config",
        "enabled",
        "dtype",
        "mpu",
    ]
    assert names(zero.Init)[10:14] == [
        "zero_param_parallel_group",
        "zero_quantized_weights",
        "zero_quantized_nontrainable_weights",
        "sequence_data_parallel_group",
    ]
