# SPDX-License-Identifier: Apache-2.0
"""`meron run`: how ranks start, what they get, and errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from command import (
    MERON,
    PATIENCE,
    TELL_PID,
    is_alive,
    meron,
    python,
    read_numbers,
    start,
)

# ---- Exit codes and errors ----------------------------------------------------------------------


def test_all_ranks_end_well():
    done = meron("run", "-n", "3", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_code_is_that_of_the_first_rank_that_fails():
    # Rank 1 fails first; rank 2 fails later, as a survivor does.
    code = "case $MERON_RANK in 0) ;; 1) exit 3 ;; 2) sleep 0.5; exit 4 ;; esac"
    done = meron("run", "-n", "3", "--", "sh", "-c", code)
    assert done.returncode == 3
    assert re.search(r"rank 1 \(pid \d+\) exited with code 3", done.stderr)
    assert "rank 0 exited with code 0; rank 2 exited with code 4" in done.stderr


@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM"])
def test_a_rank_that_is_killed_is_named(name):
    code = f"[ $MERON_RANK != 2 ] || kill -{name} $$"
    done = meron("run", "-n", "4", "--", "sh", "-c", code)
    assert done.returncode == 128 + getattr(signal, f"SIG{name}")
    assert re.search(rf"rank 2 \(pid \d+\) was killed by SIG{name}", done.stderr)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "-n", "1", "no-such-program"], 127, "was not found in PATH"),
        (["run", "-n", "1", "./no-such-program"], 127, "does not exist"),
        (["run", "-n", "1", "/etc/passwd"], 126, "cannot be run"),
        (["run", "-n", "1", "/"], 126, "cannot be run"),
        (["run", "-n", "0", "true"], 2, "from 1 to 4096"),
        (["run", "-n", "-1", "true"], 2, "from 1 to 4096"),
        (["run", "-n", "4097", "true"], 2, "from 1 to 4096"),
        (["run", "-n", "99999999999999999999", "true"], 2, "from 1 to 4096"),
        (["run", "-n", "two", "true"], 2, "--ranks"),
        (["run", "true"], 2, "--ranks is required"),
        (["run", "-n", "2"], 2, "which program"),
        (["run", "-n", "2", "--"], 2, "which program"),
        (["run", "-n", "2", "--nonsense", "true"], 2, "unknown option --nonsense"),
        (["run", "-n", "2", "--tga", "true"], 2, "unknown option --tga: did you mean --tag?"),
        (["run", "-np", "2", "true"], 2, "there is no option -np: did you mean -n, for example"),
        (["run", "--nproc-per-node=2", "true"], 2, "no option --nproc-per-node: did you mean -n"),
        (["run", "-n", "two", "true"], 2, "--ranks two is not possible: two is no number"),
        (["run", "-n", "1", "--grace", "-1", "true"], 2, "--grace"),
        (["run", "-n", "1", "--timeout", "nan", "true"], 2, "--timeout"),
        (["run", "-n", "1", "--timeout", "1e300", "true"], 2, "--timeout"),
        (["nonsense"], 2, "nonsense"),
        ([], 2, "subcommand"),
    ],
)
def test_errors_say_what_is_wrong(words, code, message):
    done = meron(*words)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stdout == ""


def test_a_script_without_its_interpreter_is_told_how_to_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    done = meron("run", "-n", "1", "train.py", cwd=tmp_path)
    assert done.returncode == 127 and done.stderr.rstrip().endswith("python3 train.py")
    done = meron("run", "-n", "1", "./train.py", cwd=tmp_path)
    assert done.returncode == 126 and "write the interpreter: python3 ./train.py" in done.stderr
    script.rename(tmp_path / "train")
    done = meron("run", "-n", "1", "./train", cwd=tmp_path)
    assert done.returncode == 126 and "`chmod +x ./train` makes it executable" in done.stderr
    assert "chmod" not in meron("run", "-n", "1", "./", cwd=tmp_path).stderr


def test_a_missing_interpreter_is_not_called_a_missing_program(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = meron("run", "-n", "2", str(script))
    assert done.returncode == 127
    assert "interpreter" in done.stderr


def test_help_and_version():
    for words in (["--help"], ["run", "--help"], ["info", "--help"], ["plan", "--help"]):
        done = meron(*words)
        assert done.returncode == 0
        assert "Examples:" in done.stdout
    assert re.fullmatch(r"meron \d+\.\d+\.\d+\n", meron("--version").stdout)


def test_results_that_cannot_be_written_are_an_error():
    with open("/dev/full", "w") as full:
        done = subprocess.run([MERON, "info"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert b"standard output" in done.stderr


# ---- What ranks get -----------------------------------------------------------------------------


def test_arguments_arrive_as_they_were_given():
    words = ["-n", "3", "--tag", "[a,b]", "--", "x", "", "a b", "--help", "run"]
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    for separator in ([], ["--"]):
        done = meron("run", "-n", "1", *separator, *python(code), *words)
        assert json.loads(done.stdout) == words


def test_a_program_may_have_the_name_of_a_subcommand(tmp_path):
    program = tmp_path / "info"
    program.write_text('#!/bin/sh\necho "mine"\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = meron("run", "-n", "1", "info", env={**os.environ, "PATH": path})
    assert done.stdout == "mine\n"


def test_each_rank_finds_its_place():
    code = """
