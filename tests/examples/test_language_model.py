# SPDX-License-Identifier: Apache-2.0
"""Example 02: it learns, its counters keep the plan's word, and bad input gets one clear answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import LANGUAGES, complaints, start

# A fraction of a second of arithmetic.
SMALL = ("--width", 128, "--layers", 2, "--batch", 32, "--lr", 0.005)


def train(
    folder: Path, language: str, *arguments: object, ranks: int = 2, steps: int = 60
) -> dict[str, Any]:
    """What --json wrote."""
    file = folder / f"{language}-{ranks}.json"
    options = (*SMALL, "--steps", steps, "--quiet", "--json", file, *arguments)
    done = start("language_model", language, *options, ranks=ranks)
    assert (done.returncode, done.stdout, complaints(done)) == (0, "", [])
    run: dict[str, Any] = json.loads(file.read_text())
    return run


def check(run: dict[str, Any], ranks: int, drop: float = 0.65) -> None:
    assert run["ranks"] == ranks
    assert len(run["losses"]) == run["steps"]
    assert run["loss_first"] == pytest.approx(5.545, abs=0.1)  # ln 256: it knows nothing
    assert run["loss_last"] < drop * run["loss_first"]
    assert run["bytes_equal"] is True
    assert [row["rank"] for row in run["per_rank"]] == list(range(ranks))
    for row in run["per_rank"]:
        for kind in ("gather_mapped_bytes", "gather_copied_bytes", "reduce_bytes"):
            assert row[kind]["counted"] == run["steps"] * row[kind]["plan_per_step"], kind
        assert row["peak_bytes"]["counted"] == pytest.approx(row["peak_bytes"]["plan"], rel=0.05)
        assert row["arena_pages_bytes"] > 0


# ranks, plan, accumulate
WORKLOADS = (
    (1, "zero3", 1),
    (1, "zero0", 2),
    (2, "zero0", 1),
    (2, "zero1", 1),
    (2, "zero2", 1),
    (2, "zero3", 1),
    (2, "zero0", 3),
    (2, "zero3", 3),
    (3, "zero2", 1),
    (3, "zero1", 2),
    (4, "zero1", 1),
    (4, "zero3", 2),
)


@pytest.mark.parametrize(("ranks", "plan", "accumulate"), WORKLOADS)
def test_in_c(tmp_path: Path, ranks: int, plan: str, accumulate: int) -> None:
    arguments = ("--plan", plan, "--accumulate", accumulate)
    run = train(tmp_path, "c", *arguments, ranks=ranks)
    assert run["plan"]["name"] == plan
    check(run, ranks)


@pytest.mark.parametrize(("ranks", "plan", "accumulate"), (WORKLOADS[0], *WORKLOADS[5::3]))
def test_in_python(tmp_path: Path, ranks: int, plan: str, accumulate: int) -> None:
    arguments = ("--plan", plan, "--accumulate", accumulate)
    run = train(tmp_path, "python", *arguments, ranks=ranks)
    assert run["plan"]["name"] == plan
    check(run, ranks)


def test_the_default_size_learns(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    done = start("language_model", "c", "--steps", 80, "--json", file)
    assert done.returncode == 0, done.stderr
    run = json.loads(file.read_text())
    assert run["parameters"] == 2240768
    check(run, 2, drop=0.6)
    # Who sees the picture sees it learn: no step is worse than a guess, and the first fall stays.
    assert max(run["losses"]) < 5.6
    assert max(run["losses"][20:]) < 4.5


def test_the_output_for_people(language: str) -> None:
    done = start("language_model", language, *SMALL, "--steps", 60)
    assert done.returncode == 0, done.stderr
    assert "101,120 parameters (f32) in 4 units over 2 ranks" in done.stdout
    if language == "c":
        assert re.search(r"; matrix products by (OpenBLAS|plain C)\n", done.stdout)
    assert re.search(
        r"loss +5\.\d+ at first, [23]\.\d+ at last: \d+\.\d % of its start", done.stdout
    )
    assert done.stdout.count("equal") == 6  # three counters on each of two ranks
    assert "DIFFERS" not in done.stdout
    lines = done.stderr.splitlines()  # no terminal: a line for every tenth of the way
    assert len(lines) == 10
    assert lines[-1].startswith("100 %  step 60/60  loss ")


def test_languages_agree(tmp_path: Path) -> None:
    in_c, in_python = (train(tmp_path, language) for language in LANGUAGES)
    same = ("plan", "parameters", "units", "text_bytes", "per_rank", "seed", "learning_rate")
    for key in in_c.keys() | in_python.keys():
        if key == "per_rank":  # the arena's pages are the kernel's business
            for row in in_c[key] + in_python[key]:
                del row["arena_pages_bytes"]
        if key in same:
            assert in_c[key] == in_python[key], key
    assert in_c.keys() == in_python.keys()
    assert in_python["losses"][:10] == pytest.approx(in_c["losses"][:10], rel=1e-4)
    assert in_python["loss_last"] == pytest.approx(in_c["loss_last"], rel=0.02)


@pytest.mark.parametrize("plan", ("zero0", "zero1", "zero2", "zero3"))
@pytest.mark.parametrize("ranks", (2, 3))
def test_one_process_learns_the_same_to_the_last_bit(tmp_path: Path, plan: str, ranks: int) -> None:
    plain = ("--product", "plain")
    alone = train(tmp_path, "c", *plain, "--accumulate", ranks, ranks=1, steps=30)
    together = train(tmp_path, "c", *plain, "--plan", plan, ranks=ranks, steps=30)
    assert together["losses"] == alone["losses"]


def test_products_by_blas_and_in_plain_c_agree(tmp_path: Path) -> None:
    plain = train(tmp_path, "c", "--product", "plain", steps=20)
    fast = train(tmp_path, "c", steps=20)  # by a BLAS if the build found one
    assert fast["losses"] == pytest.approx(plain["losses"], rel=1e-4)


@pytest.mark.parametrize("dtype", ("bf16", "f16"))
def test_sixteen_bits(tmp_path: Path, language: str, dtype: str) -> None:
    check(train(tmp_path, language, "--dtype", dtype), 2, drop=0.7)


def test_a_plan_from_a_file(tmp_path: Path, language: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"preset": "zero2", "gradient": {"dtype": "f32"}}')
    run = train(tmp_path, language, "--plan", plan, "--dtype", "bf16")
    assert run["plan"]["gradient"]["dtype"] == "f32"
    assert run["plan"]["param"]["sharding"] == "none"
    check(run, 2, drop=0.7)


def test_few_parameters_on_a_drive_take_what_the_plan_says(tmp_path: Path) -> None:
    """Fewer units than there is room for, and of several sizes. The drive is the build's."""
    plan = tmp_path / "plan.json"
    tiers = {"param": {"tier": "nvme"}, "optimizer": {"tier": "nvme"}}
    plan.write_text(json.dumps({"preset": "zero3", **tiers, "nvme": {"path": str(Path.cwd())}}))
    sizes = ("--width", 16, "--layers", 1, "--context", 4, "--batch", 4)
    run = train(tmp_path, "c", *sizes, "--plan", plan, steps=3)  # which ends with 0
    for row in run["per_rank"]:
        assert row["peak_bytes"]["counted"] == row["peak_bytes"]["plan"]


