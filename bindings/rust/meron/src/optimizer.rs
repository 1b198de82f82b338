// SPDX-License-Identifier: Apache-2.0
//! The optimizers that step on this rank's shards.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use meron_sys as sys;

use crate::borrow::{InUse, StateUse, StatesInUse, UnitState, Use};
use crate::call::{c_string, check, receive, sized};
use crate::error::{Error, Result};
use crate::group::table;
use crate::handle::Owned;
use crate::home::{ForCall, Shared};
use crate::operation::{begin, Operation};
use crate::param::Param;
use crate::unit::{home_of, raw_units, Unit};
use crate::values::{OptimizerGroup, OptimizerInfo, State};

/// States and update rule for some units. Made by [`Context::adamw`](crate::Context::adamw),
/// [`adam`](crate::Context::adam), [`adagrad`](crate::Context::adagrad), [`lion`](crate::Context::lion)
/// and [`sgd`](crate::Context::sgd). Params are in groups: at first all in group 0, whose numbers the
/// rule has.
///
/// ```
/// use meron::{AdamW, Context, OptimizerGroup, State};
///
/// let context = Context::options().rank(0).world_size(1).open()?;
/// let weight = context.param("weight", &[16, 16])?;
/// let bias = context.param("bias", &[16])?;
/// let layer = context.unit("layer", &[&weight, &bias])?;
///
/// let mut optimizer = context.adamw(&[&layer], &AdamW::default())?;
/// let group = optimizer.group(0)?.weight_decay(0.0);
/// assert_eq!(optimizer.add_group(&[&bias], &group)?, 1);
/// assert_eq!(optimizer.group(1)?.weight_decay, 0.0);
///
/// optimizer.write_state(&bias, State::ExpAvg, &[0.5; 16])?;
/// assert_eq!(optimizer.read_state(&bias, State::ExpAvg)?, [0.5; 16]);
/// # Ok::<(), meron::Error>(())
/// ```
pub struct Optimizer {
    handle: Arc<Owned<sys::meron_optimizer>>,
    shared: Arc<Shared>,
    units: Vec<Arc<UnitState>>,
    last_step: Option<Operation>,
    /// The number of its `OwnedStates`.
    shown: Arc<AtomicUsize>,
}

impl ForCall for Optimizer {
    type Raw = sys::meron_optimizer;

    fn for_call(&self) -> Result<sys::meron_optimizer> {
        self.shared().require_open()?;
        Ok(self.as_raw())
    }
}

impl Optimizer {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn handle(&self) -> &Arc<Owned<sys::meron_optimizer>> {
        &self.handle
    }

    pub(crate) fn units(&self) -> &[Arc<UnitState>] {
        &self.units
    }

    pub(crate) fn shown(&self) -> &Arc<AtomicUsize> {
        &self.shown
    }

