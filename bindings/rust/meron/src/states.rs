// SPDX-License-Identifier: Apache-2.0
//! An optimizer's states as slices.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use meron_sys as sys;

use crate::borrow::{InUse, StateUse, StatesInUse, Use};
use crate::call::receive;
use crate::copied::is_copied;
use crate::error::{Error, Result};
use crate::handle::Owned;
use crate::home::Open;
use crate::optimizer::Optimizer;
use crate::param::Param;
use crate::values::State;
use crate::view::{View, ViewMut};

/// This rank's parts of an optimizer's states, to read and write. Before it is dropped, no step can
/// be taken, no unit of the optimizer be updated on this rank, and nothing be exported or loaded.
///
/// ```
/// # let context = meron::Context::open()?;
/// # let weight = context.param("weight", &[4])?;
/// # let unit = context.unit("layer", &[&weight])?;
/// # let mut optimizer = context.adamw(&[&unit], &Default::default())?;
/// use meron::State;
///
/// let mut states = optimizer.states()?;
/// let mut average = states.view_mut(&weight, State::ExpAvg)?;
/// average.as_mut_slice::<f32>()?.fill(0.0);
/// # Ok::<(), meron::Error>(())
/// ```
///
/// The optimizer is borrowed meanwhile:
///
/// ```compile_fail,E0499
/// # let context = meron::Context::open()?;
/// # let weight = context.param("weight", &[4])?;
/// # let unit = context.unit("layer", &[&weight])?;
/// # let mut optimizer = context.adamw(&[&unit], &Default::default())?;
/// let states = optimizer.states()?;
/// optimizer.step()?; // error: `optimizer` is mutably borrowed by `states`
/// drop(states);
/// # Ok::<(), meron::Error>(())
/// ```
pub struct States<'o> {
    shown: Shown,
    optimizer: PhantomData<&'o mut Optimizer>,
}

/// [`States`] that do not borrow the optimizer: they may be kept beside it, and sent to other
/// threads. While they are alive, calls of the optimizer that need its states are errors of kind
/// [`State`](crate::ErrorKind::State), where the compiler refuses those beside [`States`].
pub struct OwnedStates {
    shown: Shown,
    _counted: Counted,
}

/// The states of an optimizer in use.
struct Shown {
    optimizer: Arc<Owned<sys::meron_optimizer>>,
    _in_use: Vec<InUse>,
    _states: StatesInUse,
    _open: Arc<Open>,
}

/// One of the `OwnedStates` of an optimizer.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::AcqRel);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shown {
    fn begin(optimizer: &mut Optimizer) -> Result<Shown> {
        let open = optimizer.shared().open()?;
        optimizer.require_hidden()?;
        let states = StatesInUse::begin(&optimizer.shared().state_uses, StateUse::Shown)?;
        let in_use = InUse::begin_all(optimizer.units(), Use::ReadValues)?;
        optimizer.require_no_step()?;
        if !is_copied(open.handle())? {
            return Err(Error::state("", "a save copies the states", "call Context::wait_copied"));
        }
        let optimizer = optimizer.handle().clone();
        Ok(Shown { optimizer, _in_use: in_use, _states: states, _open: open })
    }

    fn view(&self, param: &Param, state: State) -> Result<View<'_>> {
        // SAFETY: no step can begin (the optimizer is borrowed, or asks `require_hidden`), none is
        // under way, and where the state is the param itself `_in_use` keeps updates away; writing
        // takes `&mut self`; `_open` keeps the mapping.
        unsafe { View::new(self.part(param, state)?, param) }
    }

    fn view_mut(&mut self, param: &Param, state: State) -> Result<ViewMut<'_>> {
        // SAFETY: as in `view`; the borrow is exclusive.
        unsafe { ViewMut::new(self.part(param, state)?, param) }
    }

    fn part(&self, param: &Param, state: State) -> Result<sys::meron_view> {
        // SAFETY: `out` is valid during the call; zero is a value of a view.
        unsafe {
            receive(std::mem::zeroed(), |out, err| {
                let optimizer = self.optimizer.raw();
                sys::meron_optimizer_state_view(out, optimizer, param.as_raw(), state.code(), err)
            })
        }
    }
}

impl States<'_> {
    /// The part of a state of `param`, f32.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for a param that this optimizer does not train, or a state
    /// that its rule does not keep; [`Unsupported`](crate::ErrorKind::Unsupported) if the state is
    /// on nvme, or in 16 or 8 bits: use [`Optimizer::read_state`].
    pub fn view(&self, param: &Param, state: State) -> Result<View<'_>> {
        self.shown.view(param, state)
    }

    /// The same to write. [`State`](crate::ErrorKind::State) besides for a master that is the param
    /// itself: write that through an update.
    pub fn view_mut(&mut self, param: &Param, state: State) -> Result<ViewMut<'_>> {
        self.shown.view_mut(param, state)
    }
}

impl OwnedStates {
    /// The part of a state of `param`, f32. Errors as [`States::view`].
    pub fn view(&self, param: &Param, state: State) -> Result<View<'_>> {
        self.shown.view(param, state)
    }

    /// The same to write. Errors as [`States::view_mut`].
    pub fn view_mut(&mut self, param: &Param, state: State) -> Result<ViewMut<'_>> {
        self.shown.view_mut(param, state)
    }
}

impl Optimizer {
    /// This rank's parts of the states, to read and write; for checkpoints. Never blocks.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) while a step is under way, a unit is being updated on this
    /// rank, a save still copies ([`Context::wait_copied`](crate::Context::wait_copied)), another
    /// thread exports or loads, or [`states_owned`](Optimizer::states_owned) are alive.
    pub fn states(&mut self) -> Result<States<'_>> {
        Ok(States { shown: Shown::begin(self)?, optimizer: PhantomData })
    }

    /// The same without a borrow of the optimizer. Never blocks; errors as
    /// [`states`](Optimizer::states).
    ///
    /// ```
    /// # let context = meron::Context::open()?;
    /// # let weight = context.param("weight", &[4])?;
    /// # let unit = context.unit("layer", &[&weight])?;
    /// # let mut optimizer = context.adamw(&[&unit], &Default::default())?;
    /// let states = optimizer.states_owned()?;
    /// let written = std::thread::spawn(move || {
    ///     states.view(&weight, meron::State::ExpAvg).map(|view| view.to_f32())
    /// });
    /// assert_eq!(written.join().unwrap()?, [0.0; 4]);
    /// # Ok::<(), meron::Error>(())
    /// ```
    pub fn states_owned(&mut self) -> Result<OwnedStates> {
        let shown = Shown::begin(self)?;
        Ok(OwnedStates { shown, _counted: Counted::new(self.shown()) })
    }
}

impl fmt::Debug for States<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "States({} units)", self.shown._in_use.len())
    }
}

impl fmt::Debug for OwnedStates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OwnedStates({} units)", self.shown._in_use.len())
    }
}
