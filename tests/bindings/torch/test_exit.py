# SPDX-License-Identifier: Apache-2.0
"""The end of a process that used torch.distributed."""

from __future__ import annotations

from pathlib import Path

import pytest
import ranks

# The interpreter ends before a thread of gloo, which has completed a collective, can enter it.
LATE = """
import os, sys, time
import torch, torch.distributed as dist
import {package}

rank, ranks = int(os.environ["MERON_RANK"]), int(os.environ["MERON_WORLD_SIZE"])
dist.init_process_group("gloo", init_method="file://{folder}/meet", rank=rank, world_size=ranks)
group = dist.group.WORLD  # outlives its end, as by modules of PyTorch
dist.barrier()
sys.setswitchinterval(1000)
tensor = torch.ones(2)
work = dist.all_reduce(tensor, async_op=True)
del tensor, work
if {destroys}:
    dist.destroy_process_group()
print("done", flush=True)
until = time.monotonic() + 0.3
while time.monotonic() < until:
    pass
"""


@pytest.mark.parametrize("destroys", [False, True])
@pytest.mark.parametrize("package", ["meron.torch", "meron.checkpointing", "meron.convert"])
def test_a_late_thread_of_gloo_does_not_abort(tmp_path: Path, package: str, destroys: bool) -> None:
    source = LATE.format(package=package, folder=tmp_path, destroys=destroys)
    done = ranks.launch(2, source=source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("done") == 2
