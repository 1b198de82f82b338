# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that `meron.convert` made of DeepSpeed's: what an engine takes from them."""

from __future__ import annotations

from typing import Any

from meron.torch.checkpoint import packing
from meron.torch.checkpoint.document import check_state, give_state

KEY = "imported"  # of what meron.convert says of the source
SCHEDULER = "lr_scheduler"  # DeepSpeed keeps its state beside the caller's


def own_state(extra: dict[str, Any]) -> dict[str, Any]:
    """As an engine's own: counters, and the caller's state. Empty if it was not imported."""
    found = extra.get(KEY)
    if not isinstance(found, dict):
        return {}
    caller = {key: value for key, value in extra.items() if key not in (KEY, SCHEDULER)}
    own = {key: found[key] for key in ("skipped_steps", "global_samples") if key in found}
    return {**own, "client_state": packing.dumps(caller, "client_state")}


def check(extra: dict[str, Any], scheduler: Any) -> None:
    """ParseError or LoadError for values that `restore` cannot give. Changes nothing."""
    found = extra.get(KEY)
    if not isinstance(found, dict):
        return
    scale = found.get("loss_scale", 1)
    if type(scale) not in (int, float) or not scale > 0:
        raise packing.unreadable("the loss scale", ValueError(f"{scale!r:.100}"))
    if scheduler is not None and isinstance(extra.get(SCHEDULER), dict):
        check_state(scheduler, extra[SCHEDULER])


def restore(extra: dict[str, Any], scheduler: Any, loss_scaler: Any) -> None:
    """Gives a scheduler and a loss scaler what DeepSpeed's had."""
    found = extra.get(KEY)
    if not isinstance(found, dict):
        return
    state = extra.get(SCHEDULER)
    if scheduler is not None and isinstance(state, dict):
        give_state(scheduler, state)
    if loss_scaler is not None and loss_scaler.dynamic and "loss_scale" in found:
        loss_scaler.resume(float(found["loss_scale"]))
