# SPDX-License-Identifier: Apache-2.0
"""`meron plan --cluster`: plans compared on machines that a file describes."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
from command import meron

ROOT = Path(__file__).resolve().parents[2]
SIZE = ("--parameters", "7B", "--layers", "32")
CLUSTER = {
    "nodes": 4,
    "devices_per_node": 4,
    "between_nodes": {"rate": "10 Gb/s", "latency": "20 us"},
    "inside_node": {"rate": "100 GB/s", "latency": "5 us"},
    "device": {"memory": "80 GiB", "memory_rate": "2 TB/s", "flops": "100 TFLOP/s"},
}
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


@pytest.fixture
def cluster(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(CLUSTER))
    return str(path)


def ranking(*words: str) -> dict:
    done = meron("plan", *SIZE, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_those_that_fit_come_first_and_by_time(cluster):
    strategies = ranking("--cluster", cluster)["strategies"]
    assert {"zero0", "zero3", "mics(4)", "hpz", "zeropp"} <= {s["name"] for s in strategies}
    fits = [s["fits"] for s in strategies]
    assert fits == sorted(fits, reverse=True)
    middles = [
        s["perfect_overlap"]["step"]["seconds"] + s["no_overlap"]["step"]["seconds"]
        for s in strategies
        if s["fits"]
    ]
    assert middles == sorted(middles)


def test_each_that_is_ranked_is_a_plan_by_its_name(cluster):
    for strategy in ranking("--cluster", cluster)["strategies"]:
        words = ("-n", "16", "--ranks-per-node", "4", "--plan", strategy["name"], "--json")
        done = meron("plan", *SIZE, *words)
        assert done.returncode == 0, done.stderr
        own = json.loads(done.stdout)
        assert own["plan"] == strategy["plan"]
        most = max(rank["memory"]["host"]["total"]["bytes"] for rank in own["ranks"])
        assert most == strategy["memory"]["states"]["bytes"]


def test_the_json_of_a_ranking_has_numbers(cluster):
    found = ranking("--cluster", cluster)
    assert found["cluster"]["between_nodes"]["bytes_per_second"] == 1.25e9
    assert found["cluster"]["between_nodes"]["latency_seconds"] == pytest.approx(20e-6)
    assert found["cluster"]["device"]["memory_bytes"] == 80 << 30
    assert found["not_counted"] == ["activations"]
    text = meron("plan", *SIZE, "--cluster", cluster).stdout
    assert "memory per device, without activations" in text


def test_computation_is_given_in_tokens_or_seconds(cluster):
    def computation(*words: str) -> float:
        found = ranking("--cluster", cluster, *words)
        return found["strategies"][0]["computation"]["seconds"]

    assert computation() == 0
    assert computation("--compute-seconds", "0.5", "--micro-batches", "3") == 1.5
    assert computation("--tokens", "1000") == pytest.approx(6 * 7e9 * 1000 / 100e12, rel=1e-6)


def test_the_table_ends_with_sentences(cluster):
    text = meron("plan", *SIZE, "--cluster", cluster).stdout
    for words in ("between nodes", "no overlap", "lacks", "is first", "Its limit is"):
        assert words in text


def test_every_cluster_in_the_docs_can_be_ranked_on():
    files = sorted((ROOT / "docs/clusters").glob("*.json"))
    assert files
    for file in files:
        found = ranking("--cluster", str(file), "--tokens", "1024")
        assert found["strategies"], file


def test_a_wrong_cluster_has_line_and_key(tmp_path):
    path = tmp_path / "cluster.json"
    text = json.dumps(CLUSTER, indent=1).replace('"10 Gb/s"', '"10 Gb"')
    path.write_text(text)
    done = meron("plan", *SIZE, "--cluster", str(path))
    assert done.returncode == 1
    assert 'line 5, key "between_nodes.rate"' in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--plan", "zero1"], 2, "leave --plan out"),
        (["-n", "4"], 2, "leave --ranks out"),
        (["--compare"], 2, "leave --compare out"),
        (["--plot", "picture"], 2, ".png"),
        (["--tokens", "-1"], 2, "--tokens"),
        (["--tokens", "5", "--compute-seconds", "1"], 1, "twice"),
        (["--compute-seconds", "-1"], 1, "-1 s"),
        (["--micro-batches", "0"], 2, "--micro-batches"),
    ],
)
def test_errors_say_what_is_wrong(cluster, words, code, message):
    done = meron("plan", *SIZE, "--cluster", cluster, *words)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("option", ["--tokens", "--compute-seconds", "--plot"])
def test_options_that_need_a_cluster(option):
    done = meron("plan", *SIZE, option, "1")
    assert done.returncode == 2
    assert "--cluster" in done.stderr


# ---- Pictures -----------------------------------------------------------------------------------


def with_path(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": str(folder)}


@needs_matplotlib
def test_a_picture_by_the_python_that_has_matplotlib(cluster, tmp_path):
    """The first python3 of the PATH has none."""
    for folder in ("bare", "active/bin", "work"):
        (tmp_path / folder).mkdir(parents=True)
    bare = tmp_path / "bare" / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    able = tmp_path / "active" / "bin" / "python3"
    able.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    able.chmod(0o755)
    environment = with_path(tmp_path / "bare")
    environment.pop("VIRTUAL_ENV", None)
    words = ["plan", *SIZE, "--cluster", cluster, "--plot", "plans.png"]
    work = tmp_path / "work"
    done = meron(*words, env=environment, cwd=work)
    assert done.returncode == 1
    assert "there is no matplotlib for python3" in done.stderr
    environment["VIRTUAL_ENV"] = str(tmp_path / "active")
    done = meron(*words, env=environment, cwd=work)
    assert done.returncode == 0, done.stderr
    assert (work / "plans.png").read_bytes().startswith(b"\x89PNG")


@needs_matplotlib
def test_a_picture(cluster, tmp_path):
    environment = with_path(Path(sys.executable).parent)
    picture = tmp_path / "plans.png"
    done = meron("plan", *SIZE, "--cluster", cluster, "--plot", str(picture), env=environment)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "is first" in done.stdout


def test_without_python_the_ranking_is_still_printed(cluster, tmp_path):
    environment = with_path(tmp_path)
    done = meron("plan", *SIZE, "--cluster", cluster, "--plot", "x.png", env=environment)
    assert done.returncode == 1
    assert "python3 does not start" in done.stderr
    assert "is first" in done.stdout


def test_a_python_that_cannot_draw_says_why(cluster, tmp_path):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    python.chmod(0o755)
    done = meron("plan", *SIZE, "--cluster", cluster, "--plot", "x.svg", env=with_path(tmp_path))
    assert done.returncode == 1
    assert "no such module" in done.stderr
    assert "no picture in x.svg" in done.stderr
