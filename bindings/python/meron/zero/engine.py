# SPDX-License-Identifier: Apache-2.0
"""The engine: a sharded model with its optimizer, behind `engine(x)`, `backward` and `step`.

Gradients are summed over micro-batches and ranks as they are, and divided once when they are
complete: by the ranks, the accumulation steps and the loss scale. So `engine.backward(loss)` and a
plain `loss.backward()` are the same.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

import meron.torch as mt
from meron import errors
from meron.torch.optim.replacement import replaced_by
from meron.torch.sharding import Sharding
from meron.torch.tensors import map_tensors, tensors_in
from meron.torch.torch_internals import accumulates, current_graph_task
from meron.torch.unit import ShardedUnit
from meron.torch.values.state import global_norm
from meron.zero.accumulation import Accumulation
from meron.zero.checkpoints import Checkpoints
from meron.zero.config import Config
from meron.zero.loader import make_loader
from meron.zero.loss_scale import LossScale
from meron.zero.monitors import MonitorMaster, RunEvents
from meron.zero.owner import destroyed, disown, own
from meron.zero.phases import Phases
from meron.zero.reports import Reporter, timed


class Engine(Accumulation, Checkpoints, Phases):
    """The engine that `meron.zero.initialize` returns. All methods that train are collective.

    Attributes:
        module: the model.
        optimizer, lr_scheduler, training_dataloader: or None.
        monitor: writes events for TensorBoard and others that the config enables, on rank 0.
        micro_steps, global_steps, skipped_steps: calls of step(), steps of the optimizer with those
            that were skipped, and those.
        global_samples: samples of all those steps, where the config says how many a micro-batch
            has. With managed_gradient_accumulation: false a step has as many micro-batches as there
            were backward passes; else as many as the config says.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        config: Config,
        sharding: Sharding,
        units: list[ShardedUnit],
        owns: bool = True,
    ) -> None:
        """With `owns` False the model stays that of the engine that trains it."""
        super().__init__(module)
        self.config = config
        self.sharding = sharding
        self.units = units
        self.optimizer: torch.optim.Optimizer | None = None
        self.lr_scheduler: Any = None
        self.training_data: Any = None
        self.training_dataloader: Any = None
        self.collate_fn: Any = None  # of initialize
        self.sparse_tensor_module_names: set[str] = set()  # sparse gradients are added as dense
        self.loss_scaler = LossScale(config.scaling) if config.scaling is not None else None
        self.micro_steps = 0
        self.global_steps = 0
        self.skipped_steps = 0
        self.global_samples = 0
        self._norm: float | None = None
        self._applied = False
        self._boundary: bool | None = None
        self._accumulated = 0  # micro-batches since the last update
        self._backwards = 0  # backward passes since then
        self._begun_after = 0  # of these, those before this micro-batch
        self._last_pass = -1  # torch's number of the last of them
        self._forwards = 0  # since the last step(), of which a backward would be seen
        self._backward_ran = False
        # One that gives no param a gradient: torch.autograd.grad, or a branch without params.
        self._other_backward_ran = False
        self._scaled = False  # the loss of this micro-batch
        self._unsynced = False
        self._destroyed = False
        self._end = "was destroyed"  # how it ended
        self._owns = owns
        self._states_away = False
        self._owns_optimizer = False  # the config's, not the caller's
        self._reporter = Reporter.of(config.reports, sharding)
        self.monitor = MonitorMaster(types.SimpleNamespace(**config.monitor_blocks()))
        self._events = RunEvents(self.monitor)
        self._stepping = False  # within step(), in which optimizer.step() is the plain one
        self.is_compiled = False
        if owns:
            self._own()

    # ---- The model -----------------------------------------------------------------------------

    @timed("forward")
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.config.fp16 is not None and self.config.fp16.auto_cast:
            inputs = map_tensors(inputs, to_half)
            kwargs = map_tensors(kwargs, to_half)
        with self._autocast():
            output = self.module(*inputs, **kwargs)
        if torch.is_grad_enabled():
            seen = [t for t in tensors_in(output) if t.requires_grad and not t.is_leaf]
            for tensor in seen:
                tensor.register_hook(self._saw_backward)
            self._forwards += bool(seen)
        return output

    def _saw_backward(self, _gradient: torch.Tensor) -> None:
        if self._last_pass == (number := current_graph_task()):  # one pass may complete several
            return
        self._last_pass = number
        if accumulates(unit.params[i] for unit in self.units for i in unit.trainable):
            self._backward_ran = True
            self._backwards += 1
        else:
            self._other_backward_ran = True

    # ---- Training ------------------------------------------------------------------------------

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale, for a backward() of your own under fp16."""
        self._scaled = True
        return loss.float() * self.loss_scaler.value if self.loss_scaler is not None else loss

    @timed("backward")
    def backward(
        self, loss: torch.Tensor, retain_graph: bool = False, scale_wrt_gas: bool = True
    ) -> torch.Tensor:
        """The backward pass of a micro-batch. Returns the loss divided by the accumulation steps.

        Args:
            scale_wrt_gas: True divides the gradients by the config's gradient_accumulation_steps.
                Pass False if the loss is already divided by the number of micro-batches. With
                managed_gradient_accumulation: false the caller chooses that number.

        Raises StateError if this micro-batch had its backward, ArgumentError for a loss that is no
        scalar. If the caller decides on the boundary (managed_gradient_accumulation: false,
        set_gradient_accumulation_boundary, no_sync), any number of backwards may follow each other.
        """
        self._require_alive("backward")
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise errors.argument("backward takes a scalar tensor, the loss", subject="loss")
        if self._backward_ran and self._managed() and not self._unsynced:
            raise errors.StateError(
                "backward ran already for this micro-batch",
                operation="backward",
                advice="Call engine.step() after each micro-batch (it updates only when the "
                "accumulation is complete), and add losses up before backward; or call "
                "engine.set_gradient_accumulation_boundary(True) before the step() that updates. "
                "After a backward that failed, call engine.zero_grad().",
            )
        steps = self.gradient_accumulation_steps()
        value = loss if scale_wrt_gas else loss * steps
        before = self._backwards
        with self._last_backward():
            self.scale(value).backward(retain_graph=retain_graph)
        self._backward_ran = True
        self._backwards = before + 1  # also where the model was called past the engine
        divided = loss.detach() / steps if scale_wrt_gas else loss.detach()
        self._events.add_loss(divided)
        return divided

    @timed("step")
    def step(self, lr_kwargs: dict[str, Any] | None = None) -> None:
        """Ends a micro-batch; at the last one of an accumulation, updates the params.

        A step whose gradients hold NaN or infinity changes nothing on any rank: under fp16, and
        bf16 with check_grad_overflow, it is skipped, and the learning rate stays.

        If no param has a gradient on any rank, params and states stay as they are, without weight
        decay. The step counts, as in DeepSpeed: `global_steps`, the scheduler, was_step_applied()
        is True, and get_global_grad_norm() is 0.

        Raises:
            StateError: no backward came before, or several calls of loss.backward() where each
                step() counts one micro-batch; or this is inside no_sync. Under fp16, on all ranks
                at the accumulation boundary: a rank did not scale the loss of a micro-batch; the
                gradients are dropped.
            NonFiniteError: NaN or infinity in other dtypes, or at the smallest loss scale.
        """
        self._require_alive("step")
        self._applied = False
        if self._unsynced:
            raise errors.StateError("step() inside no_sync()", advice="Leave no_sync() first.")
        boundary = self.is_gradient_accumulation_boundary()
        if boundary:
            self._require_sharded(self.units)
        self._require_backward()
        self._require_one_backward()
        self._note_scaling()
        if boundary or self.world_size == 1:
            self._require_scaled()
        try:
            if boundary:
                self._update(lr_kwargs)
        finally:
            self.micro_steps += 1
            self._accumulated = 0 if boundary else self._accumulated + 1
            if boundary:
                self._backwards = 0
                self._coalesced = False
                self._events.drop_loss()
            self._end_micro_batch()

    def _step_without_schedule(self) -> None:
        """An update for optimizer.step(), which moves no scheduler. Collective."""
        boundary, scheduler = self._boundary, self.lr_scheduler
        self._boundary, self.lr_scheduler = True, None
        try:
            self.step()
        finally:
            self._boundary, self.lr_scheduler = boundary, scheduler

    def _require_alive(self, operation: str) -> None:
        if self._destroyed:
            raise destroyed("this engine", operation, self._end)

    def _require_backward(self) -> None:
        if not self._had_backward():
            raise errors.StateError(
                "step without a backward",
                operation="step",
                advice="Call engine.backward(loss) first.",
            )

    def _require_one_backward(self) -> None:
        """StateError after several backward passes, if the engine counts micro-batches by steps."""
        passes = self._backwards - self._begun_after
        if self._coalesced:  # which the caller has said are several
            return
        if passes > 1 and self._managed() and self.gradient_accumulation_steps() > 1:
            raise errors.StateError(
                f"{passes} backward passes ran since the last step(), which counts one micro-batch "
                f"of the {self.gradient_accumulation_steps()} before an update",
                operation="step",
                advice="Call engine.step() after each micro-batch, and add losses of one up before "
                "backward; or call engine.set_gradient_accumulation_boundary(True) before the "
                "step() that updates. engine.zero_grad() drops the gradients.",
            )

    def _had_backward(self) -> bool:
        if self._forwards or self._backward_ran or self._other_backward_ran:
            return self._backward_ran or self._other_backward_ran
        reducer = self.sharding.reducer  # the model may have been called past the engine
        return any(reducer.has_any(unit) for unit in self.units) or any(
            unit.params[i].grad is not None for unit in self.units for i in unit.trainable
        )

    def _begin_again(self) -> None:
        """After a checkpoint was loaded: no micro-batch has begun."""
        self._accumulated = self._backwards = 0
        self._unscaled = False
        self._norm = None
        self._applied = False
        self._events.drop_loss()
        self._end_micro_batch()
        self._set_divisor()

    def _end_micro_batch(self) -> None:
        self._begun_after = self._backwards
        self._forwards = 0
        self._backward_ran = self._other_backward_ran = False
        self._scaled = False

    def _update(self, lr_kwargs: dict[str, Any] | None) -> None:
        if self.optimizer is None:
            raise errors.StateError(
                "this engine has no optimizer",
                advice="Pass one to initialize, or name one in the config.",
            )
        overflow = False
        samples = self._samples()
        self._norm = None  # not that of the step before, if this one fails
        self._stepping = True
        try:
            self._step_optimizer()
        except errors.NonFiniteError as error:
            self.zero_grad()
            self._norm = math.inf
            # A param too large for its dtype, which the error names, needs no other loss scale.
            if not self.config.check_overflow or error.subject:
                raise
            overflow = True
        finally:
            self._stepping = False
            self.optimizer.overflow = overflow  # type: ignore[attr-defined]
        self.global_steps += 1
        self.global_samples += samples
        if self.loss_scaler is not None:
            self.loss_scaler.update(overflow)
            self._set_divisor()
        self._applied = not overflow
        self.skipped_steps += overflow
        if self._applied and self.lr_scheduler is not None:
            self.lr_scheduler.step(**(lr_kwargs or {}))
        self._events.write_step(self)

    def _step_optimizer(self) -> None:
        """NonFiniteError, on all ranks, when nothing was changed."""
        optimizer = self.optimizer
        assert optimizer is not None
        if isinstance(optimizer, mt.EngineOptimizer):
            optimizer.step()
            self._norm = optimizer.grad_norm
            return
        reducer = self.sharding.reducer
        given = reducer.finish(self.units)
        held = optimizer._meron_shards.parts  # type: ignore[attr-defined]
        places = [
            (unit, i)
            for unit in given
            for i in unit.trainable
            if reducer.has_grad(unit, i) and i in held.get(unit, {})
        ]
        parts = [reducer.part(*place) for place in places]
        norm = global_norm(self.sharding, parts, 2.0) if places else 0.0
        if not math.isfinite(norm):
            raise errors.NonFiniteError(
                f"the norm of the gradients is {norm}: the step was not taken",
                operation="step",
                advice="Lower the learning rate, or clip gradients.",
            )
        limit = self.config.clipping
        if limit and norm > limit:
            for part in parts:
                part.mul_(limit / (norm + 1e-6))
        self._norm = norm
        optimizer.step()
        reducer.discard(self.units)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients since the last update. Collective. No effect after `destroy`, or if
        another engine has replaced this one: its gradients were dropped then."""
        if self._destroyed:
            return
        self.sharding.reducer.discard(self.units)
        self._backward_ran = self._other_backward_ran = False
        self._coalesced = self._unscaled = False
        self._backwards = self._begun_after = 0
        self._events.drop_loss()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within add up on this rank, at any stage; the next one reduces all.

        At the stages 2 and 3 torch adds them up, in the dtype of the params. Raises
        UnsupportedError where the config asks for a wider one (data_types.grad_accum_dtype).
        """
        if self._unsynced:
            raise errors.StateError("no_sync() within no_sync()")
        self._require_wide_sums()
        self._unsynced = True
        try:
            with mt.no_sync(self.module):
                yield
        finally:
            self._unsynced = False
            # `_unscaled` keeps its value until the step.
            self._begun_after = self._backwards
            self._forwards = 0
            self._backward_ran = False

    # ---- Other methods of DeepSpeed's engine ---------------------------------------------------

    def deepspeed_io(
        self,
        dataset: Any,
        batch_size: int | None = None,
        route: str = "train",
        pin_memory: bool = True,
        data_sampler: Any = None,
        collate_fn: Any = None,
        num_local_io_workers: int | None = None,
    ) -> DataLoader[Any]:
        """A loader of a dataset, whose samples are spread over the ranks. Local.

        Args:
            batch_size: default is the micro-batch size of the config.
            route: "train" shuffles; "eval" and "predict" keep the order.
            pin_memory: batches are in pinned memory if the model is on a GPU.
            data_sampler: default is a DistributedSampler. An IterableDataset spreads its own.
            collate_fn: default is that of initialize.
            num_local_io_workers: processes that load; default is none.

        Raises ArgumentError for another route, or what is no dataset.
        """
        return make_loader(
            self,
            dataset,
            route,
            batch_size=batch_size,
            sampler=data_sampler,
            collate_fn=self.collate_fn if collate_fn is None else collate_fn,
            pin_memory=pin_memory and self.device.type == "cuda",
            num_workers=num_local_io_workers or 0,
        )

    def save_fp16_model(
        self, save_dir: str | os.PathLike[str], save_filename: str = "pytorch_model.bin"
    ) -> bool:
        """The old name of save_16bit_model. Collective."""
        return self.save_16bit_model(save_dir, save_filename)

    def load_module_state_dict(
        self,
        checkpoint: Mapping[str, Any],
        strict: bool = True,
        custom_load_fn: Callable[..., Any] | None = None,
        fetch_z3_params: bool = False,
    ) -> None:
        """Loads the state dict `checkpoint["module"]` into the model. Collective.

        Args:
            strict: of `load_state_dict`.
            custom_load_fn: is called as custom_load_fn(src=STATE_DICT, dst=module) in its place.
            fetch_z3_params: without effect: values are written to the ranks that own them.

        Raises ArgumentError if there is no such entry, and the errors of `load_state_dict`.
        """
        self._require_alive("load_module_state_dict")
        if not isinstance(checkpoint, Mapping) or "module" not in checkpoint:
            raise errors.argument(
                "checkpoint has no entry 'module'",
                subject="checkpoint",
                advice='Pass {"module": STATE_DICT}, or call engine.module.load_state_dict.',
            )
        state = checkpoint["module"]
        if custom_load_fn is not None:
            custom_load_fn(src=state, dst=self.module)
        else:
            self.module.load_state_dict(state, strict=strict)

    def allreduce_gradients(self, bucket_size: int | None = None) -> None:
        """Nothing: gradients are reduced in the backward pass or in step(). `bucket_size` has no
        effect."""
        self._require_alive("allreduce_gradients")

    def collect_python_gc(self) -> int:
        """Runs Python's garbage collection. Returns the number of unreachable objects."""
        return gc.collect()

    # ---- The end -------------------------------------------------------------------------------

    def destroy(self) -> None:
        """Releases the model: it stays sharded, and another engine can take it. Collective."""
        if self._destroyed:
            return
        if self._owns:
            self.reload_states()
            self.zero_grad()
            self.sharding.drop()
        self._release_model()

    def _own(self) -> None:
        """Makes the model this engine's. Local."""
        own(self, self.units)
        self._set_divisor()

    def _release_model(self) -> None:
        """Removes the traces of this engine from its model, for the next engine. Local."""
        self._destroyed = True
        optimizer = self.optimizer
        if self._owns_optimizer and isinstance(optimizer, mt.EngineOptimizer):
            optimizer.release()  # a unit has one of these at a time
        if self._owns:
            disown(self, self.units)
            for unit in self.units:
                unit.gradients.divisor = 1.0

    def _give_way(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Another engine has the model now, and `optimizer` trains it. Blocks on peers if a step is
        under way, and on this rank's drive."""
        self._destroyed = True
        self._end = "was replaced: initialize made another engine of its model"
        last = self.optimizer
        if last is None or last is optimizer:
            return
        end = "was released: another engine has its params"
        if optimizer is not None:
            end = replaced_by(type(optimizer).__name__)
        if isinstance(last, mt.EngineOptimizer):
            last.wait_step()
            last.release(end)
        else:
            last._meron_shards.end_by(end)  # type: ignore[attr-defined]


def to_half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor
