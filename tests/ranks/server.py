# SPDX-License-Identifier: Apache-2.0
"""Processes that fork ranks. A process that runs `main` is a starter.

Each rank number has a starter, so that ranks hash strings differently, as the ranks of a real run.
It imports what `ranks_preload` names (PyTorch takes 2 s of a processor), starts no thread, and is
never a rank itself. For each module with cases it forks a home, which imports the module as this
rank of a world of this size. The home forks each case, which has its own process and context.
Each of these ends when its parent does.

Homes that have the variables of pytest come from a second starter, a child of the first that has
also imported `ranks_preload_plain`: modules that may read variables when they are imported.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
import weakref
from typing import Any, NoReturn

import pytest

from ranks.protocol import (
    Case,
    Ended,
    Home,
    Outcome,
    Refused,
    Started,
    receive,
    receive_with_fd,
    send,
)

# The pool sends it to a rank that is late: the rank prints the stack of each thread to stderr.
STACK_SIGNAL = signal.SIGRTMAX - 1
# Of modules that the starter has imported. Those of torch.library alone take 0.03 s of each case.
FINALIZERS: list[weakref.finalize[Any, Any]] = []


def main() -> None:
    """Serves the socket on the file descriptor argv[1]. The other arguments name the modules that
    the starter and the second one import first."""
    descriptor, preloads, plain = sys.argv[1:]
    plugin = Starter(socket.socket(fileno=int(descriptor)), preloads.split(), plain.split())
    # Within pytest, so that the modules of tests are imported with its assertions.
    sys.exit(pytest.main(["--noconftest", "-p", "no:cacheprovider"], plugins=[plugin]))


class Starter:
    def __init__(self, connection: socket.socket, preloads: list[str], plain: list[str]) -> None:
        self.connection = connection
        self.preloads = preloads
        self.plain = plain

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self) -> int:
        end_with_parent()
        import_all(self.preloads)
        if "torch" in sys.modules:
            import torch

            torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)  # imports the rest of it
        FINALIZERS.extend(weakref.finalize._registry)  # type: ignore[attr-defined]
        freeze()
        serve_homes(self.connection, start_second(self.connection, self.plain))


def import_all(names: list[str]) -> None:
    gc.disable()  # a seventh of the time that importing PyTorch takes, for nothing
    for name in names:
        # A module that is not installed fails the tests that import it, in their words.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.enable()


def start_second(connection: socket.socket, modules: list[str]) -> socket.socket | None:
    """Forks a starter that imports the modules. Returns None if none is named, or memory lacks."""
    if not modules:
        return None
    ours, theirs = socket.socketpair()
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid != 0:
        theirs.close()
        return ours
    connection.close()
    ours.close()
    end_with_parent()
    import_all(modules)
    freeze()
    serve_homes(theirs, None)


def serve_homes(connection: socket.socket, second: socket.socket | None) -> NoReturn:
    """Forks the homes that pytest asks for, or has the second starter fork them."""
    while True:
        try:
            home, descriptor = receive_with_fd(connection)
        except EOFError:
            if second is not None:
                second.close()
            reap_homes(patience=1.0)
            os._exit(0)  # without the seconds that PyTorch's end would take
        reap_homes()
        own = socket.socket(fileno=descriptor)
        if not (home.plain and hand_on(second, home, descriptor)) and fork(own) == 0:
            connection.close()
            if second is not None:
                second.close()
            serve(home, own)
        own.close()


def hand_on(second: socket.socket | None, home: Home, descriptor: int) -> bool:
    if second is None:
        return False
    try:
        send(second, home, (descriptor,))
    except OSError:  # something has killed it
        return False
    return True


def reap_homes(patience: float = 0.0) -> None:
    """Waits for homes that have ended, so that their processor time counts as pytest's."""
    until = time.monotonic() + patience
    with contextlib.suppress(ChildProcessError):  # there are none
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                if time.monotonic() >= until:
                    return
                time.sleep(0.01)