    /// An error while [`OwnedStates`](crate::OwnedStates) of it are alive: its states are then
    /// neither written, moved nor read.
    pub(crate) fn require_hidden(&self) -> Result<()> {
        match self.shown.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Error::state(
                "",
                "states of the optimizer are shown",
                "drop what Optimizer::states_owned gave",
            )),
        }
    }

    /// An error while a step of it is under way.
    pub(crate) fn require_no_step(&mut self) -> Result<()> {
        if self.last_step.as_ref().map_or(false, |step| step.future().is_under_way()) {
            return Err(Error::state("", "a step is under way", "wait for the step"));
        }
        self.last_step = None;
        Ok(())
    }

    pub(crate) fn create(
        shared: &Arc<Shared>,
        units: &[&Unit],
        options: &sys::meron_optimizer_options,
    ) -> Result<Optimizer> {
        let shared = home_of(units).unwrap_or(shared);
        shared.require_open()?;
        let handles = raw_units(units);
        // SAFETY: handles and options are only read, during the call.
        let handle = receive(sys::meron_optimizer::default(), |out, err| unsafe {
            sys::meron_optimizer_create(out, table(&handles), handles.len(), options, err)
        })?;
        Ok(Optimizer {
            handle: Arc::new(Owned::new(handle)),
            shared: shared.clone(),
            units: units.iter().map(|unit| unit.state().clone()).collect(),
            last_step: None,
            shown: Arc::default(),
        })
    }

    /// Takes a step: global gradient norm (exact, so equal for every number of ranks), clipping, update
    /// of this rank's parts, publication of the next version. Needs the reduced gradient of every unit,
    /// and no lease on any of them on this rank. Collective over the units' group.
    ///
    /// Blocks as [`Operation::wait`].
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State), which names the unit that is leased, in use or not reduced,
    /// or while [`states_owned`](Optimizer::states_owned) are alive;
    /// [`NonFinite`](crate::ErrorKind::NonFinite) on all ranks when the norm is not finite: nothing was
    /// changed, and the gradients are discarded. Those of [`Operation::wait`].
    pub fn step(&mut self) -> Result<()> {
        self.step_begin()?.wait()
    }

    /// Begins a step, and returns at once.
    pub fn step_begin(&mut self) -> Result<Operation> {
        self.shared.require_open()?;
        self.require_hidden()?;
        // No code of this process reads the sums when the step begins, and Unit::reduced fails
        // until it has ended.
        let _in_use = InUse::begin_all(&self.units, Use::Gradient)?;
        // SAFETY: `out` is valid during the call.
        let step = begin(&self.shared, |out, err| unsafe {
            sys::meron_optimizer_step_begin(out, self.as_raw(), err)
        })?;
        for unit in &self.units {
            unit.set_step(step.future());
        }
        self.last_step = Some(step.clone());
        Ok(step)
    }

    /// Steps taken, last norm, learning rate, and what is kept. Never blocks.
    pub fn info(&self) -> Result<OptimizerInfo> {
        self.shared.require_open()?;
        // SAFETY: `out` says its size, and is valid during the call.
        let raw = receive(sized!(meron_optimizer_info), |out, err| unsafe {
            sys::meron_optimizer_get_info(out, self.as_raw(), err)
        })?;
        Ok(OptimizerInfo::of(&raw))
    }

    /// Gives some params numbers of their own, for example no weight decay; gives the group's number, 1,
    /// 2, ... All ranks must do the same before the next step. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (a value out of range, a param that this optimizer does not
    /// train), [`Duplicate`](crate::ErrorKind::Duplicate) (a param is in another group than 0),
    /// [`State`](crate::ErrorKind::State) (a step is pending).
    pub fn add_group(&mut self, params: &[&Param], group: &OptimizerGroup) -> Result<u32> {
        self.shared.require_open()?;
        let handles: Vec<sys::meron_param> = params.iter().map(|param| param.as_raw()).collect();
        let (first, count, group) = (table(&handles), handles.len(), group.raw());
        // SAFETY: handles and group are only read, during the call.
        receive(0, |out, err| unsafe {
            sys::meron_optimizer_add_group(out, self.as_raw(), first, count, &group, err)
        })
    }

    /// The numbers of a group: 0, or one that [`add_group`](Optimizer::add_group) gave. Never
    /// blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for another number.
    pub fn group(&self, number: u32) -> Result<OptimizerGroup> {
        self.shared.require_open()?;
        // SAFETY: `out` says its size, and is valid during the call.
        let raw = receive(sized!(meron_optimizer_group), |out, err| unsafe {
            sys::meron_optimizer_get_group(out, self.as_raw(), number, err)
        })?;
        Ok(OptimizerGroup::of(&raw))
    }

    /// Sets the numbers of a group for the next steps; the same on all ranks. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (a value out of range, no such group).
    pub fn set_group(&mut self, number: u32, group: &OptimizerGroup) -> Result<()> {
        self.shared.require_open()?;
        let group = group.raw();
        // SAFETY: `group` is only read, during the call.
        check(|err| unsafe { sys::meron_optimizer_set_group(self.as_raw(), number, &group, err) })
    }

    /// Makes the next steps skip some params: their values, states and counts of steps stay as they are,
    /// like those of a torch.optim param whose gradient is None. Replaces the params of the call before; an
    /// empty slice: no param is skipped. All ranks give the same params before the next step. Gradients of
    /// skipped params still count in the norm. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (a param that this optimizer does not train),
    /// [`State`](crate::ErrorKind::State) (a step is under way).
    pub fn skip(&mut self, params: &[&Param]) -> Result<()> {
        self.shared.require_open()?;
        let handles: Vec<sys::meron_param> = params.iter().map(|param| param.as_raw()).collect();
        let (first, count) = (table(&handles), handles.len());
        // SAFETY: the handles are only read, during the call.
        check(|err| unsafe { sys::meron_optimizer_set_skipped(self.as_raw(), first, count, err) })
    }

    /// The number of steps that a param has taken: those of the optimizer, without the steps that
    /// [skipped](Optimizer::skip) it. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for a param that this optimizer does not train.
    pub fn param_steps(&self, param: &Param) -> Result<u64> {
        self.shared.require_open()?;
        // SAFETY: `out` is valid during the call.
        receive(0, |out, err| unsafe {
            sys::meron_optimizer_param_steps(out, self.as_raw(), param.as_raw(), err)
        })
    }

    /// Sets the number of steps that one param has taken, the same on all ranks: for states that begin
    /// anew (0, beside [`write_state`](Optimizer::write_state) of zeros) or come from elsewhere.
    /// [`set_steps`](Optimizer::set_steps) resets it. Never blocks.
    ///
    /// `steps`: at most 2^53.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (a larger number, a param that this optimizer does not
    /// train), [`State`](crate::ErrorKind::State) (a step is under way).
    pub fn set_param_steps(&mut self, param: &Param, steps: u64) -> Result<()> {
        self.shared.require_open()?;
        // SAFETY: the handles are checked by the call.
        check(|err| unsafe {
            sys::meron_optimizer_set_param_steps(self.as_raw(), param.as_raw(), steps, err)
        })
    }

    /// A copy of this rank's shard of a state of `param`, from any tier and dtype: the elements of
    /// [`shard_range`](Param::shard_range).
    ///
    /// Blocks on this rank's drive if states are on nvme.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (a param that this optimizer does not train, a state that
    /// the rule does not keep), [`State`](crate::ErrorKind::State) (a step is under way, or a unit is being
    /// updated on this rank), [`Io`](crate::ErrorKind::Io), [`Corrupt`](crate::ErrorKind::Corrupt).
    pub fn read_state(&self, param: &Param, state: State) -> Result<Vec<f32>> {
        let _open = self.shared.open()?;
        self.require_hidden()?;
        // The master of f32 is the param itself, which an update writes.
        let _in_use = InUse::begin_all(&self.units, Use::ReadValues)?;
        let shard_range = param.shard_range()?;
        let mut values = vec![0.0; (shard_range.end - shard_range.start) as usize];
        // SAFETY: `count` elements may be written, during the call.
        check(|err| unsafe {
            let (first, count) = (values.as_mut_ptr(), values.len() as u64);
            let (optimizer, param) = (self.as_raw(), param.as_raw());
            sys::meron_optimizer_read_state(first, count, optimizer, param, state.code(), err)
        })?;
        Ok(values)
    }

    /// Replaces this rank's part of a state of `param`; states of 16 or 8 bits are rounded to nearest.
    ///
    /// Blocks as [`read_state`](Optimizer::read_state).
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) besides for another number of values than this rank owns,
    /// and for a master that is the param itself: write that through an update.
    /// [`State`](crate::ErrorKind::State) besides while another thread exports or loads. Else as
    /// [`read_state`](Optimizer::read_state).
    pub fn write_state(&mut self, param: &Param, state: State, values: &[f32]) -> Result<()> {
        let _open = self.shared.open()?;
        self.require_hidden()?;
        let _written = StatesInUse::begin(&self.shared.state_uses, StateUse::Shown)?;
        // SAFETY: `count` elements are read, during the call, and copied to states without views.
        check(|err| unsafe {
            let (first, count) = (values.as_ptr(), values.len() as u64);
            let (optimizer, param) = (self.as_raw(), param.as_raw());
            sys::meron_optimizer_write_state(optimizer, param, state.code(), first, count, err)
        })
    }

    /// Moves this rank's states from memory to its file on a drive, and gives their memory back, for a
    /// phase that needs it for something else, as DeepSpeed's `offload_states` does. Params can be
    /// gathered meanwhile; [`reload`](Optimizer::reload) before the next step.
    ///
    /// `folder`: on a drive; `None` for the plan's, or where this rank's file is already. Blocks on this
    /// rank's drive.
    ///
    /// # Errors
    ///
    /// After one they are where they were. [`Argument`](crate::ErrorKind::Argument) (no folder, one that
    /// will not do), [`State`](crate::ErrorKind::State) (a step is under way, they are offloaded),
    /// [`NoSpace`](crate::ErrorKind::NoSpace), [`Io`](crate::ErrorKind::Io).
    pub fn offload(&mut self, folder: Option<&str>) -> Result<()> {
        let _open = self.shared.open()?;
        self.require_hidden()?;
        let folder = folder.map(|text| c_string(text, "the folder")).transpose()?;
        let path = folder.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        // SAFETY: the text lives during the call. No view of a state is left.
        check(|err| unsafe { sys::meron_optimizer_offload(self.as_raw(), path, err) })
    }

    /// Restores the states that [`offload`](Optimizer::offload) moved, bit for bit. Blocks on this
    /// rank's drive.
    ///
    /// # Errors
    ///
    /// After one they are offloaded still. [`State`](crate::ErrorKind::State) (they are not offloaded),
    /// [`NoMemory`](crate::ErrorKind::NoMemory), [`Io`](crate::ErrorKind::Io),
    /// [`Corrupt`](crate::ErrorKind::Corrupt).
    pub fn reload(&mut self) -> Result<()> {
        let _open = self.shared.open()?;
        self.require_hidden()?;
        // SAFETY: the handle is the optimizer's own.
        check(|err| unsafe { sys::meron_optimizer_reload(self.as_raw(), err) })
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_optimizer {
        self.handle.raw()
    }

    /// Releases the optimizer and its states, as dropping it does. A step under way keeps them until it
    /// has ended, and [`OwnedStates`](crate::OwnedStates) as long as they live.
    pub fn release(self) -> Result<()> {
        Arc::try_unwrap(self.handle).map_or(Ok(()), Owned::release)
    }
}

impl fmt::Debug for Optimizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Optimizer({} units)", self.units.len())
    }
}
