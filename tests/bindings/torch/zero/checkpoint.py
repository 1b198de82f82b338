# SPDX-License-Identifier: Apache-2.0
"""engine.save_checkpoint and load_checkpoint; zero_to_fp32; weights out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import meron
import meron.torch as mt
from meron import zero
from meron.zero import weight_files, zero_to_fp32
from model import RANK, RANKS, Model, config, data, engine_step, raises, run_cases

ROOT = Path(os.environ["MEETING"]).parent / "checkpoints"
HALF = {"fp16": {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 3}}
ADAM: dict[str, Any] = {
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_max_lr": 0.01}},
}


def made(seed: int = 0, stage: int = 3, frozen: bool = False, **options: Any) -> Any:
    torch.manual_seed(seed)
    model = Model()
    model.embed.weight.requires_grad_(not frozen)
    settings = config(stage, **{**ADAM, **options})
    return zero.initialize(model=model, config=settings)[0]


def steps(engine: Any, first: int, last: int) -> None:
    for step in range(first, last):
        engine_step(engine, [data(torch.Generator().manual_seed(step))])


def state(engine: Any) -> list[torch.Tensor]:
    found = []
    for param in engine.parameters():
        if not param.requires_grad:
            found.append(zero.safe_get_full_fp32_param(param))
            continue
        found += [
            zero.safe_get_full_fp32_param(param),
            zero.safe_get_full_optimizer_state(param, "exp_avg"),
            zero.safe_get_full_optimizer_state(param, "exp_avg_sq"),
        ]
    return [value for value in found if value is not None]


def assert_same(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other))


def case_training_goes_on_to_the_same_bits() -> None:
    for number, options in enumerate(
        ({}, HALF, {"bf16": {"enabled": True}}, {"optimizer": {"type": "RMSprop", "params": {}}})
    ):
        folder = ROOT / f"goes-on-{number}"
        engine = made(stage=number % 4, **options)
        steps(engine, 0, 3)
        assert engine.save_checkpoint(folder, client_state={"epoch": 4})
        after = torch.rand(3)
        steps(engine, 3, 6)
        wanted = [p.clone() for p in engine.module_state_dict().values()]
        counters = engine.global_steps, engine.micro_steps, engine.cur_scale, engine.get_lr()
        engine.destroy()
        for stage in {number % 4, 3}:
            other = made(seed=9, stage=stage, **options)
            path, client = other.load_checkpoint(folder)
            assert path == str(folder / "global_step3") and client == {"epoch": 4}
            assert torch.equal(torch.rand(3), after)
            assert other.global_steps == 3
            steps(other, 3, 6)
            got = list(other.module_state_dict().values())
            assert all(torch.equal(a, b) for a, b in zip(wanted, got)), (number, stage)
            theirs = other.global_steps, other.micro_steps, other.cur_scale, other.get_lr()
            assert theirs == counters, (theirs, counters)
            other.destroy()


def case_each_node_saves_on_its_own_disk() -> None:
    folder = ROOT / "node-local"
    options = {"checkpoint": {"use_node_local_storage": True}}
    engine = made(**options)
    steps(engine, 0, 2)
    engine.save_checkpoint(folder, client_state={"epoch": 1})
    engine.save_checkpoint(folder, tag="other", save_latest=False)
    saved = state(engine)
    steps(engine, 2, 3)
    assert engine.load_checkpoint(folder)[1] == {"epoch": 1}
    assert_same(saved, state(engine))
    assert engine.load_checkpoint(folder, "other")[0] == str(folder / "other")
    with raises(meron.NotFoundError, "absent"):
        engine.load_checkpoint(folder, tag="absent")
    engine.destroy()


def case_files_are_where_deepspeed_has_them() -> None:
    folder = ROOT / "files"
    engine = made()
    steps(engine, 0, 1)
    engine.save_checkpoint(str(folder))
    engine.save_checkpoint(str(folder), tag=7, save_latest=False)
    engine.save_checkpoint(str(folder), tag=7, save_latest=False)  # replaced
    engine.sharding.context.world.barrier()
    assert (folder / "latest").read_text().strip() == "global_step1"
    assert (folder / "7" / "meron.json").is_file() and (folder / "global_step1").is_dir()
    assert os.access(folder / "zero_to_fp32.py", os.X_OK)
    assert engine.load_checkpoint(folder)[0] == str(folder / "global_step1")
    assert engine.load_checkpoint(folder, 7)[0] == str(folder / "7")
    assert engine.load_checkpoint(folder / "7")[0] == str(folder / "7")
    with raises(ValueError, "save_dir is empty"):
        engine.save_checkpoint("")
    engine.save_checkpoint(folder / "none", tag="only", save_latest=False)
    assert not (folder / "none" / "latest").exists()
    assert engine.load_checkpoint(folder / "none") == (None, None)
    assert engine.load_checkpoint(folder / "nothing") == (None, None)
    with raises(meron.NotFoundError, "absent"):
        engine.load_checkpoint(folder, tag="absent")
    engine.destroy()


def case_a_client_state_has_tensors_and_names_what_it_cannot_hold() -> None:
    folder = ROOT / "client"
    engine = made()
    state: dict[str, Any] = {
        "numbers": [1, 2.5, float("inf"), None, True],
        "pair": (1, "two"),
        "counts": Counter(a=2),
        5: "five",
        "nested": {"sampler": [torch.arange(10_000), torch.ones((), dtype=torch.bfloat16)]},
    }
    engine.save_checkpoint(folder, "a", client_state=state if RANK == 0 else {})
    _, client = engine.load_checkpoint(folder)
    tensors, own = client.pop("nested")["sampler"], state.pop("nested")["sampler"]
    assert client == state and type(client["counts"]) is Counter
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(tensors, own))
    wrong: Any = {"fine": 1, "module": {"net": torch.nn.Linear(1, 1)}}
    with raises(meron.ArgumentError, "'module'"):
        engine.save_checkpoint(folder, "b", client_state=wrong if RANK == 0 else {})
    with raises(meron.ArgumentError, "no dict"):
        engine.save_checkpoint(folder, "b", client_state=[1])
    assert not (folder / "b").exists()
    engine.destroy()


def case_tags_that_differ_are_seen() -> None:
    folder = ROOT / "tags"
    for mode in ("Ignore", "Warn", "Fail"):
        engine = made(checkpoint={"tag_validation": mode})
        tag = f"{mode}{RANK}"
        if mode == "Fail" and RANKS > 1:
            with raises(meron.ArgumentError, "'Fail1'"):
                engine.save_checkpoint(folder, tag)
        else:
            engine.save_checkpoint(folder, tag)
            assert (folder / f"{mode}0").is_dir()
        engine.destroy()
    with raises(meron.ArgumentError, "tag_validation"):
        made(checkpoint={"tag_validation": "often"})


def case_parts_of_a_checkpoint_are_loaded() -> None:
    folder = ROOT / "parts"
    engine = made()
    steps(engine, 0, 2)
    engine.save_checkpoint(folder)
    saved, rate = state(engine), engine.get_lr()
    engine.destroy()

    other = made(seed=5)
    steps(other, 0, 1)
    before = state(other)
    other.load_checkpoint(folder, load_optimizer_states=False)
    assert other.get_lr() == rate
    now = state(other)
    assert all(torch.equal(a, b) for a, b in zip(now[0::3], saved[0::3]))
    assert_same(now[1::3], before[1::3])
    other.destroy()

    other = made(seed=5)
    first = other.get_lr()
    other.load_checkpoint(folder, load_lr_scheduler_states=False)
    assert_same(state(other), saved)
    other.destroy()
    other = made(seed=5)
    other.load_checkpoint(folder, load_module_only=True)
    assert other.get_lr() == first and other.global_steps == 2
    assert_same(state(other)[0::3], saved[0::3])
    other.destroy()

    torch.manual_seed(1)
    larger = zero.initialize(model=Model(blocks=3), config=config(**ADAM))[0]
    weights = dict(larger.module_state_dict())
    with raises(ValueError, "blocks.2"):
        larger.load_checkpoint(folder)
    assert all(torch.equal(v, weights[k]) for k, v in larger.module_state_dict().items())
    larger.load_checkpoint(folder, load_module_strict=False)
    assert torch.equal(larger.module_state_dict()["shift"], saved[0])
    seen = []

    def load(src: Any, dst: torch.nn.Module) -> None:
        seen.append(sorted(src))
        state = dst.state_dict()
        state.update({k.replace("blocks.1", "blocks.2"): src[k] for k in src})
        dst.load_state_dict(state)

    larger.load_checkpoint(folder, load_module_only=True, custom_load_fn=load)
    got = larger.module_state_dict()
    assert torch.equal(got["blocks.2.up.weight"], got["blocks.1.up.weight"])
    assert "head.weight" in seen[0] and "blocks.1.up.bias" in seen[0]
    larger.destroy()


def case_a_state_is_written_after_a_background_save_has_copied_it() -> None:
    engine = made(optimizer={"type": "RMSprop", "params": {}})
    steps(engine, 0, 1)
    folder, param = ROOT / "background", engine.module.blocks[0].up.weight
    before = zero.safe_get_local_optimizer_state(param, "square_avg")
    handle = mt.save(folder, "a", engine.module, engine.optimizer, background=True)
    assert engine.sharding.copying
    zero.safe_set_local_optimizer_state(param, torch.zeros_like(before), "square_avg")
    assert not engine.sharding.copying
    handle.wait()
    mt.load(folder, "a", engine.module, engine.optimizer)
    assert torch.equal(zero.safe_get_local_optimizer_state(param, "square_avg"), before)


def case_frozen_params_may_be_left_out() -> None:
    folder = ROOT / "frozen"
    engine = made(frozen=True)
    steps(engine, 0, 1)
    engine.save_checkpoint(folder, exclude_frozen_parameters=True)
    saved = state(engine)
    engine.destroy()
    manifest = json.loads((folder / "global_step1/meron.json").read_text())
    names = {tensor["name"] for tensor in manifest["tensors"]}
    assert "shift" in names and "embed.weight" not in names
    other = made(seed=0, frozen=True)
    steps(other, 5, 7)
    other.load_checkpoint(folder)
    assert_same(state(other), saved)
    other.destroy()


def case_nothing_is_saved_within_an_accumulation() -> None:
    engine = made(gradient_accumulation_steps=2)
    x, _ = data(torch.Generator().manual_seed(0))
    engine.backward(engine(x[RANK]).float().mean())
    engine.step()
    with raises(meron.StateError, "gradient"):
        engine.save_checkpoint(ROOT / "within")
    engine.destroy()


def case_f32_weights_are_made_of_a_checkpoint() -> None:
    folder = ROOT / "f32"
    engine = made(bf16={"enabled": True})
    steps(engine, 0, 2)
    engine.save_checkpoint(folder)
    wanted = {}
    for name, param in engine.named_parameters(remove_duplicate=False):
        wanted[name] = zero.safe_get_full_fp32_param(param)
    engine.destroy()
    if RANK != 0:
        return
    got = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(folder)
    assert set(got) == set(wanted)
    assert all(torch.equal(got[name], value) for name, value in wanted.items())
    assert got["head.weight"] is got["embed.weight"]
    lazy = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(folder, lazy_mode=True)
    assert torch.equal(lazy["shift"].contiguous(), wanted["shift"])
    model = zero_to_fp32.load_state_dict_from_zero_checkpoint(Model(), folder, "global_step2")
    assert all(torch.equal(p, wanted[name]) for name, p in model.named_parameters())
    script = [sys.executable, str(folder / "zero_to_fp32.py"), str(folder)]
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([*script, str(folder / "bin")], check=True, env=plain)
    again = torch.load(folder / "bin/pytorch_model.bin", weights_only=True)
    assert all(torch.equal(again[name], value) for name, value in wanted.items())
    options = ["--safe_serialization", "--max_shard_size", "3KB", "-t", "global_step2"]
    subprocess.run([*script, str(folder / "safe"), *options], check=True, env=plain)
    index = json.loads((folder / "safe/model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(index.values())) > 1 and set(index) == set(wanted) - {"head.weight"}
    for name, file in index.items():
        assert torch.equal(weight_files.read_weights(folder / "safe" / file)[name], wanted[name])
    with raises(ValueError, "latest"):
        zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(folder / "bin")
    with raises(FileNotFoundError, "absent"):
        zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(folder, "absent")


def case_weights_go_to_rank_0_and_to_files() -> None:
    folder = ROOT / "out"
    engine = made(bf16={"enabled": True}, frozen=True)
    wanted = engine.module_state_dict()
    state = engine._zero3_consolidated_16bit_state_dict()
    assert (state is None) == (RANK != 0)
    for exclude in (False, True):
        assert engine.save_16bit_model(folder, exclude_frozen_parameters=exclude)
        assert engine.save_16bit_model(folder, "model.safetensors", exclude)
        if RANK == 0:
            assert state is not None and list(state) == list(wanted)
            loaded = torch.load(folder / "pytorch_model.bin", weights_only=True)
            safe = weight_files.read_weights(folder / "model.safetensors")
            kept = {n for n in wanted if not exclude or n.split(".")[0] not in ("embed", "head")}
            assert set(loaded) == kept and set(safe) == kept - {"head.weight"}
            for name in safe:
                assert torch.equal(loaded[name], wanted[name]), name
                assert torch.equal(safe[name], wanted[name]) and safe[name].dtype == torch.bfloat16
    file = ROOT / "file"
    if RANK == 0:
        file.write_text("no folder")
    engine.sharding.context.world.barrier()
    for name in ("model.safetensors", "model.bin"):
        with raises(OSError, "file"):
            engine.save_16bit_model(file, name)
    assert engine.zero_gather_16bit_weights_on_model_save()
    engine.destroy()
    engine = made(stage=2)
    with raises(ValueError, "ZeRO-3"):
        engine._zero3_consolidated_16bit_state_dict()
    engine.destroy()


if __name__ == "__main__":
    if RANK == 0:
        shutil.rmtree(ROOT, ignore_errors=True)
        ROOT.mkdir(parents=True)
    run_cases(sys.modules[__name__])