def serve(home: Home, connection: socket.socket) -> NoReturn:
    """Imports the home's module and forks its cases."""
    os.environ.clear()
    os.environ.update(home.environment)
    sys.path[:] = home.path
    pytest.register_assert_rewrite(home.module)
    try:
        module = importlib.import_module(home.module)
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        send(connection, Refused(f"cannot import {home.module}\n{text}"))
        os._exit(1)
    freeze()
    send(connection, Started(os.getpid()))
    while True:
        try:
            case = receive(connection)
        except EOFError:
            os._exit(0)
        except (
            Exception
        ) as error:  # such as an argument whose class is in no module of this process
            send(connection, Refused(f"cannot unpickle the arguments: {error!r}"))
            continue
        pid = fork(connection)
        if pid == 0:
            connection.close()
            run_case(case, module, home)
        if pid is not None:
            send(connection, Started(pid))
            send(connection, Ended(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))


def run_case(case: Case, module: Any, home: Home) -> NoReturn:
    os.setpgid(0, 0)  # with what the case starts it can be killed as a group
    redirect(case)
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, all_threads=True)
    os.environ.update(case.environment)
    os.chdir(case.directory)
    outcome = outcome_of(case, module, home)
    write_outcome(case, outcome)
    code = int(outcome.status == "failed")
    # As at the end of a program, without taking apart the modules that were imported.
    for finalizer in FINALIZERS:
        finalizer.atexit = False
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def outcome_of(case: Case, module: Any, home: Home) -> Outcome:
    try:
        function = module
        for name in case.call.function.split("."):
            function = getattr(function, name)
        with pytest.MonkeyPatch.context() as monkeypatch:
            given = {"rank": home.rank, "world_size": home.world_size, "monkeypatch": monkeypatch}
            keywords = {
                name: given[name] if value is RANKS_OWN else value
                for name, value in case.call.keywords.items()
            }
            return Outcome("passed", value=function(*case.call.arguments, **keywords))
    except pytest.skip.Exception as skip:
        return Outcome("skipped", text=str(skip))
    except BaseException as error:
        return failure(error)


class _RanksOwn:
    """In place of an argument that each rank makes for itself."""

    def __reduce__(self) -> str:
        return "RANKS_OWN"


RANKS_OWN = _RanksOwn()


def failure(error: BaseException) -> Outcome:
    trace = (
        error.__traceback__.tb_next if error.__traceback__ else None
    )  # without this file's frame
    text = "".join(traceback.format_exception(type(error), error, trace))
    summary = "".join(traceback.format_exception_only(error)).strip().splitlines()
    return Outcome("failed", text=text, summary=summary[0] if summary else "", at=time.monotonic())


def write_outcome(case: Case, outcome: Outcome) -> None:
    try:
        data = pickle.dumps(outcome)
    except Exception as error:
        text = f"the value that the function returned cannot be pickled: {error!r}"
        outcome.status, outcome.value, outcome.text, outcome.summary = "failed", None, text, text
        data = pickle.dumps(outcome)
    with open(case.outcome, "wb") as file:
        file.write(data)


def redirect(case: Case) -> None:
    """Opens the standard files anew: input is empty, output goes to the case's files."""
    write = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, (name, flags) in enumerate(
        [(os.devnull, os.O_RDONLY), (case.output, write), (case.errors, write)]
    ):
        file = os.open(name, flags)
        os.dup2(file, number)
        os.close(file)
    # pytest may have replaced these.
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__


def fork(connection: socket.socket) -> int | None:
    """Forks. Returns None, and reports the reason, if there is no memory for another process."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        pid = os.fork()
    except OSError as error:
        send(connection, Refused(f"cannot fork: {error}"))
        return None
    if pid == 0:
        end_with_parent()
    return pid


def freeze() -> None:
    """Keeps the garbage collector away from what exists, so that forks share its memory."""
    gc.collect()
    gc.freeze()


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