import json, os
print(json.dumps({k: v for k, v in os.environ.items() if k.startswith("MERON_")}) + "\\n", end="")
"""
    outer = {**os.environ, "MERON_TOKEN": "of another job", "MERON_RANK": "77"}
    done = meron("run", "-n", "3", "--", *python(code), env=outer)
    ranks = {}
    for line in done.stdout.splitlines():
        variables = json.loads(line)
        assert variables["MERON_WORLD_SIZE"] == variables["MERON_LOCAL_WORLD_SIZE"] == "3"
        assert variables["MERON_LOCAL_RANK"] == variables["MERON_RANK"]
        assert "MERON_TOKEN" not in variables
        ranks[variables["MERON_RANK"]] = int(variables["MERON_TOKEN_FD"])
    assert sorted(ranks) == ["0", "1", "2"]
    assert all(fd > 2 for fd in ranks.values())


def test_ranks_find_the_variables_of_torchrun():
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
    code = f"""
import os
assert "TORCHELASTIC_USE_AGENT_STORE" not in os.environ
print(*[os.environ[name] for name in "{names}".split()])
"""
    outer = {**os.environ, **dict.fromkeys(names.split(), "77")}
    outer["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    done = meron("run", "-n", "2", "--tag", "--", *python(code), env=outer)
    found = [line.split() for line in sorted(done.stdout.splitlines())]
    port = found[0][-1]
    assert int(port) > 77
    assert found == [[f"[{r}]", str(r), "2", str(r), "2", "127.0.0.1", port] for r in range(2)]


# Rank 0 listens at MASTER_PORT as torch's store does, and as another program would.
LISTEN = """
import errno, os, socket
place = ("", int(os.environ["MASTER_PORT"]))
other = socket.socket()
try:
    other.bind(place)
except OSError as error:
    assert error.errno == errno.EADDRINUSE
else:
    raise AssertionError("another program can take the port")
any_port = [socket.create_server(("127.0.0.1", 0)) for _ in range(200)]
assert place[1] not in [server.getsockname()[1] for server in any_port]
for family in (socket.AF_INET, socket.AF_INET6):
    if family == socket.AF_INET or socket.has_dualstack_ipv6():
        with socket.create_server(place, family=family) as server:
            socket.create_connection(("127.0.0.1" if family == socket.AF_INET else "::1", place[1]))
"""


def test_the_port_is_kept_from_other_programs():
    done = meron("run", "-n", "1", "--", *python(LISTEN))
    assert done.returncode == 0, done.stderr


def test_ranks_share_the_cores():
    code = 'import os; os.write(1, os.environ["OMP_NUM_THREADS"].encode() + b"\\n")'
    outer = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    cores = len(os.sched_getaffinity(0))
    for ranks in (1, 2, 4 * cores):
        done = meron("run", "-n", str(ranks), "--", *python(code), env=outer)
        assert done.stdout.split() == [str(max(1, cores // ranks))] * ranks
    done = meron("run", "-n", "2", "--", *python(code), env={**outer, "OMP_NUM_THREADS": "7"})
    assert done.stdout.split() == ["7", "7"]


# Reads the token as a stream, so that a shared position would show; then tries to change it.
TOKEN = """
import os
fd = int(os.environ["MERON_TOKEN_FD"])
print(os.read(fd, 1000).decode() + "\\n", end="")
try:
    os.pwrite(fd, b"0", 0)
    print("changed\\n", end="")
