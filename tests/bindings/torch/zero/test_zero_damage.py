# SPDX-License-Identifier: Apache-2.0
"""Each reader of a checkpoint in Python names damage, or returns the right bits.

With MERON_FAULT_SHARE=1 all 1,000 trials run, with MERON_TEST_SEED=N others.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from adam_engine import made, steps

import meron
from meron.torch.checkpoint.nodes import entries_in
from meron.zero import zero_to_fp32
from meron.zero.zero_to_fp32 import Damaged, LazyDict, crc32c, open_reader
from model import RANK

pytestmark = pytest.mark.ranks(1)

TRIALS = int(1000 * float(os.environ.get("MERON_FAULT_SHARE", "0.05")))
SEED = int(os.environ.get("MERON_TEST_SEED", "20261128"))
State = dict[str, torch.Tensor]


def save(folder: Path) -> Path:
    """A checkpoint with values in bf16 and f32 masters. Returns its directory."""
    engine = made(bf16={"enabled": True})
    steps(engine, 0, 2)
    engine.save_checkpoint(folder)
    engine.destroy()
    return folder / "global_step2"


def stand_alone(script: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as it runs where Meron is not installed."""
    spec = importlib.util.spec_from_file_location("stand_alone", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "stand_alone", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "open_reader", lambda folder, *_: module.NumpyReader(Path(folder)))
    return module


def flip(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def cut(path: Path, dice: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))])


def lengthen(path: Path, dice: random.Random) -> None:
    path.write_bytes(path.read_bytes() + dice.randbytes(dice.randrange(1, 5000)))