def test_data_of_ones_own(tmp_path: Path, language: str) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for file in files:
        file.write_bytes(b"abc" * 1000)
    run = train(tmp_path, language, "--data", *files)
    assert run["text_bytes"] == 9000
    assert run["loss_last"] < 0.1  # nothing is easier to predict


def states(checkpoint: Path) -> dict[str, bytes]:
    """The data of its files; their headers have the save's own id."""
    files = {}
    for path in checkpoint.glob("*.safetensors"):
        content = path.read_bytes()
        files[path.name] = content[8 + int.from_bytes(content[:8], "little") :]
    return files


@pytest.mark.parametrize("plan", ["zero1", "zero3"])
def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(
    tmp_path: Path, language: str, plan: str
) -> None:
    saving = ("--plan", plan, "--save-every", 15, "--save")
    whole = train(tmp_path, language, *saving, tmp_path / "whole", steps=40)
    assert {p.name for p in (tmp_path / "whole").glob("step*")} == {"step-000030", "step-000040"}
    rest = train(
        tmp_path, language, *saving, tmp_path / "rest", "--resume", tmp_path / "whole/step-000030",
        steps=40,
    )  # fmt: skip
    assert rest["losses"] == whole["losses"][30:]
    saved = states(tmp_path / "whole/step-000040")
    assert saved and saved == states(tmp_path / "rest/step-000040")


