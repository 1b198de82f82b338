# SPDX-License-Identifier: Apache-2.0
"""The library's functions under the names that callers of Python know, in the texts of errors.

The library names its own functions: "param_register failed on rank 0: ...". `in_python` gives them
Python's names, and `calling` those of a module above this one, such as "mt.save".
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from meron._error import Error

NAMES = {
    "all_reduce_begin": "Group.all_reduce",
    "barrier_begin": "Group.barrier",
    "broadcast_begin": "Group.broadcast",
    "checkpoint_cancel_save": "Context.cancel_save",
    "checkpoint_export": "Context.export",
    "checkpoint_list": "meron.list_checkpoints",
    "checkpoint_load": "Context.load",
    "checkpoint_open": "meron.open_checkpoint",
    "checkpoint_read": "Checkpoint.read",
    "checkpoint_remove": "meron.remove_checkpoint",
    "checkpoint_save": "Context.save",
    "checkpoint_save_begin": "Context.save",
    "checkpoint_wait_copied": "Context.wait_copied",
    "checkpoint_write": "meron.write_checkpoint",
    "context_close": "Context.close",
    "context_open": "meron.open",
    "context_predict": "Context.predict",
    "context_progress": "Context.progress",
    "future_poll": "Future.done",
    "future_wait": "Future.wait",
    "future_wait_any": "meron.wait_any",
    "gather_begin": "Unit.gather",
    "gradient_clip": "Context.clip_gradients",
    "gradient_view": "Unit.gradient",
    "group_abort": "Group.abort",
    "group_create": "Context.group",
    "io_buffer_create": "IO.buffer",
    "io_open": "meron.io.open",
    "io_read": "IO.read",
    "io_read_begin": "IO.read_begin",
    "io_wait": "IO.wait",
    "io_write": "IO.write",
    "io_write_begin": "IO.write_begin",
    "optimizer_add_group": "Optimizer.add_group",
    "optimizer_create": "Context.optimizer",
    "optimizer_get_group": "Optimizer.group",
    "optimizer_offload": "Optimizer.offload",
    "optimizer_read_state": "Optimizer.read_state",
    "optimizer_reload": "Optimizer.reload",
    "optimizer_set_group": "Optimizer.set_group",
    "optimizer_set_learning_rate": "Optimizer.lr",
    "optimizer_set_max_norm": "Optimizer.max_norm",
    "optimizer_set_param_steps": "Optimizer.set_param_steps",
    "optimizer_set_skipped": "Optimizer.skip",
    "optimizer_set_steps": "Optimizer.steps",
    "optimizer_state_view": "Optimizer.state",
    "optimizer_step": "Optimizer.step",
    "optimizer_step_begin": "Optimizer.step",
    "optimizer_write_state": "Optimizer.write_state",
    "param_register": "Context.param",
    "plan_parse": "Plan.parse",
    "plan_predict": "Plan.predict",
    "plan_preset": "Plan.preset",
    "reduce_begin": "Unit.reduce",
    "reduce_consume": "Unit.consume",
    "reduce_discard": "Unit.discard",
    "reduce_finish_begin": "Unit.reduce_finish",
    "reduce_wait": "Context.wait_reductions",
    "reduced_dlpack": "Unit.reduced_dlpack",
    "reduced_view": "Unit.reduced",
    "schedule_create": "Context.schedule",
    "schedule_enter": "Schedule.enter",
    "schedule_leave": "Schedule.leave",
    "schedule_start_pass": "Schedule.start_pass",
    "unit_create": "Context.unit",
    "unit_destroy": "Unit.destroy",
    "update_begin": "Context.update",
    "update_publish": "Update.publish",
    "update_view": "Update.view",
    "update_write": "Update.write",
}
# "param_register failed on rank 0", "rank 1 called param_register of 'weight'".
NAMED = re.compile(r"\b([a-z]+(?:_[a-z]+)+)(?= failed\b| of ')")
# Also of an error that other ranks report: "rank 0: Context.load failed: ...; rank 1: ...".
BEGINS = re.compile(r"((?:^|; )rank \d+: |^)([\w.]+)(?= failed\b)")
# Explanations of calls such as "all_reduce of 'f32 sum'". Other modules add theirs.
EXPLAINED: dict[str, str] = {}
OVERWRITE = ("or overwrite it", "or pass overwrite=True")


def in_python(text: str) -> str:
    """A text of the library with Python's names of functions and arguments."""
    text = NAMED.sub(lambda found: NAMES.get(found[1], found[1]), text)
    for called, explanation in EXPLAINED.items():
        text = text.replace(called, f"{called}, {explanation}")
    return text.replace(*OVERWRITE)


def name_call(error: Error, name: str) -> None:
    """Lets an error begin with `name`, where it began with a function that `name` called."""
    inner = {error.operation, *NAMES.values()}

    def renamed(found: re.Match[str]) -> str:
        return found[1] + (name if found[2] in inner else found[2])

    error._name_call(name, BEGINS.sub(renamed, error.message))


class calling(contextlib.ContextDecorator):
    """Lets errors of a block, or of a function that it decorates, name what the caller has called.

        @calling("mt.save")
        def save(...): ...

    An error then begins with "mt.save failed on rank 0". Of two around each other the outer counts.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, Error):
            name_call(error, self.name)