def zero_a_sector(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    begin = dice.randrange(len(data)) // 512 * 512
    data[begin : begin + 512] = bytes(len(data[begin : begin + 512]))
    path.write_bytes(data)


def remove(path: Path, _dice: random.Random) -> None:
    path.unlink()


def link(path: Path, _dice: random.Random) -> None:
    path.rename(path.with_name(".aside"))
    path.symlink_to(".aside")


DAMAGES = (flip, flip, flip, flip, flip, flip, cut, lengthen, zero_a_sector, remove, link)


def same(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def readers(script: ModuleType) -> dict[str, Callable[[Path], State]]:
    def by_file(path: Path) -> State:
        shutil.rmtree(path.parent / "out", ignore_errors=True)
        zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict(path, path.parent / "out")
        state: State = torch.load(path.parent / "out/pytorch_model.bin", weights_only=True)
        return state

    return {
        "function": zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint,
        "file": by_file,
        "as saved": lambda path: {k: v.clone() for k, v in LazyDict(open_reader(path)).items()},
        "stand-alone": script.get_fp32_state_dict_from_zero_checkpoint,
    }


@pytest.mark.ranks(2)
def test_no_reader_passes_damage_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = save(tmp_path / "saved")
    if RANK:
        return
    script = stand_alone(tmp_path / "saved/zero_to_fp32.py", monkeypatch)
    named = (meron.Error, ValueError, FileNotFoundError)  # Damaged is a ValueError
    every = readers(script)
    good = {name: read(saved) for name, read in every.items()}
    assert same(good["function"], good["stand-alone"])
    dice = random.Random(SEED)
    files = sorted(saved.iterdir())
    found = 0
    for trial in range(TRIALS):
        path = tmp_path / "damaged" / saved.name
        shutil.copytree(saved, path)
        victim = path / dice.choice(files).name
        damage = dice.choice(DAMAGES)
        damage(victim, dice)
        for name, read in every.items():
            try:
                got = read(path)
            except named as error:
                found += 1
                assert str(path) in str(error), (SEED, trial, name, error)
                continue
            assert same(got, good[name]), f"seed {SEED}, trial {trial}: {name} passed {damage}"
        shutil.rmtree(path.parent)
    assert found > TRIALS  # of four readers; states of the optimizer are not read


def test_forked_processes_convert_a_checkpoint_at_once(tmp_path: Path) -> None:
    """libmeron refuses a fork of a process that used it."""
    saved, out = save(tmp_path), tmp_path / "out"
    wanted = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(saved)
    fork = multiprocessing.get_context("fork")
    convert = zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict
    children = [fork.Process(target=convert, args=(saved, out)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert same(torch.load(out / "pytorch_model.bin", weights_only=True), wanted)


def test_folders_of_nodes_are_searched_by_manifests_with_their_checksum(tmp_path: Path) -> None:
    path = save(tmp_path) / "meron.json"
    assert [entry["step"] for entry in entries_in(str(tmp_path), None)] == [2]
    next(path.parent.glob("values-*")).unlink()
    assert [entry["there"] for entry in entries_in(str(tmp_path), None)] == [[]]
    text = path.read_text("utf-8")
    assert text.count('"step": 2,') == 1
    path.write_text(text.replace('"step": 2,', '"step": 3,'), "utf-8")
    (entry,) = entries_in(str(tmp_path), None)
    assert "step" not in entry and "meron.json" in entry["defect"]


def sealed(manifest: dict[str, Any]) -> bytes:
    """A manifest with the right checksum."""
    manifest.pop("crc", None)
    text = json.dumps(manifest)[:-1].encode() + b",\n"
    return text + b'"crc": "%08x"\n}\n' % crc32c(np.frombuffer(text, np.uint8))


def first_piece(manifest: dict[str, Any]) -> list[int]:
    piece: list[int] = next(t for t in manifest["tensors"] if t["pieces"])["pieces"][0]
    return piece


EDITS: tuple[Callable[[dict[str, Any]], object], ...] = (
    lambda m: first_piece(m).clear(),
    lambda m: m["tensors"][0].update(pieces=[]),
    lambda m: m["tensors"][0].update(shape=[2**40, 2**40]),
    lambda m: m["tensors"].append(m["tensors"][0]),
    lambda m: m["files"][0].update(name="../values"),
    lambda m: m["files"][0].update(bytes=-1),
    lambda m: m["files"][0].update(crc=""),
    lambda m: m.update(version=3),
    lambda m: m.update(extra=[]),
    lambda m: m.update(block_bytes=3),
    lambda m: m.pop("files"),
    lambda m: first_piece(m).__setitem__(0, 99),
    lambda m: first_piece(m).__setitem__(1, 1),
    lambda m: first_piece(m).__setitem__(2, 2**50),
    lambda m: first_piece(m).__setitem__(3, 2**50),
    lambda m: first_piece(m).__setitem__(3, 4097),
)


def test_both_readers_refuse_a_hostile_manifest(tmp_path: Path) -> None:
    saved = save(tmp_path)
    text = (saved / "meron.json").read_text("utf-8")
    (saved / "meron.json").write_bytes(sealed(json.loads(text)))
    zero_to_fp32.NumpyReader(saved)
    open_reader(saved)
    for number, edit in enumerate(EDITS):
        manifest = json.loads(text)
        edit(manifest)
        (saved / "meron.json").write_bytes(sealed(manifest))
        with pytest.raises(Damaged, match=r"meron\.json"):
            pytest.fail(f"{number}: {zero_to_fp32.NumpyReader(saved)}")
        with pytest.raises(meron.Error):
            pytest.fail(f"{number}: {open_reader(saved)}")


def test_checksum_is_crc32c_at_40_mb_per_second() -> None:
    assert crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283
    dice = np.random.default_rng(SEED)
    for size in (0, 1, 3, 4, 5, 32767, 32768, 32769, 100001):
        data = dice.integers(0, 256, size, np.uint8)
        assert crc32c(data) == zero_to_fp32.crc32c_by_bit(data.tobytes()), size
    block = dice.integers(0, 256, 1 << 20, np.uint8)
    crc32c(block)
    times = []
    for _ in range(10):
        begin = time.thread_time()
        crc32c(block)
        times.append(time.thread_time() - begin)
    assert len(block) / min(times) >= 40e6


def run_script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script where Meron is not installed."""
    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MERON_LIBRARY")}
    command = [sys.executable, folder / "zero_to_fp32.py", folder, folder / "out", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=plain)


def test_the_script_without_meron_names_damage(tmp_path: Path) -> None:
    saved = save(tmp_path)
    path = next(saved.glob("state-*"))
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    ended = run_script(tmp_path)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert str(path) in ended.stderr and "do not have their checksum" in ended.stderr
    assert not list((tmp_path / "out").iterdir())
    ended = run_script(tmp_path, "--no-checksums")
    assert ended.returncode == 0
    assert "are not compared with their checksums" in ended.stderr
    assert (tmp_path / "out/pytorch_model.bin").is_file()


def test_the_script_shows_its_progress() -> None:
    text = io.StringIO()
    progress = zero_to_fp32.Progress(3_000_000_000)
    progress.printed -= 2
    with contextlib.redirect_stderr(text):
        progress(1_000_000_000)
        progress(1_000_000_000)
    assert text.getvalue() == "read 1.00 of 3.00 GB\n"


def test_the_script_keeps_the_umask_and_follows_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "zero_to_fp32.py").symlink_to(victim)
    (folder / "latest").symlink_to(victim)
    before = os.umask(0o077)
    try:
        save(folder)
        engine = made()
        engine.save_checkpoint(folder, "other", save_latest=False)
        engine.destroy()
    finally:
        os.umask(before)
    assert victim.read_text() == "precious" and victim.stat().st_mode & 0o777 == 0o600
    script = folder / "zero_to_fp32.py"
    assert not script.is_symlink() and script.stat().st_mode & 0o777 == 0o700
    assert script.read_bytes() == Path(zero_to_fp32.__file__).read_bytes()
    assert (folder / "latest").read_text() == "global_step2\n"
    assert not list(folder.glob(".*.part"))


def test_a_file_that_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(RuntimeError, match="half-way"), zero_to_fp32.replacing(path) as file:
        file.write(b"after")
        raise RuntimeError("half-way")
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["file"]


def test_weights_of_16_bits_replace_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    engine = made()
    for name in ("pytorch_model.bin", "model.safetensors"):
        for planted in (name, f".{name}.part"):
            (tmp_path / planted).symlink_to(victim)
        engine.save_16bit_model(tmp_path, name)
        assert not (tmp_path / name).is_symlink()
    assert victim.read_text() == "precious"
    engine.destroy()
