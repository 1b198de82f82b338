# SPDX-License-Identifier: Apache-2.0
"""engine.save_checkpoint and load_checkpoint, zero_to_fp32, and exports of weights."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from adam_engine import ADAM, assert_same, made, state, steps

import meron
import meron.torch as mt
from meron import zero
from meron.zero import weight_files, zero_to_fp32
from model import RANK, RANKS, Model, config, data

pytestmark = pytest.mark.ranks(1, 2)

HALF = {"fp16": {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 3}}


def test_resumes_training_with_the_same_bits(tmp_path: Path) -> None:
    for number, options in enumerate(
        ({}, HALF, {"bf16": {"enabled": True}}, {"optimizer": {"type": "RMSprop", "params": {}}})
    ):
        folder = tmp_path / str(number)
        engine = made(stage=number % 4, **options)
        steps(engine, 0, 3)
        assert engine.save_checkpoint(folder, client_state={"epoch": 4})
        after = torch.rand(3)
        steps(engine, 3, 6)
        wanted = [p.clone() for p in zero.full_state_dict(engine).values()]
        counters = engine.global_steps, engine.micro_steps, engine.cur_scale, engine.get_lr()
        engine.destroy()
        for stage in {number % 4, 3}:
            other = made(seed=9, stage=stage, **options)
            path, client = other.load_checkpoint(folder)
            assert path == str(folder / "global_step3") and client == {"epoch": 4}
            assert torch.equal(torch.rand(3), after)
            assert other.global_steps == 3
            steps(other, 3, 6)
            got = list(zero.full_state_dict(other).values())
            assert all(torch.equal(a, b) for a, b in zip(wanted, got)), (number, stage)
            theirs = other.global_steps, other.micro_steps, other.cur_scale, other.get_lr()
            assert theirs == counters
            other.destroy()


def test_saves_and_loads_on_node_local_storage(tmp_path: Path) -> None:
    options = {"checkpoint": {"use_node_local_storage": True}}
    engine = made(**options)
    steps(engine, 0, 2)
    engine.save_checkpoint(tmp_path, client_state={"epoch": 1})
    engine.save_checkpoint(tmp_path, tag="other", save_latest=False)
    saved = state(engine)
    steps(engine, 2, 3)
    assert engine.load_checkpoint(tmp_path)[1] == {"epoch": 1}
    assert_same(saved, state(engine))
    assert engine.load_checkpoint(tmp_path, "other")[0] == str(tmp_path / "other")
    with pytest.raises(meron.NotFoundError, match="absent"):
        engine.load_checkpoint(tmp_path, tag="absent")
    engine.destroy()


def test_writes_files_where_deepspeed_does(tmp_path: Path) -> None:
    engine = made()
    steps(engine, 0, 1)
    engine.save_checkpoint(str(tmp_path))
    engine.save_checkpoint(str(tmp_path), tag=7, save_latest=False)
    engine.save_checkpoint(str(tmp_path), tag=7, save_latest=False)  # replaced
    engine.sharding.context.world.barrier()
    assert (tmp_path / "latest").read_text().strip() == "global_step1"
    assert (tmp_path / "7" / "meron.json").is_file() and (tmp_path / "global_step1").is_dir()
    assert os.access(tmp_path / "zero_to_fp32.py", os.X_OK)
    assert engine.load_checkpoint(tmp_path)[0] == str(tmp_path / "global_step1")
    assert engine.load_checkpoint(tmp_path, 7)[0] == str(tmp_path / "7")
    assert engine.load_checkpoint(tmp_path / "7")[0] == str(tmp_path / "7")
    with pytest.raises(ValueError, match="save_dir is empty"):
        engine.save_checkpoint("")
    engine.save_checkpoint(tmp_path / "none", tag="only", save_latest=False)
    assert not (tmp_path / "none" / "latest").exists()
    assert engine.load_checkpoint(tmp_path / "none") == (None, None)
    assert engine.load_checkpoint(tmp_path / "nothing") == (None, None)
    with pytest.raises(meron.NotFoundError, match="absent"):
        engine.load_checkpoint(tmp_path, tag="absent")
    engine.destroy()


def test_client_state_holds_tensors_and_names_unsupported_values(tmp_path: Path) -> None:
    engine = made()
    state: dict[str, Any] = {
        "numbers": [1, 2.5, float("inf"), None, True],
        "pair": (1, "two"),
        "counts": Counter(a=2),
        5: "five",
        "nested": {"sampler": [torch.arange(10_000), torch.ones((), dtype=torch.bfloat16)]},
    }
    engine.save_checkpoint(tmp_path, "a", client_state=state if RANK == 0 else {})
    _, client = engine.load_checkpoint(tmp_path)
    tensors, own = client.pop("nested")["sampler"], state.pop("nested")["sampler"]
    assert client == state and type(client["counts"]) is Counter
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(tensors, own))
    wrong: Any = {"fine": 1, "module": {"net": torch.nn.Linear(1, 1)}}
    with pytest.raises(meron.ArgumentError, match="'module'"):
        engine.save_checkpoint(tmp_path, "b", client_state=wrong if RANK == 0 else {})
    with pytest.raises(meron.ArgumentError, match="no dict"):
        engine.save_checkpoint(tmp_path, "b", client_state=[1])
    assert not (tmp_path / "b").exists()
    engine.destroy()


def test_all_ranks_may_convert_a_checkpoint_at_once(tmp_path: Path) -> None:
    engine = made()
    engine.save_checkpoint(tmp_path / "run")
    wanted = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(tmp_path / "run")
    for number, (size, safe) in enumerate([("5GB", False), ("2KB", False), ("2KB", True)] * 2):
        out = tmp_path / str(number)
        engine.sharding.context.world.barrier()
        zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict(
            tmp_path / "run", out, max_shard_size=size, safe_serialization=safe
        )
        engine.sharding.context.world.barrier()
        files = sorted(each.name for each in out.iterdir())
        assert not any(name.startswith(".") for name in files) and files
        if number == 0:
            found = torch.load(out / "pytorch_model.bin")
            assert all(torch.equal(found[name], value) for name, value in wanted.items())
    engine.destroy()


def test_detects_tags_that_differ_between_ranks(tmp_path: Path) -> None:
    for mode in ("Ignore", "Warn", "Fail"):
        engine = made(checkpoint={"tag_validation": mode})
        tag = f"{mode}{RANK}"
        if mode == "Fail" and RANKS > 1:
            with pytest.raises(meron.ArgumentError, match="'Fail1'"):
                engine.save_checkpoint(tmp_path, tag)
        else:
            engine.save_checkpoint(tmp_path, tag)
            assert (tmp_path / f"{mode}0").is_dir()
        engine.destroy()
    with pytest.raises(meron.ArgumentError, match="tag_validation"):
        made(checkpoint={"tag_validation": "often"})


def test_loads_parts_of_a_checkpoint(tmp_path: Path) -> None:
    engine = made()
    steps(engine, 0, 2)
    engine.save_checkpoint(tmp_path)
    saved, rate = state(engine), engine.get_lr()
    engine.destroy()

    other = made(seed=5)
    steps(other, 0, 1)
    before = state(other)
    other.load_checkpoint(tmp_path, load_optimizer_states=False)
    assert other.get_lr() == rate
    now = state(other)
    assert all(torch.equal(a, b) for a, b in zip(now[0::3], saved[0::3]))
    assert_same(now[1::3], before[1::3])
    other.destroy()

    other = made(seed=5)
    first = other.get_lr()
    other.load_checkpoint(tmp_path, load_lr_scheduler_states=False)
    assert_same(state(other), saved)
    other.destroy()
    other = made(seed=5)
    other.load_checkpoint(tmp_path, load_module_only=True)
    assert other.get_lr() == first and other.global_steps == 2
    assert_same(state(other)[0::3], saved[0::3])
    other.destroy()

    torch.manual_seed(1)
    larger = zero.initialize(model=Model(blocks=3), config=config(**ADAM))[0]
    weights = dict(zero.full_state_dict(larger))
    with pytest.raises(ValueError, match=re.escape("blocks.2")):
        larger.load_checkpoint(tmp_path)
    assert all(torch.equal(v, weights[k]) for k, v in zero.full_state_dict(larger).items())
    larger.load_checkpoint(tmp_path, load_module_strict=False)
    assert torch.equal(zero.full_state_dict(larger)["shift"], saved[0])
    seen = []

    def load(src: Any, dst: torch.nn.Module) -> None:
        seen.append(sorted(src))
        state = zero.full_state_dict(dst)
        state.update({k.replace("blocks.1", "blocks.2"): src[k] for k in src})
        dst.load_state_dict(state)

    larger.load_checkpoint(tmp_path, load_module_only=True, custom_load_fn=load)
    got = zero.full_state_dict(larger)
    assert torch.equal(got["blocks.2.up.weight"], got["blocks.1.up.weight"])
    assert "head.weight" in seen[0] and "blocks.1.up.bias" in seen[0]
    larger.destroy()


def test_a_write_to_a_state_waits_for_the_copy_of_a_background_save(tmp_path: Path) -> None:
    engine = made(optimizer={"type": "RMSprop", "params": {}})
    steps(engine, 0, 1)
    param = engine.module.blocks[0].up.weight
    before = zero.safe_get_local_optimizer_state(param, "square_avg")
    handle = mt.save(tmp_path, "a", engine.module, engine.optimizer, background=True)
    assert engine.sharding.copying
    zero.safe_set_local_optimizer_state(param, torch.zeros_like(before), "square_avg")
    assert not engine.sharding.copying
    handle.wait()
    mt.load(tmp_path, "a", engine.module, engine.optimizer)
    assert torch.equal(zero.safe_get_local_optimizer_state(param, "square_avg"), before)


def test_leaves_out_frozen_params(tmp_path: Path) -> None:
    engine = made(frozen=True)
    steps(engine, 0, 1)
    engine.save_checkpoint(tmp_path, exclude_frozen_parameters=True)
    saved = state(engine)
    engine.destroy()
    manifest = json.loads((tmp_path / "global_step1/meron.json").read_text())
    names = {tensor["name"] for tensor in manifest["tensors"]}
    assert "shift" in names and "embed.weight" not in names
    other = made(seed=0, frozen=True)
    steps(other, 5, 7)
    other.load_checkpoint(tmp_path)
    assert_same(state(other), saved)
    other.destroy()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_save_within_an_accumulation_has_what_the_last_update_left(
    stage: int, tmp_path: Path
) -> None:
    engine = made(stage=stage, gradient_accumulation_steps=2)
    for number in range(2):
        micro_step(engine, number)
    saved = state(engine)
    micro_step(engine, 2)
    engine.save_checkpoint(tmp_path, "within")
    loss = micro_backward(engine, 3)
    engine.save_checkpoint(tmp_path, "before step")
    engine.step()
    after = state(engine)
    for tag in ("within", "before step"):
        other = made(seed=9, stage=stage, gradient_accumulation_steps=2)
        other.load_checkpoint(tmp_path, tag)
        assert_same(state(other), saved)
        assert (other.global_steps, other.micro_steps) == (1, 2)
        micro_step(other, 2)
        assert torch.equal(micro_backward(other, 3), loss)
        other.step()
        assert_same(state(other), after)
        assert (other.global_steps, other.micro_steps) == (2, 4)
        other.destroy()
    assert (engine.global_steps, engine.micro_steps) == (2, 4)
    engine.destroy()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_saves_beside_an_engine_within_an_accumulation(stage: int, tmp_path: Path) -> None:
    actor = made(stage=stage, gradient_accumulation_steps=2)
    critic = made(seed=3, stage=stage)
    micro_step(actor, 0)
    micro_step(critic, 0)
    saved = state(critic)
    critic.save_checkpoint(tmp_path)
    micro_step(critic, 1)
    critic.load_checkpoint(tmp_path)
    assert_same(state(critic), saved)
    before = state(actor)
    micro_step(actor, 1)
    assert actor.global_steps == 1
    assert not all(torch.equal(a, b) for a, b in zip(state(actor), before))
    actor.destroy()
    critic.destroy()


def micro_backward(engine: Any, number: int) -> torch.Tensor:
    x, _ = data(torch.Generator().manual_seed(number))
    loss = engine(x[RANK]).float().square().mean()
    engine.backward(loss)
    return loss.detach()


def micro_step(engine: Any, number: int) -> None:
    micro_backward(engine, number)
    engine.step()


def test_converts_a_checkpoint_whose_params_have_their_own_counts(tmp_path: Path) -> None:
    engine = made()
    engine.module.shift.requires_grad_(False)
    steps(engine, 0, 2)
    engine.module.shift.requires_grad_(True)
    steps(engine, 2, 3)
    engine.save_checkpoint(tmp_path)
    wanted = zero.safe_get_full_fp32_param(engine.module.shift)
    engine.destroy()
    if RANK != 0:
        return
    manifest = json.loads((tmp_path / "global_step3" / "meron.json").read_text())
    assert manifest["version"] == 2
    assert set(manifest["optimizers"][0]["param_steps"].values()) == {1}
    got = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(tmp_path)
    assert torch.equal(got["shift"], wanted)
    script = [sys.executable, str(tmp_path / "zero_to_fp32.py"), str(tmp_path)]
    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MERON_LIBRARY")}
    subprocess.run([*script, str(tmp_path / "bin")], check=True, env=plain)
    again = torch.load(tmp_path / "bin/pytorch_model.bin", weights_only=True)
    assert torch.equal(again["shift"], wanted)


def test_converts_a_checkpoint_to_f32_weights(tmp_path: Path) -> None:
    engine = made(bf16={"enabled": True})
    steps(engine, 0, 2)
    engine.save_checkpoint(tmp_path)
    wanted = {}
    for name, param in engine.named_parameters(remove_duplicate=False):
        wanted[name] = zero.safe_get_full_fp32_param(param)
    engine.destroy()
    if RANK != 0:
        return
    got = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(tmp_path)
    assert set(got) == set(wanted)
    assert all(torch.equal(got[name], value) for name, value in wanted.items())
    assert got["head.weight"] is got["embed.weight"]
    lazy = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(tmp_path, lazy_mode=True)
    assert torch.equal(lazy["shift"].contiguous(), wanted["shift"])
    model = zero_to_fp32.load_state_dict_from_zero_checkpoint(Model(), tmp_path, "global_step2")
    assert all(torch.equal(p, wanted[name]) for name, p in model.named_parameters())
    script = [sys.executable, str(tmp_path / "zero_to_fp32.py"), str(tmp_path)]
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([*script, str(tmp_path / "bin")], check=True, env=plain)
    again = torch.load(tmp_path / "bin/pytorch_model.bin", weights_only=True)
    assert all(torch.equal(again[name], value) for name, value in wanted.items())
    options = ["--safe_serialization", "--max_shard_size", "3KB", "-t", "global_step2"]
    subprocess.run([*script, str(tmp_path / "safe"), *options], check=True, env=plain)
    index = json.loads((tmp_path / "safe/model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(index.values())) > 1 and set(index) == set(wanted) - {"head.weight"}
    for name, file in index.items():
        assert torch.equal(weight_files.read_weights(tmp_path / "safe" / file)[name], wanted[name])
    with pytest.raises(ValueError, match="latest"):
        zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(tmp_path / "bin")
    with pytest.raises(FileNotFoundError, match="absent"):
        zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(tmp_path, "absent")


def test_consolidates_16_bit_weights_on_rank_0_and_in_files(tmp_path: Path) -> None:
    engine = made(bf16={"enabled": True}, frozen=True)
    wanted = zero.full_state_dict(engine)
    state = engine._zero3_consolidated_16bit_state_dict()
    assert (state is None) == (RANK != 0)
    for exclude in (False, True):
        assert engine.save_16bit_model(tmp_path, exclude_frozen_parameters=exclude)
        assert engine.save_16bit_model(tmp_path, "model.safetensors", exclude)
        if RANK == 0:
            assert state is not None and list(state) == list(wanted)
            loaded = torch.load(tmp_path / "pytorch_model.bin", weights_only=True)
            safe = weight_files.read_weights(tmp_path / "model.safetensors")
            kept = {n for n in wanted if not exclude or n.split(".")[0] not in ("embed", "head")}
            assert set(loaded) == kept and set(safe) == kept - {"head.weight"}
            for name in safe:
                assert torch.equal(loaded[name], wanted[name]), name
                assert torch.equal(safe[name], wanted[name]) and safe[name].dtype == torch.bfloat16
    file = tmp_path / "file"
    if RANK == 0:
        file.write_text("no tmp_path")
    engine.sharding.context.world.barrier()
    for name in ("model.safetensors", "model.bin"):
        with pytest.raises(OSError, match="file"):
            engine.save_16bit_model(file, name)
    assert engine.zero_gather_16bit_weights_on_model_save()
    engine.destroy()
    engine = made(stage=2)
    with pytest.raises(ValueError, match="ZeRO-3"):
        engine._zero3_consolidated_16bit_state_dict()
    engine.destroy()
