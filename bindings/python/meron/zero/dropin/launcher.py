# SPDX-License-Identifier: Apache-2.0
"""The command `deepspeed` of the drop-in: starts the ranks of a script on this host.

    deepspeed --num_gpus 2 train.py --deepspeed --deepspeed_config config.json
    python -m deepspeed.launcher.runner --num_gpus 2 train.py     # the same

It takes the options of DeepSpeed's launcher, starts `meron run` (or torchrun where that command is
not there, and for several nodes), and lets `import deepspeed` mean Meron in the ranks. As
DeepSpeed's does, it appends `--local_rank=N` to the script's arguments.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from meron._library import CARRIED
from meron.zero.dropin.folders import python_path
from meron.zero.dropin.hosts import Hosts, LaunchError, is_local, read_hostfile, select

HOSTFILE = "/job/hostfile"
DEVICES = "CUDA_VISIBLE_DEVICES"
RANK_PROGRAM = str(Path(__file__).with_name("rank_program.py"))

# Options that DeepSpeed has for several nodes, which it reaches by ssh. On one node they have no
# effect in DeepSpeed either.
FOR_SSH = ("--launcher", "--launcher_args", "--ssh_port", "--venv_script")
# Switches that a command for one node of several has too.
ON_EACH_NODE = ("module", "no_python", "no_local_rank", "bind_cores_to_rank")
REFUSED = {
    "autotuning": "use `meron plan` to compare plans, and leave --autotuning out",
    "save_pid": "the launcher's pid is $! of the shell that started it; leave --save_pid out",
    "force_multi": "start this command on that node itself; leave --force_multi out",
    "elastic_training": "checkpoints load at any number of ranks; leave --elastic_training out",
}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="deepspeed",
        description="Starts the ranks of a script on Meron (this is not DeepSpeed's launcher).",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-H", "--hostfile", help=f"lines NAME slots=N (default {HOSTFILE}, if it exists)")
    add("-i", "--include", default="", help="NAME[:SLOT,...][@...]: hosts and devices to use")
    add("-e", "--exclude", default="", help="the same: hosts and devices to leave out")
    add("--num_nodes", type=int, default=-1, help="the first N hosts of the hostfile")
    add("--num_gpus", "--num_accelerators", type=int, default=-1, help="ranks of each host")
    add("--master_port", type=int, help="of torch.distributed; default is a free one")
    add("--master_addr", default="", help="of node 0, with --no_ssh")
    add("--node_rank", type=int, default=-1, help="of this node, with --no_ssh")
    add("--no_ssh", action="store_true", help="this command is started on every node")
    add("--module", action="store_true", help="the script is a module, as of python -m")
    add("--no_python", action="store_true", help="the script is a program, not Python")
    add("--no_local_rank", action="store_true", help="append no --local_rank to the script")
    add("--enable_each_rank_log", metavar="FOLDER", help="write each rank's output to a file")
    add("--bind_cores_to_rank", action="store_true", help="each rank runs on its own cores")
    add("--bind_core_list", help="such as 1,3-5: the cores that --bind_cores_to_rank divides")
    add("--log_level", default="info", help="warning, error, critical: print no command")
    add("-q", "--quiet", action="store_true", help="print no command")
    for option in FOR_SSH:
        add(option, help="without effect on one node")
    add("--no_ssh_check", action="store_true", help="without effect on one node")
    for name in REFUSED:
        kind = "store" if name == "autotuning" else "store_true"
        add(f"--{name}", action=kind, help=argparse.SUPPRESS)
    add("user_script", help="a script, or with --module a module, or with --no_python a program")
    add("user_args", nargs=argparse.REMAINDER)
    return parser


def device_count() -> int:
    """CUDA devices of this host, whatever CUDA_VISIBLE_DEVICES says; 0 without any."""
    import torch

    before = os.environ.pop(DEVICES, None)
    try:
        return torch.cuda.device_count()
    finally:
        if before is not None:
            os.environ[DEVICES] = before


def choose_hosts(options: argparse.Namespace) -> Hosts:
    """The hosts, and the slots of each. Without a hostfile: this host, and its CUDA devices."""
    file = options.hostfile or (HOSTFILE if os.path.isfile(HOSTFILE) else None)
    if file is not None:
        hosts = select(read_hostfile(file), options.include, options.exclude)
        if options.num_nodes > len(hosts):
            raise LaunchError(f"--num_nodes {options.num_nodes}: there are {len(hosts)} hosts")
        if options.num_nodes > 0:
            hosts = {name: hosts[name] for name in list(hosts)[: options.num_nodes]}
    else:
        visible = os.environ.get(DEVICES)
        free = not (options.include or options.exclude or options.num_gpus > 0)
        if visible and not are_numbers(visible):  # slots are places in the list
            hosts = {"localhost": list(range(len(visible.split(","))))}
        elif visible and free:
            hosts = {"localhost": [int(one) for one in visible.split(",")]}
        else:
            count = device_count() or max(options.num_gpus, 1)
            hosts = {"localhost": list(range(count))}
        hosts = select(hosts, options.include, options.exclude)
    if options.num_gpus > 0:
        short = [name for name, slots in hosts.items() if len(slots) < options.num_gpus]
        if short:
            raise LaunchError(
                f"--num_gpus {options.num_gpus}: {short[0]} has {len(hosts[short[0]])}"
            )
        hosts = {name: slots[: options.num_gpus] for name, slots in hosts.items()}
    return hosts


def are_numbers(visible: str) -> bool:
    """True if CUDA_VISIBLE_DEVICES has numbers, and not names such as GPU-8932f937."""
    return all(one.isdecimal() for one in visible.split(","))


def core_list(text: str | None) -> list[int]:
    """The cores of --bind_core_list; without it those that this process may use."""
    if text is None:
        return sorted(os.sched_getaffinity(0))
    cores: list[int] = []
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise LaunchError(f"--bind_core_list {text}: {item!r} is no core, and no range 3-5")
        cores += range(int(first), int(last or first) + 1)
    if len(set(cores)) != len(cores):
        raise LaunchError(f"--bind_core_list {text}: a core is there twice")
    return cores


def rank_command(options: argparse.Namespace) -> list[str]:
    """The command line of each rank."""
    if options.no_python and options.module:
        raise LaunchError("--no_python and --module are both given. Give one of them")
    program = [] if options.no_python else [sys.executable, "-u"]
    program += ["-m"] if options.module else []
    program.append(options.user_script)
    own: list[str] = []
    if options.enable_each_rank_log not in (None, "None"):
        own += ["--log", options.enable_each_rank_log]
    if options.bind_cores_to_rank:
        own += ["--cores", ",".join(map(str, core_list(options.bind_core_list)))]
    elif options.bind_core_list is not None:
        raise LaunchError("--bind_core_list is given without --bind_cores_to_rank. Give both")
    if not options.no_local_rank:
        own += ["--local-rank", str(len(program))]
    return [sys.executable, RANK_PROGRAM, *own, "--", *program, *options.user_args]


def find_meron() -> str | None:
    """The command `meron`: the wheel's, the one on PATH, or $MERON_COMMAND."""
    carried = CARRIED / "bin" / "meron"
    if carried.exists():
        return str(carried)
    return os.environ.get("MERON_COMMAND") or shutil.which("meron")


