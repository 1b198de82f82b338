// SPDX-License-Identifier: Apache-2.0
//! Update rules on this rank's shards.

use std::fmt;
use std::sync::Arc;

use meron_sys as sys;

use crate::borrow::{InUse, UnitState, Use};
use crate::call::{check, receive, sized};
use crate::context::{home_of, raw_units};
use crate::error::{Error, Result};
use crate::group::table;
use crate::home::{Open, Owned, Shared};
use crate::operation::Operation;
use crate::param::Param;
use crate::unit::Unit;
use crate::view::{View, ViewMut};

/// How AdamW (Loshchilov and Hutter, arXiv 1711.05101) updates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// 0 or more.
    pub learning_rate: f64,
    /// Decay of the first moment: 0 or more, below 1.
    pub beta1: f64,
    /// Decay of the second moment: 0 or more, below 1.
    pub beta2: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this global 2-norm; 0 does not clip.
    pub max_norm: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        let initial = sys::MERON_OPTIMIZER_OPTIONS_INIT;
        AdamW {
            learning_rate: initial.learning_rate,
            beta1: initial.beta1,
            beta2: initial.beta2,
            epsilon: initial.epsilon,
            weight_decay: initial.weight_decay,
            max_norm: initial.max_norm,
        }
    }
}

/// States and update rule for some units. Made by [`Context::adamw`](crate::Context::adamw).
pub struct Optimizer {
    handle: Owned<sys::meron_optimizer>,
    shared: Arc<Shared>,
    units: Vec<Arc<UnitState>>,
    last_step: Option<Operation>,
}

/// What is known about an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OptimizerInfo {
    /// Taken so far.
    pub steps: u64,
    /// Global 2-norm of the last step's gradients, before clipping.
    pub norm: f64,
    /// Of the next step.
    pub learning_rate: f64,
}

/// Which state of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// f32 values; the param itself where that is f32, and then read-only.
    Master,
    /// First moment.
    ExpAvg,
    /// Second moment.
    ExpAvgSq,
}

impl State {
    fn code(self) -> sys::meron_optimizer_state {
        match self {
            State::Master => sys::MERON_STATE_MASTER,
            State::ExpAvg => sys::MERON_STATE_EXP_AVG,
            State::ExpAvgSq => sys::MERON_STATE_EXP_AVG_SQ,
        }
    }
}

impl Optimizer {
    pub(crate) fn create(
        shared: &Arc<Shared>,
        units: &[&Unit],
        options: &AdamW,
    ) -> Result<Optimizer> {
        let shared = home_of(units).unwrap_or(shared);
        shared.require_open()?;
        let handles = raw_units(units);
        let options = sys::meron_optimizer_options {
            learning_rate: options.learning_rate,
            beta1: options.beta1,
            beta2: options.beta2,
            epsilon: options.epsilon,
            weight_decay: options.weight_decay,
            max_norm: options.max_norm,
            ..sys::MERON_OPTIMIZER_OPTIONS_INIT
        };
        // SAFETY: handles and options are only read, during the call.
        let handle = receive(sys::meron_optimizer::default(), |out, err| unsafe {
            sys::meron_optimizer_create(out, table(&handles), handles.len(), &options, err)
        })?;
        Ok(Optimizer {
            handle: Owned::new(handle),
            shared: shared.clone(),
            units: units.iter().map(|unit| unit.state().clone()).collect(),
            last_step: None,
        })
    }