except PermissionError:
    pass
"""


def test_the_token_is_one_per_job_and_sealed():
    tokens = []
    for _ in range(2):
        lines = meron("run", "-n", "4", "--", *python(TOKEN)).stdout.splitlines()
        assert len(lines) == 4
        assert len(set(lines)) == 1
        assert re.fullmatch(r"[0-9a-f]{64}", lines[0])
        tokens.append(lines[0])
    assert tokens[0] != tokens[1]


def test_the_token_is_nowhere_where_others_can_read_it(tmp_path):
    code = (
        TELL_PID
        + """
token = os.read(int(os.environ["MERON_TOKEN_FD"]), 100).decode()
(folder / f"token{rank}").write_text(token)
tell("done", 1)
time.sleep(60)
"""
    )
    launcher = start("run", "-n", "2", "--", *python(code), str(tmp_path))
    try:
        read_numbers(tmp_path, "done", 2)
        pids = [launcher.pid, *read_numbers(tmp_path, "pid", 2).values()]
        tokens = {(tmp_path / f"token{rank}").read_bytes() for rank in (0, 1)}
        assert len(tokens) == 1
        for pid in pids:
            for name in ("cmdline", "environ", "comm", "maps"):
                assert not any(t in Path(f"/proc/{pid}/{name}").read_bytes() for t in tokens)
    finally:
        launcher.terminate()
        launcher.wait(PATIENCE)


def test_nothing_else_of_the_launcher_is_inherited():
    code = """
import os
known = (os.environ["MERON_TOKEN_FD"], os.environ["MERON_BOARD_FD"])
for fd in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        continue  # the listing's own
    if int(fd) > 2 and fd not in known:
        print(fd, target)
"""
    assert meron("run", "-n", "2", "--", *python(code), close_fds=True).stdout == ""


def test_standard_input_goes_to_rank_0_only():
    code = """
import os, sys
print(os.environ["MERON_RANK"] + ":" + sys.stdin.read() + "\\n", end="")
"""
    done = meron("run", "-n", "3", "--", *python(code), stdin="hello")
    assert sorted(done.stdout.splitlines()) == ["0:hello", "1:", "2:"]


def test_output_is_passed_through_untouched():
    code = """
import os
if os.environ["MERON_RANK"] == "1":
    os.write(1, bytes(range(256)) * 100)
"""
    assert meron("run", "-n", "2", "--", *python(code)).raw == bytes(range(256)) * 100


# ---- --as-deepspeed -----------------------------------------------------------------------------


def fake_python(folder: Path, text: str) -> dict[str, str]:
    """An environment in which python3 is a script."""
    script = folder / "python3"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": "/before"}


def test_as_deepspeed_puts_the_drop_in_first_on_the_path(tmp_path):
    environment = fake_python(tmp_path, 'echo a warning; echo "/the drop-in"')
    code = 'echo "$RANK $PYTHONPATH"'
    done = meron("run", "-n", "2", "--as-deepspeed", "--", "sh", "-c", code, env=environment)
    path = "/the drop-in:/before"
    expected = [f"{rank} {path}" for rank in range(2)]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected), done.stderr


def test_as_deepspeed_without_the_package_says_what_to_install(tmp_path):
    environment = fake_python(tmp_path, "exit 1")
    done = meron("run", "-n", "1", "--as-deepspeed", "true", env=environment)
    assert done.returncode == 2
    assert "python3 cannot run meron.zero.dropin" in done.stderr and "Install" in done.stderr


# ---- Many ranks -------------------------------------------------------------------------------


def test_many_ranks():
    done = meron("run", "-n", "64", "--", "sh", "-c", "echo $MERON_RANK")
    assert sorted(map(int, done.stdout.split())) == list(range(64))


def test_a_job_that_cannot_start_whole_does_not_start(tmp_path):
    # With few descriptors the pipes of --tag run out before the last rank.
    code = f"echo $$ > {tmp_path}/pid$MERON_RANK; exec sleep 100"
    command = f'ulimit -n 20; exec {MERON} run -n 16 --tag -- sh -c "$1"'
    done = subprocess.run(
        ["sh", "-c", command, "sh", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert "ulimit -n" in done.stderr
    pids = [int(path.read_text() or 0) for path in tmp_path.glob("pid*")]
    assert not any(map(is_alive, pids))
