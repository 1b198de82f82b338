# SPDX-License-Identifier: Apache-2.0
"""`meron checkpoint`: what it shows, finds, compares, writes and removes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import MERON, meron

from checkpoints import (
    Tensor,
    read_checkpoint,
    read_model,
    tensor,
    write_checkpoint,
    write_model,
)


def some_tensors(seed: int = 1) -> list[Tensor]:
    random = np.random.default_rng(seed)
    tensors = []
    for layer in range(3):
        master = random.standard_normal((13, 7))
        tensors.append(tensor(f"h.{layer}.w", master, dtype="BF16"))
        tensors.append(tensor(f"h.{layer}.w", master, "master"))
        tensors.append(tensor(f"h.{layer}.w", random.standard_normal((13, 7)), "exp_avg"))
    tensors.append(tensor("scale", 2.5))
    tensors.append(tensor("rng", np.arange(5), "extra", "I64"))
    return tensors


def by_key(tensors: list[Tensor]) -> dict[tuple[str, str], Tensor]:
    return {(t.kind, t.name): t for t in tensors}


# ---- Looking ------------------------------------------------------------------------------------


def test_inspect_groups_equal_layers(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "runs/one", some_tensors(), ranks=2, step=7)
    done = meron("checkpoint", "inspect", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert lines["step"].split() == ["step", "7"]
    assert "2" in lines["ranks"] and "zero3" in lines["ranks"]
    row = lines["h.*.w"].split()
    assert row[:4] == ["h.*.w", "BF16", "[13,", "7]"]
    assert "values, master, exp_avg" in lines["h.*.w"] and " 3 " in lines["h.*.w"]
    everything = meron("checkpoint", "inspect", str(tmp_path / "runs/one"), "--all")
    assert "h.2.w" in everything.stdout and "h.*" not in everything.stdout


def test_inspect_prints_json(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "one", some_tensors(), ranks=2)
    found = json.loads(meron("checkpoint", "inspect", str(tmp_path / "one"), "--json").stdout)
    assert (found["world"], found["step"], found["extra"]) == (2, 1, {"epoch": 3})
    assert {(t["kind"], t["name"]) for t in found["tensors"]} == set(by_key(some_tensors()))


def test_inspect_shows_a_model_of_hugging_face(tmp_path: Path) -> None:
    write_model(tmp_path / "model.safetensors", [tensor("a.w", np.zeros((3, 5)), dtype="F16")])
    done = meron("checkpoint", "inspect", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Hugging Face" in done.stdout and "[3, 5]" in done.stdout


def test_list_names_complete_and_incomplete_ones(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path / f"s{step}", some_tensors(), step=step)
    (tmp_path / "s3/state-00000-of-00001.safetensors").unlink()
    done = meron("checkpoint", "list", str(tmp_path))
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert names == ["s2", "s1", "s3"]
    assert "incomplete" in done.stdout.splitlines()[-1]
    rows = json.loads(meron("checkpoint", "list", str(tmp_path), "--json").stdout)
    assert [row["complete"] for row in rows] == [True, True, False]


def test_names_skipped_checkpoints(tmp_path: Path) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path / f"runs/s{step}", some_tensors(), step=step)
    path = tmp_path / "runs/s2/state-00000-of-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    runs = str(tmp_path / "runs")
    new, model = str(tmp_path / "new"), str(tmp_path / "model")
    for words in (
        ("inspect", runs),
        ("export", runs, model),
        ("reshard", runs, new, "--ranks", "2"),
        ("verify", runs),
    ):
        done = meron("checkpoint", *words)
        assert done.returncode == (1 if words[0] == "verify" else 0), (words, done.stderr)
        assert "runs/s1 was taken" in done.stderr and "s2:" in done.stderr, words
        assert "and by the manifest it has" in done.stderr
    done = meron("checkpoint", "verify", runs, "--json")
    assert done.returncode == 1
    (skipped,) = json.loads(done.stdout)["skipped"]
    assert skipped["name"] == "s2" and path.name in skipped["reason"]
    done = meron("checkpoint", "verify", runs, "--name", "s1")
    assert done.returncode == 0 and done.stderr == ""


# ---- verify -------------------------------------------------------------------------------------


def test_verify_reads_every_block(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "one", some_tensors(), ranks=3)
    done = meron("checkpoint", "verify", str(tmp_path / "one"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 6 blocks of 6 files" in done.stdout


@pytest.mark.parametrize("file", ["values-00001-of-00002", "state-00000-of-00002"])
def test_verify_names_a_flipped_bit(tmp_path: Path, file: str) -> None:
    write_checkpoint(tmp_path / "one", some_tensors(), ranks=2)
    path = tmp_path / f"one/{file}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 4
    path.write_bytes(content)
    done = meron("checkpoint", "verify", str(tmp_path / "one"))
    assert done.returncode == 1
    assert path.name in done.stdout and "at byte 0" in done.stdout and "h.0.w" in done.stdout
    damages = json.loads(meron("checkpoint", "verify", str(tmp_path / "one"), "--json").stdout)
    (damage,) = damages["damages"]
    assert damage["file"] == path.name and damage["offset"] == 0
    manifest = json.loads((tmp_path / "one/meron.json").read_text())
    number = [f["name"] for f in manifest["files"]].index(path.name)
    expected = [
        t["name"] if t["kind"] == "values" else f"{t['kind']} of {t['name']}"
        for t in manifest["tensors"]
        if any(piece[0] == number for piece in t["pieces"])
    ]
    assert damage["tensors"] == expected


def test_verify_names_a_changed_manifest(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "runs/one", some_tensors(), ranks=2, step=17)
    path = tmp_path / "runs/one/meron.json"
    text = path.read_text()
    assert text.count('"step": 17') == 1 or text.count('"step":17') == 1
    path.write_text(text.replace("17", "18", 1))
    for which in ([str(tmp_path / "runs/one")], [str(tmp_path / "runs"), "--name", "one"]):
        done = meron("checkpoint", "verify", *which)
        assert done.returncode == 1, done.stdout
        assert "damaged  meron.json at byte 0" in done.stdout and "checksum" in done.stdout
        assert "as they were written" not in done.stdout
        (damage,) = json.loads(meron("checkpoint", "verify", *which, "--json").stdout)["damages"]
        assert damage["file"] == "meron.json" and damage["tensors"] == []
    # All others refuse it.
    export = ("export", str(tmp_path / "runs/one"), str(tmp_path / "model"))
    for words in (("inspect", str(tmp_path / "runs/one")), export):
        done = meron("checkpoint", *words)
        assert done.returncode == 1 and "checksum" in done.stderr, done.stdout + done.stderr


def test_verify_counts_values_that_are_not_finite(tmp_path: Path) -> None:
    values = np.ones(8, "f4")
    values[[1, 5]], values[6] = np.nan, -np.inf
    state = tensor("w", values, "exp_avg")
    write_checkpoint(tmp_path / "one", [tensor("w", np.ones(8), dtype="BF16"), state], ranks=3)
    done = meron("checkpoint", "verify", str(tmp_path / "one"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exp_avg of w has 2 NaN and 1 infinite elements" in done.stdout
    assert "are as they were written" in done.stdout
    found = json.loads(meron("checkpoint", "verify", str(tmp_path / "one"), "--json").stdout)
    assert found["not_finite"] == [{"tensor": "exp_avg of w", "nans": 2, "infinities": 1}]


def test_verify_names_missing_and_short_files_and_continues(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "one", some_tensors(), ranks=2)
    (tmp_path / "one/values-00000-of-00002.safetensors").unlink()
    short = tmp_path / "one/state-00001-of-00002.safetensors"
    short.write_bytes(short.read_bytes()[:-1])
    done = meron("checkpoint", "verify", str(tmp_path / "one"))
    assert done.returncode == 1
    assert "values-00000" in done.stdout and "state-00001" in done.stdout
    assert "2 damaged places" in done.stdout


# ---- diff ---------------------------------------------------------------------------------------


def test_equal_checkpoints_of_other_worlds_are_equal(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a", some_tensors(), ranks=1)
    write_checkpoint(tmp_path / "b", some_tensors(), ranks=3)
    done = meron("checkpoint", "diff", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 tensors are equal, 0 are not" in done.stdout


def test_diff_measures_each_difference(tmp_path: Path) -> None:
    a = [
        tensor("same", [np.nan, 1, -0.0]),
        tensor("near", [1.0, 2.0, 4.0]),
        tensor("zero", [0.0]),
        tensor("nan", [1.0, np.nan]),
        tensor("shape", np.zeros((2, 3))),
        tensor("dtype", [1.0, 2.0]),
        tensor("left", [1.0]),
        tensor("whole", [1, 2], "extra", "I64"),
    ]
    b = [
        a[0],
        tensor("near", [1.0, 2.5, 4.0]),
        tensor("zero", [-0.0]),
        tensor("nan", [1.0, 7.0]),
        tensor("shape", np.zeros((3, 2))),
        tensor("dtype", [1.0, 2.0], dtype="BF16"),
        tensor("right", [1.0]),
        tensor("whole", [1, 3], "extra", "I64"),
    ]
    write_checkpoint(tmp_path / "a", a)
    write_checkpoint(tmp_path / "b", b)
    done = meron("checkpoint", "diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert done.returncode == 1
    rows = {row["name"]: row for row in json.loads(done.stdout)["tensors"]}
    assert rows["same"]["verdict"] == "equal"
    near = rows["near"]
    assert (near["differing"], near["max_absolute"], near["max_relative"]) == (1, 0.5, 0.2)
    assert rows["zero"]["differing"] == 1 and rows["zero"]["max_absolute"] == 0
    assert rows["nan"]["max_absolute"] is None
    assert rows["shape"]["verdict"] == "shape [2, 3] and [3, 2]"
    assert rows["dtype"]["verdict"] == "dtype F32 and BF16" and rows["dtype"]["differing"] == 0
    assert (rows["left"]["verdict"], rows["right"]["verdict"]) == ("only in A", "only in B")
    assert rows["whole"]["differing"] == 1 and "max_absolute" not in rows["whole"]
    shown = meron("checkpoint", "diff", str(tmp_path / "a"), str(tmp_path / "b")).stdout
    assert "near" in shown and "same" not in shown and "1 tensors are equal, 8 are not" in shown


# ---- reshard ------------------------------------------------------------------------------------


def test_resharding_keeps_every_byte(tmp_path: Path) -> None:
    tensors = [*some_tensors(), tensor("none", np.zeros((0, 4))), tensor("r", [1.0], "residual.2")]
    write_checkpoint(tmp_path / "one", tensors, step=9, world=3)
    for source, target, ranks in (("one", "three", 3), ("three", "two", 2), ("two", "many", 40)):
        done = meron(
            *("checkpoint", "reshard", str(tmp_path / source), str(tmp_path / target)),
            *("--ranks", str(ranks)),
        )
        assert done.returncode == 0, done.stderr
        assert meron("checkpoint", "verify", str(tmp_path / target)).returncode == 0
        assert read_checkpoint(tmp_path / target) == by_key(tensors)
        manifest = json.loads((tmp_path / target / "meron.json").read_text())
        assert (manifest["step"], manifest["extra"]) == (9, {"epoch": 3})
        assert manifest["world"] == max(3, ranks)  # residual.2 is of rank 2
        if ranks <= 3:
            assert len({file["rank"] for file in manifest["files"]}) == ranks
    sizes = [path.stat().st_size for path in (tmp_path / "three").glob("state-*")]
    assert max(sizes) - min(sizes) <= 16


def test_resharding_replaces_only_on_request(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a", some_tensors(1))
    write_checkpoint(tmp_path / "b", some_tensors(2))
    words = ("checkpoint", "reshard", str(tmp_path / "a"), str(tmp_path / "b"), "-n", "2")
    done = meron(*words)
    assert done.returncode == 1 and "has the name already" in done.stderr
    assert done.stderr.rstrip().endswith("or pass --overwrite")
    assert read_checkpoint(tmp_path / "b") == by_key(some_tensors(2))
    assert meron(*words, "--overwrite").returncode == 0
    assert read_checkpoint(tmp_path / "b") == by_key(some_tensors(1))


def test_a_damaged_checkpoint_is_not_resharded(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a", some_tensors())
    path = tmp_path / "a/values-00000-of-00001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    done = meron("checkpoint", "reshard", str(tmp_path / "a"), str(tmp_path / "b"), "-n", "2")
    assert done.returncode == 1 and path.name in done.stderr
    assert not (tmp_path / "b").exists() and not list(tmp_path.glob(".saving-b*"))


# ---- export -------------------------------------------------------------------------------------


def test_export_takes_masters_for_another_dtype(tmp_path: Path) -> None:
    tensors = some_tensors()
    write_checkpoint(tmp_path / "a", tensors, ranks=2)
    done = meron("checkpoint", "export", str(tmp_path / "a"), str(tmp_path / "m"))
    assert done.returncode == 0, done.stderr
    kept = read_model(tmp_path / "m/model.safetensors")
    assert kept == {t.name: t for t in tensors if t.kind == "values"}
    words = ("checkpoint", "export", str(tmp_path / "a"), str(tmp_path / "m"), "--dtype", "f32")
    refused = meron(*words).stderr
    assert "a model is there already" in refused and "or pass --overwrite" in refused
    assert meron(*words, "--overwrite").returncode == 0
    wide = read_model(tmp_path / "m/model.safetensors")
    masters = by_key(tensors)
    for layer in range(3):
        assert wide[f"h.{layer}.w"].data == masters["master", f"h.{layer}.w"].data
    again = meron("checkpoint", "diff", str(tmp_path / "m"), str(tmp_path / "m"))
    assert again.returncode == 0


def test_export_splits_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a", some_tensors())
    words = ("checkpoint", "export", str(tmp_path / "a"), str(tmp_path / "m"))
    assert meron(*words, "--max-file-size", "0.4KB").returncode == 0
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    }
    same = meron(*("checkpoint", "diff", str(tmp_path / "a"), str(tmp_path / "m"), "--values-only"))
    assert same.returncode == 0, same.stdout


# ---- prune --------------------------------------------------------------------------------------


def test_prune_keeps_the_newest_complete_ones(tmp_path: Path) -> None:
    for step in range(1, 6):
        write_checkpoint(tmp_path / f"s{step}", some_tensors(), step=step)
    (tmp_path / "s5/state-00000-of-00001.safetensors").unlink()
    (tmp_path / "mine").mkdir()
    words = ("checkpoint", "prune", str(tmp_path), "--keep", "2")
    before = {path.name for path in tmp_path.iterdir()}
    dry = meron(*words, "--dry-run")
    assert dry.stdout.split() == [
        *("would", "remove", f"{tmp_path}/s1", "would", "remove", f"{tmp_path}/s2")
    ]
    assert {path.name for path in tmp_path.iterdir()} == before
    assert meron(*words).stdout.split() == [
        *("removed", f"{tmp_path}/s1", "removed", f"{tmp_path}/s2")
    ]
    left = {path.name for path in tmp_path.iterdir()}  # no file of a lock
    assert left == {"s3", "s4", "s5", "mine"}
    assert "nothing to remove" in meron(*words).stdout
    assert meron(*words[:-1], "0").returncode == 2


# ---- import and wrong usage ---------------------------------------------------------------------


def test_import_without_python_names_its_requirements(tmp_path: Path) -> None:
    done = subprocess.run(
        [MERON, "checkpoint", "import", "a", "b"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "python3" in done.stderr and "meron" in done.stderr


def test_import_without_the_package_reports_it(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    done = subprocess.run(
        [MERON, "checkpoint", "import", "a", "b"],
        env={**os.environ, "PATH": str(tmp_path), "VIRTUAL_ENV": "", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    if done.returncode == 2 or "no checkpoint" in done.stderr:
        pytest.skip("the package meron is installed here")
    assert done.returncode == 1 and "meron.convert" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("checkpoint", "inspcet", "x"), "did you mean inspect?"),
        (("checkpoint", "inspect", "x", "--jsn"), "did you mean --json?"),
        (("checkpont", "list"), "did you mean checkpoint?"),
        (("checkpoint",), "subcommand"),
        (("checkpoint", "export", "a", "b", "--dtype", "int8"), "f32, bf16, f16"),
        (("checkpoint", "export", "a", "b", "--max-file-size", "x"), "5GB"),
        (("checkpoint", "reshard", "a", "b", "--ranks", "0"), "--ranks"),
    ],
)
def test_wrong_words_are_answered_by_the_right_ones(words: tuple[str, ...], said: str) -> None:
    done = meron(*words)
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize("subcommand", ["inspect", "verify", "export", "reshard"])
def test_a_path_without_a_checkpoint_is_named(tmp_path: Path, subcommand: str) -> None:
    more = {"export": ["m"], "reshard": ["m", "-n", "2"]}.get(subcommand, [])
    for path in (tmp_path, tmp_path / "nowhere"):
        done = meron("checkpoint", subcommand, str(path), *more)
        assert done.returncode == 1 and str(path) in done.stderr, done.stderr
    shutil.rmtree(tmp_path)


def test_every_help_explains_itself() -> None:
    top = meron("checkpoint", "--help")
    assert top.returncode == 0 and "Examples" in top.stdout
    for subcommand in ("inspect", "verify", "diff", "list", "reshard", "export", "prune"):
        assert subcommand in top.stdout
        assert meron("checkpoint", subcommand, "--help").returncode == 0