    /// Sets the learning rate of the next steps; the same on all ranks (it is part of the step's
    /// fingerprint).
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for one below 0.
    pub fn set_learning_rate(&mut self, learning_rate: f64) -> Result<()> {
        self.shared.require_open()?;
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        check(|err| unsafe {
            sys::meron_optimizer_set_learning_rate(self.as_raw(), learning_rate, err)
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
    /// [`State`](crate::ErrorKind::State), which names the unit that is leased, in use or not reduced;
    /// [`NonFinite`](crate::ErrorKind::NonFinite) on all ranks when the norm is not finite: nothing was
    /// changed, and the gradients are discarded. Those of [`Operation::wait`].
    pub fn step(&mut self) -> Result<()> {
        self.step_begin()?.wait()
    }

    /// Begins a step, and returns at once.
    pub fn step_begin(&mut self) -> Result<Operation> {
        self.shared.require_open()?;
        // Nobody of this process looks at the sums when the step begins, and Unit::reduced refuses
        // until it has ended.
        let _in_use = InUse::begin_all(&self.units, Use::Gradient)?;
        // SAFETY: `out` is valid during the call.
        let handle = receive(sys::meron_future::default(), |out, err| unsafe {
            sys::meron_optimizer_step_begin(out, self.as_raw(), err)
        })?;
        let step = Operation::new(handle, &self.shared);
        for unit in &self.units {
            unit.set_step(&step);
        }
        self.last_step = Some(step.clone());
        Ok(step)
    }

    /// Steps taken, last norm and learning rate. Never blocks.
    pub fn info(&self) -> Result<OptimizerInfo> {
        self.shared.require_open()?;
        // SAFETY: `out` says its size, and is valid during the call.
        let raw = receive(sized!(meron_optimizer_info), |out, err| unsafe {
            sys::meron_optimizer_get_info(out, self.as_raw(), err)
        })?;
        Ok(OptimizerInfo { steps: raw.steps, norm: raw.norm, learning_rate: raw.learning_rate })
    }

    /// This rank's parts of the states, to read and write; for checkpoints.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) while a step is under way, or a unit is being updated on this
    /// rank.
    pub fn states(&mut self) -> Result<States<'_>> {
        let open = self.shared.open()?;
        let in_use = InUse::begin_all(&self.units, Use::ReadValues)?;
        if self.last_step.as_ref().map_or(false, Operation::is_under_way) {
            return Err(Error::state("", "a step is under way", "wait for the step"));
        }
        self.last_step = None;
        Ok(States { optimizer: self, _in_use: in_use, _open: open })
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_optimizer {
        self.handle.raw()
    }

    /// Lets go of the optimizer and its states, as dropping it does. A step under way keeps them until it
    /// has ended.
    pub fn release(self) -> Result<()> {
        self.handle.release()
    }
}

impl fmt::Debug for Optimizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Optimizer({} units)", self.units.len())
    }
}

/// This rank's parts of an optimizer's states. No step can be taken, and no unit of the optimizer be
/// updated on this rank, before it is dropped.
pub struct States<'o> {
    optimizer: &'o mut Optimizer,
    _in_use: Vec<InUse>,
    _open: Arc<Open>,
}

impl States<'_> {
    /// The part of a state of `param`, f32.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for a param that this optimizer does not train.
    pub fn view(&self, param: &Param, state: State) -> Result<View<'_>> {
        // SAFETY: no step can begin (the optimizer is borrowed), none is under way, and where the state is
        // the param itself `_in_use` keeps updates away; writing takes `&mut self`; `_open` keeps the
        // mapping.
        unsafe { View::new(self.part(param, state)?) }
    }

    /// The same to write. [`State`](crate::ErrorKind::State) besides for a master that is the param
    /// itself: write that through an update.
    pub fn view_mut(&mut self, param: &Param, state: State) -> Result<ViewMut<'_>> {
        // SAFETY: as in `view`; the borrow is exclusive.
        unsafe { ViewMut::new(self.part(param, state)?) }
    }

    fn part(&self, param: &Param, state: State) -> Result<sys::meron_view> {
        // SAFETY: `out` is valid during the call; zero is a value of a view.
        unsafe {
            receive(std::mem::zeroed(), |out, err| {
                let optimizer = self.optimizer.as_raw();
                sys::meron_optimizer_state_view(out, optimizer, param.as_raw(), state.code(), err)
            })
        }
    }
}
