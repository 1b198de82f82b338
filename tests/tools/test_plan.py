# SPDX-License-Identifier: Apache-2.0
"""Tests `meron plan`: the sources of a model, the output, and the errors for bad input."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path

import pytest
from command import meron

SIZE = ("--parameters", "7B", "--layers", "32")


def predict(*words: str) -> dict | list:
    done = meron("plan", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_safetensors(path: Path, tensors: dict[str, list[int]], dtype: str = "BF16") -> Path:
    header, offset = {}, 0
    for name, shape in tensors.items():
        size = 2
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(
            8 + len(text) + offset
        )  # the weights themselves are a hole: nobody reads them
    return path


TENSORS = {
    "embed.weight": [1000, 64],
    "layers.0.w": [64, 64],
    "layers.0.b": [64],
    "layers.1.w": [64, 64],
    "layers.1.b": [64],
}

# ---- Sources of a model -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("7B", 7_000_000_000),
        ("7b", 7_000_000_000),
        ("1.5G", 1_500_000_000),
        ("350M", 350_000_000),
        ("10k", 10_000),
        ("1T", 1_000_000_000_000),
        ("1.3e9", 1_300_000_000),
        ("123456789", 123_456_789),
    ],
)
def test_counts_as_people_write_them(text, count):
    prediction = predict("--parameters", text, "--layers", "9", "-n", "1")
    assert prediction["model"]["units"] == 10  # the layers, and one for embedding and head
    elements = prediction["model"]["elements"]
    assert count <= elements <= count * 1.001 + 10_000  # a little padding


@pytest.mark.parametrize("text", ["B", "7X", "7BB", "-7B", "nan", "inf", "1e30", "7 B", "0x10"])
def test_counts_that_are_none(text):
    done = meron("plan", f"--parameters={text}", "--layers", "2")
    assert done.returncode == 2
    assert "350M" in done.stderr or "--parameters" in done.stderr


def test_a_safetensors_file_is_a_model(tmp_path):
    path = write_safetensors(tmp_path / "model.safetensors", TENSORS)
    prediction = predict("--safetensors", str(path), "-n", "2")
    assert prediction["model"]["units"] == 3
    assert prediction["model"]["elements"] >= 1000 * 64 + 2 * (64 * 64 + 64)


@pytest.mark.parametrize("option", ["--safetensors", "--model", "--cluster"])
def test_a_pipe_is_refused_and_not_waited_for(option, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = [option, str(pipe), *(SIZE if option == "--cluster" else ("-n", "2"))]
    done = meron("plan", *words)
    assert done.returncode == 1
    assert f"{pipe} is not a file" in done.stderr


def test_a_folder_stands_for_its_files(tmp_path):
    path = write_safetensors(tmp_path / "model.safetensors", TENSORS)
    one, other = (predict("--safetensors", str(p), "-n", "2") for p in (path, tmp_path))
    assert one["model"] == other["model"]
    done = meron("plan", "--model", str(tmp_path), "-n", "2")
    assert done.returncode == 1
    assert f"{tmp_path} is a folder without config.json: give" in done.stderr
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    done = meron("plan", "--model", f"{tmp_path}/", "-n", "2")
    assert f"{tmp_path}/config.json: " in done.stderr and "--parameters 7B" in done.stderr


def test_of_a_safetensors_file_only_the_header_is_read(tmp_path):
    path = write_safetensors(tmp_path / "large.safetensors", {"w": [1 << 20, 1 << 19]})  # 1 TiB
    prediction = predict("--safetensors", str(path), "-n", "2")
    assert prediction["model"]["elements"] >= 1 << 39


def test_a_model_in_json_is_the_same_as_its_safetensors_file(tmp_path):
    units = {}
    for name, shape in TENSORS.items():
        tensor = {"name": name, "shape": shape, "dtype": "bf16"}
        units.setdefault(name.rpartition(".")[0], []).append(tensor)
    model = {"units": [{"name": name, "tensors": tensors} for name, tensors in units.items()]}
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model))
    safetensors = write_safetensors(tmp_path / "model.safetensors", TENSORS)
    for ranks in ("1", "2", "3"):
        from_json = predict("--model", str(path), "-n", ranks)
        assert from_json == predict("--safetensors", str(safetensors), "-n", ranks)


# Of 100,000 tensors; each file of an index has the end of a layer and the begin of the next.
EXPERTS = {f"model.layers.{i // 1000}.experts.{i}.w": [16, 16] for i in range(100_000)}


def write_index(folder: Path, tensors: dict[str, list[int]], files: int) -> Path:
    """A model in several files, as Hugging Face has it."""
    names, each, weight_map = list(tensors), len(tensors) // files + 1, {}
    for number in range(files):
        name = f"model-{number + 1:05}-of-{files:05}.safetensors"
        part = {tensor: tensors[tensor] for tensor in names[number * each : (number + 1) * each]}
        write_safetensors(folder / name, part)
        weight_map |= dict.fromkeys(part, name)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return path


def test_an_index_is_the_model_of_its_files(tmp_path):
    whole = write_safetensors(tmp_path / "model.safetensors", TENSORS)
    index = write_index(tmp_path, TENSORS, 2)
    for ranks in ("1", "3"):
        from_index = predict("--safetensors", str(index), "-n", ranks)
        assert from_index == predict("--safetensors", str(whole), "-n", ranks)


def test_a_hundred_thousand_tensors_take_seconds(tmp_path):
    begin = time.monotonic()
    index = write_index(tmp_path, EXPERTS, 3)
    units = [
        {"name": name, "tensors": [{"name": name, "shape": shape, "dtype": "bfloat16"}]}
        for name, shape in EXPERTS.items()
    ]
    as_json = tmp_path / "model.json"
    as_json.write_text(json.dumps({"units": units}))
    for words in (("--safetensors", str(index)), ("--model", str(as_json))):
        assert predict(*words, "-n", "2")["model"]["elements"] == 256 * 100_000
    assert time.monotonic() - begin < 60  # 4 s on a quiet machine; all pairs would take hours


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weights": {}}, "weight_map"),
        ({"weight_map": {}}, "weight_map"),
        ([], "weight_map"),
        ({"weight_map": {"w": 7}}, "tensor 'w' is 7"),
        ({"weight_map": {"w": "../model.safetensors"}}, "beside it"),
        ({"weight_map": {"w": "/etc/passwd"}}, "beside it"),
        ({"weight_map": {"w": "missing.safetensors"}}, "missing.safetensors"),
    ],
)
def test_files_that_are_no_index(tmp_path, index, message):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    done = meron("plan", "--safetensors", str(path))
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""


def test_the_config_of_a_hugging_face_model_is_a_model(tmp_path):
    path = tmp_path / "config.json"
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "torch_dtype": "bfloat16",
    }
    path.write_text(json.dumps(config))
    prediction = predict("--model", str(path), "-n", "1")
    assert prediction["model"]["elements"] == 6_738_415_616
    path.write_text(json.dumps(config | {"model_type": "t5"}))
    done = meron("plan", "--model", str(path))
    assert done.returncode == 1
    assert 'model type "t5" are not known' in done.stderr and "safetensors" in done.stderr


@pytest.mark.parametrize(
    ("name", "own"),
    [("fp16", "f16"), ("float16", "f16"), ("bfloat16", "bf16"), ("float32", "f32")],
)
def test_dtypes_as_pytorch_names_them(name, own):
    assert predict(*SIZE, "--dtype", name) == predict(*SIZE, "--dtype", own)


# ---- What is shown ------------------------------------------------------------------------------


def test_memory_reports_if_it_fits():
    words = (*SIZE, "-n", "8", "--memory")
    text = meron("plan", *words, "80GiB").stdout
    assert "Activations, and what the trainer itself takes, are not counted." in text
    assert "It does not fit: the 8 ranks of a machine hold " in text
    assert "more than 80.0 GiB" in text
    assert "It fits: the 8 ranks of a machine hold " in meron("plan", *words, "1 TiB").stdout
    found = predict(*words, "80GiB")
    held = sum(rank["memory"]["host"]["total"]["bytes"] for rank in found["ranks"])
    assert found["memory"]["needed_bytes"] == held
    assert (found["memory"]["available_bytes"], found["memory"]["fits"]) == (80 << 30, False)
    assert "activations" in found["not_counted"]
    nodes = predict(*words, "80GB", "--ranks-per-node", "4")["memory"]
    assert nodes["ranks"] == 4 and nodes["needed_bytes"] == pytest.approx(held / 2, rel=0.01)
    answers = meron("plan", *words, "200GB", "--compare").stdout.splitlines()[-4:]
    assert [line.split()[0] for line in answers] == ["zero0:", "zero1:", "zero2:", "zero3:"]
    assert "It does not fit" in answers[0] and "It fits" in answers[3]


@pytest.mark.parametrize("size", ["lots", "80 gib", "-1GiB", "0", "1e30GiB", "GiB"])
def test_memory_that_is_no_size(size):
    done = meron("plan", *SIZE, f"--memory={size}")
    assert done.returncode == 2
    assert "80GiB" in done.stderr


def test_zero3_divides_by_the_ranks():
    one = predict(*SIZE, "-n", "1")["ranks"][0]["memory"]["host"]["param"]["bytes"]
    four = predict(*SIZE, "-n", "4")
    for rank in four["ranks"]:
        assert rank["memory"]["host"]["param"]["bytes"] == pytest.approx(one / 4, rel=0.01)
    assert len(four["ranks"]) == 4


def test_micro_batches_and_gathers_count():
    def moved(*words: str) -> tuple[int, int]:
        link = predict(*SIZE, "-n", "2", *words)["ranks"][0]["links"]["shm"]
        return link["gather_mapped"]["bytes"], link["reduce"]["bytes"]

    gathered, reduced = moved()
    assert moved("--micro-batches", "3") == (3 * gathered, 3 * reduced)
    assert moved("--gathers", "1") == (gathered // 2, reduced)


def test_the_table_has_every_rank_and_what_it_takes_from_peers():
    text = meron("plan", *SIZE, "-n", "2").stdout
    assert "zero3" in text
    assert "bytes from peers" in text
    assert "gather in place" in text
    assert "0-1" in text or ("\n0 " in text and "\n1 " in text)
    for column in ("param", "gradient", "optimizer", "total"):
        assert column in text


def test_compare_shows_the_plans_side_by_side():
    text = meron("plan", *SIZE, "-n", "4", "--compare").stdout
    rows = [line.split()[0] for line in text.splitlines() if line.startswith("zero")]
    assert rows == ["zero0", "zero1", "zero2", "zero3"]
    totals = [
        max(rank["memory"]["host"]["total"]["bytes"] for rank in prediction["ranks"])
        for prediction in predict(*SIZE, "-n", "4", "--compare")
    ]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] > 2 * totals[3]


def test_compare_has_the_plans_of_several_nodes_where_the_size_of_a_node_is_known():
    words = (*SIZE, "-n", "32", "--ranks-per-node", "8", "--compare")
    lines = meron("plan", *words).stdout.splitlines()
    names = ("zero", "mics", "hpz")
    rows = {line.split()[0]: line for line in lines if line.startswith(names)}
    of_nodes = ["mics(8)", "hpz(8)", "zeropp(8)"]
    assert list(rows) == ["zero0", "zero1", "zero2", "zero3", *of_nodes]
    assert lines[lines.index(rows["zero0"]) - 1].endswith("from other nodes")
    predictions = predict(*words)
    assert [prediction["plan"]["name"] for prediction in predictions] == list(rows)
    inter_node = {
        prediction["plan"]["name"]: sum(
            each["bytes"] for each in prediction["ranks"][0]["links"]["between_nodes"].values()
        )
        for prediction in predictions
    }
    assert inter_node["zeropp(8)"] < inter_node["hpz(8)"] < inter_node["zero3"]
    assert inter_node["mics(8)"] < inter_node["zero3"]


def test_one_plan_counts_bytes_from_other_nodes():
    words = (*SIZE, "-n", "4", "--ranks-per-node", "2", "--plan")
    assert "from other nodes (2 ranks a node)" in meron("plan", *words, "hpz(2)").stdout
    assert meron("plan", *words, "hpz").stdout.count("GiB") > 4


def test_a_plan_may_be_a_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"preset": "zero2", "gradient": {"dtype": "f32"}}')
    prediction = predict(*SIZE, "--plan", str(path), "-n", "2")
    assert prediction["plan"] != predict(*SIZE, "--plan", "zero2", "-n", "2")["plan"]


def test_codecs_that_cost_accuracy_are_warned_of_as_in_a_run(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"preset": "mics(2)", "gradient": {"codec": "int4"}}')
    words = (*SIZE, "--plan", str(path), "--ranks-per-node", "2")
    text = meron("plan", *words, "-n", "4").stdout
    assert "gradients travel in int4" in text
    assert "48 %" in text
    (warning,) = predict(*words, "-n", "4")["warnings"]
    assert warning in text
    # One replica uses no codec, and a run does not warn either.
    assert "warnings" not in predict(*words, "-n", "2")
    assert "int4" not in meron("plan", *words, "-n", "2").stdout


def test_presets_have_no_warnings():
    for name in ("zero3", "zeropp(2)"):
        prediction = predict(*SIZE, "--plan", name, "-n", "4", "--ranks-per-node", "2")
        assert "warnings" not in prediction


# ---- Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "which model"),
        (["--parameters", "7B"], 2, "--layers"),
        ([*SIZE, "--model", "m.json"], 2, "not several"),
        ([*SIZE, "--compare", "--plan", "zero1"], 2, "--compare"),
        ([*SIZE, "-n", "0"], 2, "-n 0"),
        ([*SIZE, "-n", "-3"], 2, "-n -3"),
        ([*SIZE, "--micro-batches", "0"], 2, "--micro-batches"),
        ([*SIZE, "--ranks-per-node", "-1"], 2, "--ranks-per-node"),
        ([*SIZE, "-n", "6", "--ranks-per-node", "4", "--compare"], 1, "mics(4)"),
        ([*SIZE, "--gathers", "99999999999"], 2, "--gathers"),
        ([*SIZE, "-n", "1000000"], 1, "ranks"),
        ([*SIZE, "--plan", "zero9"], 1, "zero3"),
        ([*SIZE, "--dtype", "f8"], 1, "dtype"),
        (["--parameters", "7B", "--layers", "-2"], 1, "layers"),
        ([*SIZE, "--plan", "nowhere.json"], 1, "nowhere.json"),
        (["--model", "nowhere.json"], 1, "nowhere.json"),
        (["--model", "/"], 1, "folder without config.json"),
        (["--safetensors", "nowhere"], 1, "nowhere"),
        ([*SIZE, "surprise"], 2, "surprise"),
    ],
)
def test_errors_name_the_problem(words, code, message):
    done = meron("plan", *words)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "0 bytes"),
        (b"1234567", "7 bytes"),
        (struct.pack("<Q", 1 << 63), "format allows"),
        (struct.pack("<Q", 100_000_001), "format allows"),
        (struct.pack("<Q", 100) + b"{}", "cut off"),
        (struct.pack("<Q", 2) + b"[]", "broken"),
        (struct.pack("<Q", 2) + b"{{", "broken"),
        (b"PK\x03\x04 is a zip file", "format allows"),
    ],
)
def test_files_that_are_no_safetensors_files(tmp_path, contents, message):
    path = tmp_path / "broken"
    path.write_bytes(contents)
    done = meron("plan", "--safetensors", str(path))
    assert done.returncode == 1
    assert message in done.stderr
    assert "broken" in done.stderr  # the file's name
    assert done.stdout == ""


def test_a_safetensors_file_without_its_end(tmp_path):
    path = write_safetensors(tmp_path / "model.safetensors", TENSORS)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 1)
    done = meron("plan", "--safetensors", str(path))
    assert done.returncode == 1
    assert "model.safetensors" in done.stderr


def test_json_errors_have_line_and_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{\n  "preset": "zero2",\n  "gradiemt": {}\n}\n')
    done = meron("plan", *SIZE, "--plan", str(path))
    assert done.returncode == 1
    assert "plan.json" in done.stderr
    assert "line 3" in done.stderr
    assert "gradiemt" in done.stderr
