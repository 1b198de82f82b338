# SPDX-License-Identifier: Apache-2.0
"""The commands `deepspeed` and `ds_report` of the drop-in."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from meron.zero import dropin
from meron.zero.dropin import launcher
from meron.zero.dropin.hosts import LaunchError
from meron.zero.dropin.rank_program import own_cores

SCRIPT = """
import argparse, os
import deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
parser.add_argument("--epochs", type=int)
given = deepspeed.add_config_arguments(parser).parse_args()
deepspeed.init_distributed()
assert deepspeed.comm.get_rank() == given.local_rank == int(os.environ["LOCAL_RANK"])
print("rank", given.local_rank, given.deepspeed, given.epochs, flush=True)
"""


def planned(
    monkeypatch: pytest.MonkeyPatch, line: str, devices: int = 0, **variables: str
) -> tuple[str, dict[str, str]]:
    """The command that a command line becomes, and its variables, on a host with GPUs."""
    monkeypatch.setattr(launcher, "device_count", lambda: devices)
    monkeypatch.setattr(launcher, "find_meron", lambda: "meron")
    monkeypatch.setattr(launcher.sys, "executable", "python")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    command, environment = launcher.plan(launcher.make_parser().parse_args(shlex.split(line)))
    return " ".join(command).replace(launcher.RANK_PROGRAM, "RANK"), environment


@pytest.mark.parametrize(
    ("line", "devices", "expected", "visible"),
    [
        (
            "--num_gpus 2 train.py --epochs 3",
            0,
            "meron run -n 2 --as-deepspeed -- python RANK --local-rank 3 -- "
            "python -u train.py --epochs 3",
            None,
        ),
        (
            "train.py --num_gpus 7",
            4,
            "meron run -n 4 --as-deepspeed -- python RANK --local-rank 3 -- "
            "python -u train.py --num_gpus 7",
            "0,1,2,3",
        ),
        (
            "--include localhost:1,3 --no_local_rank --module pkg.train -x",
            4,
            "meron run -n 2 --as-deepspeed -- python RANK -- python -u -m pkg.train -x",
            "1,3",
        ),
        (
            "--exclude localhost:0 --module pkg.train",
            2,
            "meron run -n 1 --as-deepspeed -- python RANK --local-rank 4 -- python -u -m pkg.train",
            "1",
        ),
        (
            "--no_python --enable_each_rank_log logs ./train.sh a",
            0,
            "meron run -n 1 --as-deepspeed -- python RANK --log logs --local-rank 1 -- "
            "./train.sh a",
            None,
        ),
        (
            "--bind_cores_to_rank --bind_core_list 1,3-5 --num_accelerators 2 --launcher pdsh t.py",
            0,
            "meron run -n 2 --as-deepspeed -- python RANK --cores 1,3,4,5 --local-rank 3 -- "
            "python -u t.py",
            None,
        ),
        (
            "--master_port 1234 --num_gpus 2 t.py",
            0,
            "python -m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1 "
            "--master-port 1234 --no-python python RANK --local-rank 3 -- python -u t.py",
            None,
        ),
        (
            "--no_ssh --num_nodes 2 --node_rank 1 --master_addr a --num_gpus 8 t.py",
            8,
            "python -m torch.distributed.run --nproc-per-node 8 --nnodes 2 --node-rank 1 "
            "--master-addr a --master-port 29500 --no-python python RANK --local-rank 3 -- "
            "python -u t.py",
            "0,1,2,3,4,5,6,7",
        ),
        (
            "--no_ssh --num_nodes 2 --node_rank 0 --master_addr a --include localhost:1,3 t.py",
            4,
            "python -m torch.distributed.run --nproc-per-node 2 --nnodes 2 --node-rank 0 "
            "--master-addr a --master-port 29500 --no-python python RANK --local-rank 3 -- "
            "python -u t.py",
            "1,3",
        ),
    ],
)
def test_a_command_line_becomes_a_command(
    monkeypatch: pytest.MonkeyPatch, line: str, devices: int, expected: str, visible: str | None
) -> None:
    command, environment = planned(monkeypatch, line, devices)
    assert command == expected
    assert environment.get("CUDA_VISIBLE_DEVICES") == visible
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == dropin.folder()


def test_devices_that_have_names_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    named = "GPU-8932f937,GPU-aaaa,MIG-7"
    command, environment = planned(monkeypatch, "t.py", 4, CUDA_VISIBLE_DEVICES=named)
    assert "-n 3 " in command and environment["CUDA_VISIBLE_DEVICES"] == named
    command, environment = planned(
        monkeypatch, "--include localhost:0,2 t.py", 4, CUDA_VISIBLE_DEVICES=named
    )
    assert "-n 2 " in command
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-8932f937,MIG-7"


def test_visible_devices_count_where_no_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    command, environment = planned(monkeypatch, "t.py", 4, CUDA_VISIBLE_DEVICES="2,3")
    assert "-n 2 " in command and environment["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_without_the_command_meron_torchrun_starts_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "device_count", lambda: 0)
    monkeypatch.setattr(launcher, "find_meron", lambda: None)
    options = launcher.make_parser().parse_args(["--num_gpus", "3", "t.py"])
    assert launcher.plan(options)[0][1:6] == [
        *("-m", "torch.distributed.run", "--nproc-per-node", "3", "--standalone")
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--num_nodes 2 --num_gpus 4 t.py --x 1", "deepspeed --no_ssh --num_nodes 2 --node_rank R"),
        ("--num_nodes 2 --num_gpus 4 --module pkg.t --x 1", "--num_gpus 4 --module pkg.t --x 1"),
        ("--no_ssh --num_nodes 2 t.py", "--no_ssh needs --master_addr"),
        ("--num_gpus 9 t.py", "localhost has 4"),
        ("--include localhost:7 t.py", "localhost has no slot 7, but 0, 1, 2, 3"),
        ("--include worker-0 t.py", "there is no host worker-0, but localhost"),
        ("--include localhost:a t.py", "'a' is no list of slots"),
        ("--include localhost --exclude localhost t.py", "both given"),
        ("--exclude localhost t.py", "leaves no slot"),
        ("--hostfile /nowhere/hosts t.py", "No such file"),
        ("--autotuning run t.py", "meron plan"),
        ("--save_pid t.py", "leave --save_pid out"),
        ("--module --no_python t.py", "both given"),
        ("--bind_core_list 1 t.py", "without --bind_cores_to_rank"),
        ("--bind_cores_to_rank --bind_core_list 1-x t.py", "'1-x' is no core"),
    ],
)
def test_a_wrong_command_line_names_the_correction(
    monkeypatch: pytest.MonkeyPatch, line: str, words: str
) -> None:
    with pytest.raises(LaunchError) as caught:
        planned(monkeypatch, line, 4)
    assert words in str(caught.value)


def test_a_hostfile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# mine\nlocalhost slots=3\n\n")
    command, _ = planned(monkeypatch, f"--hostfile {file} t.py")
    assert "-n 3 " in command
    file.write_text("worker-0 slots=2\nworker-1 slots=2\n")
    with pytest.raises(LaunchError, match=r"--master_addr worker-0 --num_gpus 2 t.py"):
        planned(monkeypatch, f"--hostfile {file} t.py")
    with pytest.raises(LaunchError, match=r"host worker-1 is another one"):
        planned(monkeypatch, f"--hostfile {file} --include worker-1:0 t.py")
    file.write_text("localhost slot=3\n")
    with pytest.raises(LaunchError, match=r"line 1: 'localhost slot=3'"):
        planned(monkeypatch, f"--hostfile {file} t.py")


def test_ranks_share_cores() -> None:
    assert [own_cores([1, 3, 4, 5], rank, 2) for rank in (0, 1)] == [[1, 3], [4, 5]]
    assert [own_cores([7], rank, 2) for rank in (0, 1)] == [[7], [7]]


def test_a_script_runs_on_two_ranks(tmp_path: Path) -> None:
    """By the executable on PATH, with nothing else set."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    program = Path(dropin.bin_folder(), "deepspeed")
    assert os.access(program, os.X_OK)
    command = [sys.executable, program, "--num_gpus", "2", "--enable_each_rank_log", "logs"]
    done = subprocess.run(
        [*map(str, command), str(script), "--deepspeed", "--epochs", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "deepspeed (Meron): " in done.stderr
    for rank in (0, 1):
        assert f"rank {rank} True 3" in (tmp_path / "logs" / f"rank{rank}.log").read_text()


PRINTS = """
import os, sys, time
rank = os.environ["RANK"]
for line in range(40):
    print("line", line, "of", "rank", rank)
    print("error", line, "of", "rank", rank, file=sys.stderr)
    time.sleep(0.002)
if rank == "0":
    print("rank 0 asks: ", end="")
    time.sleep(1.0)
    print("and goes on", os.getppid() != 1)
    os.write(1, b"without an end")
os._exit(3 if rank == "1" else 0)
"""


@pytest.mark.parametrize("with_port", [False, True])
def test_lines_of_ranks_stay_whole(tmp_path: Path, with_port: bool) -> None:
    """By `meron run`, and by torchrun."""
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    options = ["--quiet", "--num_gpus", "2", "--no_local_rank"]
    options += ["--master_port", str(free_port())] if with_port else []
    done = subprocess.run(
        [sys.executable, Path(dropin.bin_folder(), "deepspeed"), *options, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    lines = done.stdout.splitlines()
    expected = {f"line {line} of rank {rank}" for line in range(40) for rank in (0, 1)}
    if not with_port:  # torchrun ends rank 0 as soon as rank 1 has failed
        expected |= {"rank 0 asks: and goes on True", "without an end"}
        assert set(lines) == expected
    assert set(lines) <= expected | {"rank 0 asks: "} and len(lines) >= 40, done.stdout
    assert "error 39 of rank 1" in done.stderr.splitlines()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_the_modules_run_too() -> None:
    path = dropin.python_path(os.environ.get("PYTHONPATH"))
    for module, words in (("launcher.runner", "--num_gpus"), ("utils.zero_to_fp32", "--tag")):
        done = subprocess.run(
            [sys.executable, "-m", f"deepspeed.{module}", "--help"],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and words in done.stdout, done.stderr
    report = subprocess.run(
        [sys.executable, Path(dropin.bin_folder(), "ds_report")], capture_output=True, text=True
    )
    assert report.returncode == 0 and "async_io" in report.stdout, report.stderr