def plan(options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """The command that starts the ranks, and the variables that it needs.

    Raises LaunchError for what does not start ranks on this host.
    """
    for name, advice in REFUSED.items():
        if getattr(options, name):
            raise LaunchError(f"--{name} is not in Meron's launcher: {advice}")
    refuse_counts_beside_selections(options)
    program = rank_command(options)
    hosts = choose_hosts(options)
    environment = {"PYTHONPATH": python_path(os.environ.get("PYTHONPATH"))}
    nodes = max(options.num_nodes, len(hosts))
    if nodes > 1 or options.no_ssh:
        command = command_of_node(options, hosts, nodes, program)
        mine = options.node_rank if len(hosts) == nodes else 0  # without a hostfile: this host
        return command, {**environment, **visible_devices(list(hosts.values())[mine])}
    (name, slots), *_ = hosts.items()
    if not is_local(name):
        raise LaunchError(
            f"the host {name} is another one than this: Meron's launcher starts ranks on its own "
            "host. Start this command there, without --hostfile and --include"
        )
    environment.update(visible_devices(slots))
    if options.master_port is not None:
        environment["MASTER_PORT"] = str(options.master_port)
    meron = find_meron()
    if meron is not None and options.master_port is None:
        # meron run sets torchrun's variables, with a free port.
        return [meron, "run", "-n", str(len(slots)), "--as-deepspeed", "--", *program], environment
    where = ["--standalone"] if options.master_port is None else torch_rendezvous(options)
    return [*torchrun(len(slots)), *where, "--no-python", *program], environment


def refuse_counts_beside_selections(options: argparse.Namespace) -> None:
    """With --no_ssh, --num_nodes is the number of commands, and may be beside a selection."""
    counts = {"--num_nodes": options.num_nodes, "--num_gpus": options.num_gpus}
    given = [name for name, count in counts.items() if count > 0]
    selections = {"--include": options.include, "--exclude": options.exclude}
    beside = [name for name, text in selections.items() if text]
    if given and beside and not options.no_ssh:
        raise LaunchError(f"{given[0]} and {beside[0]} are both given. Give one of them")


def visible_devices(slots: list[int]) -> dict[str, str]:
    """The variable that limits ranks to the devices of some slots; {} if the host has no device."""
    visible = os.environ.get(DEVICES)
    if visible and not are_numbers(visible):
        names = visible.split(",")
        return {DEVICES: ",".join(names[slot] for slot in slots if slot < len(names))}
    return {DEVICES: ",".join(map(str, slots))} if device_count() else {}


def torchrun(ranks: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]


def torch_rendezvous(options: argparse.Namespace) -> list[str]:
    address = options.master_addr or "127.0.0.1"
    return ["--master-addr", address, "--master-port", str(options.master_port or 29500)]


def given_again(options: argparse.Namespace) -> list[str]:
    """The options of a command that holds on each node as well."""
    words = [f"--{name}" for name in ON_EACH_NODE if getattr(options, name) is True]
    for name in ("master_port", "bind_core_list", "enable_each_rank_log"):
        if getattr(options, name) not in (None, "None"):
            words += [f"--{name}", str(getattr(options, name))]
    return words


def command_of_node(
    options: argparse.Namespace, hosts: Hosts, nodes: int, program: list[str]
) -> list[str]:
    """torchrun for this node of several. LaunchError says what to start where without --no_ssh."""
    counts = sorted({len(slots) for slots in hosts.values()})
    if len(counts) > 1:
        raise LaunchError(
            f"hosts have different numbers of slots ({', '.join(map(str, counts))}). Give "
            f"--num_gpus {counts[0]}"
        )
    if not options.no_ssh:
        script = shlex.join([*given_again(options), options.user_script, *options.user_args])
        raise LaunchError(
            f"{nodes} hosts: Meron's launcher starts ranks on its own host, and uses no ssh. Start "
            f"on each node, with its number in place of R: deepspeed --no_ssh --num_nodes {nodes} "
            f"--node_rank R --master_addr {next(iter(hosts))} --num_gpus {counts[0]} {script}"
        )
    if not options.master_addr or options.node_rank not in range(nodes):
        raise LaunchError(
            "--no_ssh needs --master_addr, the address of node 0, and --node_rank, 0 to "
            f"{nodes - 1}"
        )
    where = ["--nnodes", str(nodes), "--node-rank", str(options.node_rank)]
    return [*torchrun(counts[0]), *where, *torch_rendezvous(options), "--no-python", *program]


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Becomes the command that starts the ranks.

    Args:
        args: the command line; default is that of this process, which exits with 2 if it is wrong.

    Raises LaunchError (a ValueError) for wrong `args`.
    """
    parser = make_parser()
    options = parser.parse_args(args)
    try:
        command, environment = plan(options)
    except LaunchError as error:
        if args is not None:
            raise
        parser.error(str(error))
    if not options.quiet and options.log_level in ("debug", "info"):
        print(f"deepspeed (Meron): {shlex.join(command)}", file=sys.stderr, flush=True)
    try:
        os.execve(shutil.which(command[0]) or command[0], command, {**os.environ, **environment})
    except OSError as error:
        parser.error(
            f"cannot start {command[0]}: {error.strerror}. Look at $MERON_COMMAND and PATH"
        )


if __name__ == "__main__":
    main()
