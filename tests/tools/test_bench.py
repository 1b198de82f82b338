# SPDX-License-Identifier: Apache-2.0
"""The benchmarks complete, check their values, and write JSON. No test checks their timings, which
need an idle machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["MERON_BUILD"])
PATIENCE = 150

sys.path.insert(0, str(ROOT / "tools"))
import run_bench  # noqa: E402

ENVIRONMENT = run_bench.environment_of(BUILD)


def bench(name: str, json_file: Path, *options: str, **changes: str) -> tuple[str, dict]:
    words = ["--quick", "--json", str(json_file), *options]
    done = subprocess.run(
        run_bench.command_of(name, words, BUILD),
        env=ENVIRONMENT | changes,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(json_file.read_text())


def test_every_bench_leaves_the_same_kind_of_report(tmp_path):
    for name in ("collectives", "adamw", "quant", "overhead"):
        if not (BUILD / "bench" / name / f"bench_{name}").exists():
            pytest.skip("the benchmarks were not built")
        text, report = bench(name, tmp_path / f"{name}.json")
        assert report["bench"] == name
        assert report["quick"] is True
        assert report["passed"] == all(goal["passed"] for goal in report["goals"])
        assert not re.search(r"goal +[<>=\d]|MISSED", text)  # a quick run judges nothing


def test_adamw_without_peers(tmp_path):
    if not (BUILD / "bench" / "adamw" / "bench_optimizers.so").exists():
        pytest.skip("the benchmarks were not built")
    text, report = bench("adamw", tmp_path / "report.json", "--elements", "65536")
    measured = {(row["step"], row["of"]) for row in report["optimizers"] if row["seconds"] > 0}
    assert {("AdamW int8", "Meron"), ("Lion f32", "Meron")} <= measured
    for peer, version in report["peers"].items():
        assert (f"Without {peer}: " in text) == version.startswith("missing: ")
        assert (("AdamW f32", peer) in measured) != version.startswith("missing: ")


def test_torch(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    text, report = bench("torch", tmp_path / "report.json", "--arms", "meron,plain")
    assert "us in hooks" in text
    runs = {(row["model"], row["arm"]): row["runs"][0] for row in report["series"]}
    assert set(runs) == {(m, a) for m in ("gpt", "many", "tiny") for a in ("meron", "plain")}
    for (model, arm), run in runs.items():
        assert run["params"] == runs[model, "plain"]["params"]
        sent = arm == "meron" and model != "tiny"  # which runs on one rank
        assert (run["bytes"] > 0) == sent


def test_lightning(tmp_path):
    pytest.importorskip("lightning", reason="tools/setup --integrations installs it")
    text, report = bench("lightning", tmp_path / "report.json", "--stages", "2")
    assert "Trainer, ms" in text
    run, plain = report["series"]
    assert (run["stage"], plain["stage"]) == (2, None)
    for each in (run, plain):
        assert len(each["again"]) == len(each["loop"]) >= len(each["fit"]) == 2
    assert plain["within"] == []
    assert all(0 < part < whole for part, whole in zip(run["within"], run["fit"]))
    assert 0 < run["bytes"]["fit"] <= run["bytes"]["loop"]
    assert len(report["goals"]) == 2


def test_dropin(tmp_path):
    for package in ("transformers", "accelerate"):
        pytest.importorskip(package, reason="tools/setup --integrations installs it")
    text, report = bench(
        "dropin", tmp_path / "report.json", "--stages", "1", "--arms", "floor,meron"
    )
    assert "floor, ms" in text
    arms = {(row["arm"], row["stage"]): row["runs"] for row in report["series"]}
    assert arms.keys() == {("floor", "1"), ("meron", "1")}
    for (run,) in arms.values():
        assert len(run["ms"]) == 5 and min(run["ms"]) > 0 and run["losses"]


def test_collectives_without_open_mpi(tmp_path):
    if not (BUILD / "bench" / "collectives" / "bench_collectives").exists():
        pytest.skip("the benchmarks were not built")
    text, report = bench("collectives", tmp_path / "report.json", PATH="/nowhere")
    assert "Without Open MPI" in text
    assert report["mpi"] == []
    assert report["goals"] == []
    measured = {(row["arm"], row["bytes"]) for row in report["rows"] if row["us"] > 0}
    assert ("gather mapped", 1 << 20) in measured
    assert ("reduce staged", 1 << 16) in measured


def test_collectives_with_open_mpi(tmp_path):
    if not (BUILD / "bench" / "collectives" / "bench_collectives_mpi").exists():
        pytest.skip("the program for Open MPI was not built")
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    _, report = bench("collectives", tmp_path / "report.json")
    for row in report["rows"]:
        assert row["arm"] == "memcpy" or row["times"] > 0


def test_io_with_fio_and_without(tmp_path):
    if not (BUILD / "bench" / "io" / "bench_io").exists():
        pytest.skip("the benchmarks were not built")
    # The build folder is on a disk; a temporary folder may be in memory.
    on_disk = ("--dir", str(BUILD))
    text, report = bench("io", tmp_path / "report.json", *on_disk, PATH="/nowhere")
    assert "Without fio" in text
    assert {goal["name"].split()[0] for goal in report["goals"]} == {"first"}
    assert {(row["arm"], row["direction"]) for row in report["rows"]} >= {
        ("meron", "read"),
        ("meron 4 threads", "write"),
    }
    assert all(row["gb_per_second"] > 0 for row in report["rows"])
    if shutil.which("fio") is not None:
        _, report = bench("io", tmp_path / "report.json", *on_disk)
        assert len(report["goals"]) == 5


def test_gpu_without_a_device(tmp_path):
    script = ROOT / "bench" / "gpu" / "run.py"
    command = [sys.executable, str(script), "--build", str(BUILD), "--quick"]
    # No device is visible, even if there is one.
    environment = ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "no CUDA device" in done.stderr or "no nvcc" in done.stderr


def test_gpu_on_the_emulated_device(tmp_path):
    if not (BUILD / "bench" / "gpu" / "bench_gpu_offload").exists():
        pytest.skip("the benchmarks were not built")
    words = ("--device", "emulated", "--parts", "link,offload")
    text, report = bench("gpu", tmp_path / "report.json", *words)
    assert "until the device has the values" in text
    offload = report["offload"]
    assert offload["up_bytes_per_parameter"] == pytest.approx(2, rel=0.01)
    assert offload["down_and_step_seconds"] > offload["step_seconds"] > 0
    names = [goal["name"] for goal in report["goals"]]
    assert any(name.startswith("offloaded step") for name in names)


def test_host_time_on_the_emulated_device(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    words = ("--device", "emulated", "--parts", "host")
    text, report = bench("gpu", tmp_path / "report.json", *words)
    assert "Meron, all on the device" in text and "FSDP2" in text
    assert len(report["goals"]) == 2
    units = {run["units"] for runs in report["host"]["runs"].values() for run in runs}
    assert units == {200}


@pytest.mark.parametrize(
    ("parts", "code", "words"),
    [("kernels", 1, "nothing to measure"), ("link,lunk", 2, "there is no 'lunk'")],
)
def test_parts_of_gpu_that_cannot_be(parts, code, words):
    script = ROOT / "bench" / "gpu" / "run.py"
    command = [sys.executable, str(script), "--parts", parts, "--device", "emulated"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr.splitlines()[-1]


def run_front_end(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "tools" / "run_bench.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def without_torch(name: str, *words: str, **changes: str) -> subprocess.CompletedProcess:
    """The benchmark in a Python that has no installed packages at all."""
    command = run_bench.command_of(name, ["--quick", *words], BUILD, sys.executable)
    return subprocess.run(
        [command[0], "-S", *command[1:]],
        env=ENVIRONMENT | changes,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_without_torch_each_bench_measures_the_rest_or_says_in_one_line_what_to_run():
    done = without_torch("adamw", "--elements", "65536")
    assert done.returncode == 0, done.stderr
    assert "Without torch: PyTorch is not installed (tools/setup --torch brings it)" in done.stdout
    done = without_torch("gpu", "--device", "emulated", "--parts", "host")
    assert (done.returncode, done.stderr) == (0, "")
    assert "PyTorch is not installed (tools/setup --torch" in done.stdout
    for name in ("torch", "slow-link", "lightning", "dropin"):
        done = without_torch(name)
        assert done.returncode in (1, 77)
        said = (done.stdout + done.stderr).splitlines()
        assert len(said) == 1 and "(tools/setup --" in said[0], said


def test_no_folder_stands_in_for_a_package():
    """A folder on the path can be imported, as if it were the package of its name."""
    for folder in map(Path, ENVIRONMENT["PYTHONPATH"].split(os.pathsep)):
        if folder.is_relative_to(ROOT / "bench"):
            assert [path for path in folder.iterdir() if path.suffix != ".py"] == []
    names = {path.name for path in (ROOT / "bench").iterdir() if path.is_dir()}
    packages = {"torch", "numpy", "deepspeed", "lightning", "meron", "matplotlib", "cffi"}
    assert not names & packages


@pytest.mark.parametrize("name", run_bench.BENCHES)
def test_help_builds_nothing_and_has_every_option(name, monkeypatch, capsys, tmp_path):
    commands = []
    monkeypatch.setattr(run_bench, "build", lambda targets: pytest.fail("it builds"))
    monkeypatch.setattr(os, "execvpe", lambda file, words, environment: commands.append(words))
    monkeypatch.setattr(sys, "argv", ["run_bench.py", name, "--help"])
    assert run_bench.main() in (0, None)
    text = capsys.readouterr().out
    for words in commands:
        assert Path(words[2]).suffix == ".py"  # a program might not have been built
        command = [words[0], "-S", *words[1:]]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        text += done.stdout
    assert f"usage: tools/bench {name}" in text and "--quick" in text
    program = Path(run_bench.command_of(name, [], BUILD)[0])
    if name in run_bench.OPTIONS and program.exists():
        shown = subprocess.run([program, "--help"], capture_output=True, text=True).stdout
        assert set(re.findall(r"--[a-z-]+", shown)) - {"--help"} == set(
            re.findall(r"^ +(--[a-z-]+)", run_bench.OPTIONS[name], re.MULTILINE)
        )


def test_the_front_end_lists_the_names():
    done = run_front_end()
    assert done.returncode == 0
    for name in ("collectives", "adamw", "quant", "io", "overhead", "torch", "gpu"):
        assert f"\n  {name} " in done.stdout
        folder = run_bench.FOLDERS.get(name, name)
        assert (ROOT / "bench" / folder / "README.md").exists()


def test_the_front_end_refuses_other_names():
    done = run_front_end("speed")
    assert done.returncode == 2
    assert "'speed'" in done.stderr
    assert "collectives" in done.stderr


def test_the_readme_has_the_ratios_of_the_kept_results(tmp_path):
    """The ratios of README.md equal those of bench/results, and the chart can be drawn."""
    script = ROOT / "bench" / "shared" / "chart.py"
    words = [sys.executable, "-B", str(script), "--output", str(tmp_path / "ratios.png")]
    done = subprocess.run(words, capture_output=True, text=True)
    if "No module named 'matplotlib'" in done.stderr:
        pytest.skip("matplotlib is missing: run tools/setup")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ratios.png").stat().st_size > 1000
    readme = (ROOT / "README.md").read_text()
    figures = re.findall(r"^ *([\d.]+) x  (.+)  \((tools/bench \w+)\)$", done.stdout, re.MULTILINE)
    assert len(figures) >= 5
    for ratio, label, command in figures:
        assert f"| {label} | {ratio} x | `{command}` |" in readme, label


def test_the_chart_names_missing_results(tmp_path):
    script = ROOT / "bench" / "shared" / "chart.py"
    words = [sys.executable, "-B", str(script), "--results", str(tmp_path), "--output", "x.png"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "adamw.json" in done.stderr


def test_checkpoint(tmp_path):
    words = ["--arms", "meron,drive", "--dir", str(tmp_path), "--size", "8"]
    text, report = bench("checkpoint", tmp_path / "report.json", *words)
    assert "save GB/s" in text
    runs = {row["arm"]: row["runs"][0] for row in report["series"] if row["runs"]}
    assert {row["ranks"] for row in report["worlds"]} == {1, 2, 3}
    assert runs["meron"]["bytes_read"] == pytest.approx(runs["meron"]["file_bytes"], rel=0.02)


def test_pretrained_without_peers(tmp_path):
    words = ["--arms", "meron", "--dir", str(tmp_path), "--ranks", "2"]
    text, report = bench("pretrained", tmp_path / "report.json", *words)
    assert "reading the files once" in text
    runs = {row["arm"]: row["runs"] for row in report["series"]}
    assert ("meron" in runs) != ("meron" in report["without"])


def run_with(tmp_path, words: str) -> subprocess.CompletedProcess:
    (tmp_path / "file").touch()
    name, *options = words.format(tmp=tmp_path).split()
    return subprocess.run(
        run_bench.command_of(name, options, BUILD),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("checkpoint --dir {tmp}/none", "none is missing: name a folder"),
        ("checkpoint --size 1024,x", "'x' is no whole number from 1"),
        ("checkpoint --turns 0", "'0' is no whole number from 1"),
        ("checkpoint --arms meron,tourch", "there is no 'tourch': "),
        ("checkpoint --arms drive", "--arms has meron"),
        ("pretrained --dir {tmp}/file", "file is a file: name a folder"),
        ("pretrained --arms mern", "did you mean 'meron'?"),
        ("io --json {tmp}/none/report.json", "report.json cannot be made: there is no folder "),
        ("io --json {tmp}", "is a folder: name a file"),
        ("slow-link --seconds -1", "'-1' is no number of seconds above 0"),
        ("dropin --stages 4", "there is no '4': 1, 2, 3"),
        ("lightning --runs two", "'two' is no whole number from 1"),
        ("torch --arms fsdp3", "did you mean 'fsdp2'?"),
    ],
)
def test_argument_errors_precede_measurements(tmp_path, words, said):
    done = run_with(tmp_path, words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("quant --json {tmp}/none/report.json", "report.json cannot be made: there is no folder "),
        ("offload-step --json {tmp}", "is a folder: name a file"),
    ],
)
def test_so_do_programs_that_are_no_scripts(tmp_path, words, said):
    done = run_with(tmp_path, words)
    assert done.returncode not in (0, 1) and done.stdout == ""
    assert said in done.stderr
