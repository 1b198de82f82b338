# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is loaded by other numbers of ranks than saved it: the first run saves it, each
later one loads it, at other stages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from checkpoint import ADAM, made, state, steps

from meron import zero
from model import RANK, Model, config, run_cases

FOLDER = Path(os.environ["MEETING"]).parent / "resume"
WANTED = FOLDER / "wanted.pt"
SAVES = not WANTED.exists()  # as this run begins, on all ranks


def case_states_are_the_same_bits() -> None:
    if SAVES:
        engine = made(bf16={"enabled": True})
        steps(engine, 0, 3)
        engine.save_checkpoint(FOLDER, client_state={"ranks": 2})
        found = [*state(engine), *engine.module_state_dict().values()]
        if RANK == 0:
            torch.save({"values": found, "rate": engine.get_lr()}, WANTED)
        engine.destroy()
        return
    wanted = torch.load(WANTED, weights_only=True)
    for stage in (3, 1):
        engine = made(seed=7, stage=stage, bf16={"enabled": True})
        path, client = engine.load_checkpoint(FOLDER)
        assert path is not None and client == {"ranks": 2}
        found = [*state(engine), *engine.module_state_dict().values()]
        assert len(found) == len(wanted["values"])
        assert all(torch.equal(a, b) for a, b in zip(found, wanted["values"]))
        assert engine.get_lr() == wanted["rate"] and engine.global_steps == 3
        steps(engine, 3, 4)
        engine.destroy()


def case_a_model_that_was_built_sharded_loads_it() -> None:
    if not SAVES:
        settings = config(3, **ADAM, bf16={"enabled": True})
        with zero.Init(config_dict_or_path=settings):
            model = Model()
        engine = zero.initialize(model=model, config=settings)[0]
        engine.load_checkpoint(FOLDER)
        wanted = torch.load(WANTED, weights_only=True)["values"]
        assert all(torch.equal(a, b) for a, b in zip(state(engine), wanted))
        engine.destroy()


if __name__ == "__main__":
    zero.comm.barrier()
    run_cases(sys.modules[__name__])