def test_a_run_goes_on_at_another_number_of_ranks_and_plan(tmp_path: Path, language: str) -> None:
    whole = train(tmp_path, language, "--save", tmp_path / "saved", "--save-every", 20, steps=30)
    file = tmp_path / "other.json"
    options = ("--steps", 30, "--plan", "zero0", "--accumulate", 2, "--json", file)
    done = start(
        "language_model", language, *SMALL, *options, "--resume", tmp_path / "saved/step-000020",
        ranks=1,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = f"resumed step 20 of {tmp_path}/saved/step-000020, saved by 2 ranks"
    assert done.stdout.splitlines()[0] == said
    losses = json.loads(file.read_text())["losses"]
    assert losses == pytest.approx(whole["losses"][20:], rel=1e-4)


def test_only_the_model_that_was_saved_is_resumed(tmp_path: Path, language: str) -> None:
    train(tmp_path, language, "--save", tmp_path / "saved", steps=10)
    for arguments, words in {
        ("--width", 64): "does not fit",
        ("--steps", 10): "step 10 was saved, and --steps 10 is no more",
    }.items():
        options = (*SMALL, "--steps", 20, *arguments, "--resume", tmp_path / "saved")
        done = start("language_model", language, *options)
        assert done.returncode == 2
        said = [line for line in done.stderr.splitlines() if not line.startswith("meron run: ")]
        assert len(said) == 1 and words in said[0]


BAD = {
    "a mistyped folder to resume": (("--resume", "{folder}/none"), "--resume", "{folder}/none"),
    "nothing saved to resume": (("--resume", "{folder}"), "--resume {folder}", "checkpoint"),
    "an interval without a folder": (("--save-every", "3"), "--save-every", "--save DIR"),
    "a missing data file": (("--data", "{folder}/none"), "cannot read {folder}/none", "--data"),
    "an empty data file": (("--data", "{folder}/empty"), "{folder}/empty is empty", "--data"),
    "a data file that is a folder": (("--data", "{folder}"), "cannot read {folder}", "--data"),
    "one missing among several": (("--data", "{folder}/tiny", "{folder}/none"), "none", "--data"),
    "too little text": (("--data", "{folder}/tiny"), "5 bytes", "--context"),
    "an unknown plan": (("--plan", "zero9"), "zero9", "zero3"),
    "a missing plan file": (("--plan", "{folder}/none.json"), "none.json", "zero3"),
    "a plan that is no JSON": (("--plan", "{folder}/broken.json"), "line 2", "broken.json"),
    "an unknown key in a plan": (("--plan", "{folder}/key.json"), "line 2", "shardin"),
    "an unknown option": (("--stepps", "3"), "--stepps", "--help"),
    "an option without value": (("--steps",), "--steps", ""),
    "no steps": (("--steps", "0"), "--steps", "from 1 to"),
    "no number": (("--batch", "many"), "--batch", "from 1 to"),
    "a negative rate": (("--lr", "-1"), "--lr", "above 0"),
    "an unknown dtype": (("--dtype", "f64"), "--dtype", "f32, bf16 or f16"),
    "a context that does not divide": (("--width", "100"), "--width 100", "112"),
    "a place that cannot be written": (("--json", "{folder}/none/x"), "cannot write", "--json"),
}


def test_a_product_that_there_is_not() -> None:
    done = start("language_model", "c", "--product", "fast")
    assert done.returncode == 2
    assert "--product fast: must be blas or plain" in done.stderr


@pytest.mark.parametrize("case", BAD)
def test_bad_input(tmp_path: Path, language: str, case: str) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "tiny").write_text("hello")
    (tmp_path / "broken.json").write_text('{"preset": "zero2",\n "param": }')
    (tmp_path / "key.json").write_text('{\n  "param": {"shardin": "none"}\n}')
    arguments, *expected = BAD[case]
    filled = [argument.format(folder=tmp_path) for argument in arguments]
    done = start("language_model", language, *filled, ranks=3)

    assert done.returncode == 2
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.startswith("meron run: ")]
    assert len(said) == 1, done.stderr  # one rank speaks, and says all in one line
    for text in expected:
        assert text.format(folder=tmp_path) in said[0]


def test_help(language: str) -> None:
    done = start("language_model", language, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("--accumulate N") >= 1
    assert len(re.findall(r"^ +--help", done.stdout, re.MULTILINE)) == 1
