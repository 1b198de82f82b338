# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

import meron

MODEL = {
    "units": [
        {"name": "a", "tensors": [{"name": "w", "shape": [100, 10], "dtype": "bf16"}]},
        {"name": "b", "tensors": [{"name": "v", "shape": [7], "dtype": "bf16"}]},
    ]
}


@pytest.mark.parametrize(
    "name", ["zero0", "zero1", "zero2", "zero3", "mics", "mics(4)", "hpz(node)", "zeropp(2)"]
)
def test_presets_round_trip(name: str) -> None:
    plan = meron.Plan.preset(name)
    again = meron.Plan.parse(plan.json())
    assert again == plan
    assert again == meron.Plan.parse(json.loads(plan.json()))
    assert again == meron.Plan.parse(plan.json().encode())
    assert hash(again) == hash(plan)
    assert eval(repr(plan), {"meron": meron}) == plan
    assert "param" in plan.table()


def test_presets_differ() -> None:
    plans = {meron.Plan.preset(f"zero{stage}") for stage in range(4)}
    assert len(plans) == 4
    assert meron.Plan.preset("zero1") != "zero1"


def test_a_plan_with_a_change() -> None:
    plan = meron.Plan.parse({"preset": "zero2", "gradient": {"dtype": "f32"}})
    assert json.loads(plan.json())["gradient"]["dtype"] == "f32"
    with meron.open(0, 1, "self", plan) as ctx:
        param = ctx.param("w", (4,), "bf16")
        assert ctx.unit("u", [param]).gradient(param).dtype == "float32"


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ('{"preset": "zero2",\n "gradient": ]', meron.ParseError, "line 2"),
        ("", meron.ParseError, None),
        (b"\xff\xfe", meron.ParseError, None),
        ('{"preset": "zero7"}', (meron.ArgumentError, meron.ParseError), "zero7"),
        ('{"colour": 1}', (meron.ArgumentError, meron.ParseError), "colour"),
        ("[]", (meron.ArgumentError, meron.ParseError), None),
    ],
)
def test_bad_plans(source: str, kind: type[Exception], words: str | None) -> None:
    with pytest.raises(kind, match=words):
        meron.Plan.parse(source)


def test_an_unknown_preset_lists_the_known() -> None:
    with pytest.raises(meron.ArgumentError, match="zero9") as caught:
        meron.Plan.preset("zero9")
    assert "zero3" in str(caught.value)


def test_predictions() -> None:
    plan = meron.Plan.preset("zero3")
    prediction = plan.predict(MODEL, ranks=2, micro_batches=4)
    assert isinstance(prediction, dict)
    assert prediction == plan.predict(json.dumps(MODEL), ranks=2, micro_batches=4)
    assert prediction != plan.predict(MODEL, ranks=4, micro_batches=4)
    assert "rank" in plan.predict_table(MODEL, ranks=2)
    total = plan.predict({"parameters": 10**9, "layers": 10, "dtype": "bf16"}, ranks=8)
    assert total


def test_predictions_of_nodes() -> None:
    plan = meron.Plan.preset("hpz(2)")
    prediction = plan.predict(MODEL, ranks=4, ranks_per_node=2)
    assert prediction["workload"]["ranks_per_node"] == 2
    assert prediction["total"]["links"]["between_nodes"]["gather"]["bytes"] > 0
    alone = plan.predict(MODEL, ranks=4)
    assert alone["total"]["links"]["between_nodes"]["gather"]["bytes"] == 0
    assert "other nodes" in plan.predict_table(MODEL, ranks=4, ranks_per_node=2)
    with pytest.raises(meron.ArgumentError, match="a node has 3"):
        plan.predict(MODEL, ranks=6, ranks_per_node=3)
    with pytest.raises(meron.ArgumentError, match="-1"):
        plan.predict(MODEL, ranks=6, ranks_per_node=-1)


def test_bad_predictions() -> None:
    plan = meron.Plan.preset("zero3")
    for model, ranks in ((MODEL, 0), (MODEL, -1), (MODEL, 2**40), ({"parameters": -3}, 2)):
        with pytest.raises((meron.ArgumentError, meron.ParseError)):
            plan.predict(model, ranks)
    with pytest.raises(meron.ParseError):
        plan.predict("{", 2)
