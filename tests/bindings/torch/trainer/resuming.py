# SPDX-License-Identifier: Apache-2.0
"""Loads what saving.py saved by two ranks, at another number of ranks."""

from __future__ import annotations

import torch
from fabric_runs import resume_fabric
from modules import FOLDER, WORLD, Regression, fit, loader, raises, run_cases, trainer

import meron.lightning


def expected() -> dict:
    return torch.load(FOLDER / "expected.pt")


def case_a_run_goes_on() -> None:
    for strategy, late in (("meron_stage_1", False), ("meron_stage_3", True)):
        module = Regression(late)
        seen = []
        module.on_train_start = lambda seen=seen, module=module: seen.append(module.state_dict())
        _, made = fit(strategy, module, FOLDER / "end.ckpt", max_epochs=3)
        values = expected()["values"]
        assert all(torch.equal(seen[0][name], values[name]) for name in values)
        assert made.global_step == 12 + len(module.losses) > 12
        assert module.losses[-1] < expected()["losses"][0]


def case_the_middle_of_an_epoch() -> None:
    module, made = fit("meron_stage_2", Regression(), FOLDER / "step=8.ckpt", max_epochs=2)
    assert made.global_step == 8 + len(module.losses)
    assert made.optimizers[0].param_groups[0]["lr"] == 1e-2 * 0.5 ** (made.global_step // 2)


def case_another_number_of_ranks_is_refused_if_asked() -> None:
    strategy = meron.lightning.MeronStrategy(reshard_on_load=False)
    check = lambda: fit(strategy, Regression(), FOLDER / "end.ckpt", max_epochs=3)  # noqa: E731
    raises("LoadError", "was saved by 2 ranks", check)


def case_a_fabric_checkpoint() -> None:
    resume_fabric()


def case_one_file() -> None:
    if WORLD != 1:
        return
    path = FOLDER / "single.ckpt"
    content = meron.lightning.convert_zero_checkpoint_to_fp32_state_dict(FOLDER / "end.ckpt", path)
    assert {"epoch", "loops", "callbacks", "mine", "state_dict"} <= content.keys()
    values = expected()["values"]
    alone = Regression.load_from_checkpoint(path, weights_only=False)
    short = meron.lightning.load_from_checkpoint(Regression, FOLDER / "end.ckpt")
    for module in (alone, short):
        assert all(torch.equal(module.state_dict()[name], values[name]) for name in values)
    module, made = fit("meron_stage_3", Regression(), path, max_epochs=3)
    assert made.global_step == 12 + len(module.losses)
    module = Regression()
    trainer("meron_stage_2").validate(module, loader(), verbose=False, ckpt_path=path)
    assert all(torch.equal(module.state_dict()[name], values[name]) for name in values)


if __name__ == "__main__":
    run_cases(dict(globals()))
