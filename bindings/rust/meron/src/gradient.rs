// SPDX-License-Identifier: Apache-2.0
//! Gradients on their way to their owners.

use std::fmt;
use std::sync::Arc;

use meron_sys as sys;

use crate::borrow::{InUse, Use};
use crate::call::receive;
use crate::dlpack::DlpackTensor;
use crate::error::{Error, Result};
use crate::home::Open;
use crate::operation::Operation;
use crate::param::Param;
use crate::unit::Unit;
use crate::values::ReduceOptions;
use crate::view::ViewMut;

/// A unit's gradients to add to, where peers read them.
///
/// At the start of an accumulation they are zero; under a plan that keeps full gradients they hold
/// the sum of the micro-batches so far. Dropping it without [`reduce`](Gradients::reduce) keeps the
/// written values. It owns its part in the unit: it may be kept, and sent to other threads.
///
/// Views live no longer than the gradients, which reducing consumes:
///
/// ```compile_fail,E0505
/// # let context = meron::Context::open()?;
/// # let table = context.param("table", &[8])?;
/// # let unit = context.unit("table", &[&table])?;
/// let mut gradients = unit.gradients()?;
/// let mut place = gradients.view(&table)?;
/// gradients.reduce(&Default::default())?; // error: borrowed by `place`
/// place.as_mut_slice::<f32>()?[0] = 1.0;
/// # Ok::<(), meron::Error>(())
/// ```
pub struct Gradients {
    unit: Unit,
    _in_use: InUse,
    _open: Arc<Open>,
}

impl Gradients {
    fn begin(unit: &Unit) -> Result<Gradients> {
        let open = unit.shared().open()?;
        let in_use = InUse::begin(unit.state(), Use::Gradient)?;
        Ok(Gradients { unit: unit.share(), _in_use: in_use, _open: open })
    }

    /// The place for the whole gradient of a param, in the plan's gradient dtype: to be added to. By
    /// default full gradients of a 16-bit param are f32 from the second micro-batch on.
    ///
    /// Blocks on peers that still read the last contents, at most until the deadline.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when the param is frozen, or its gradient is reduced and not
    /// used; [`Argument`](crate::ErrorKind::Argument) when it is not in the unit.
    pub fn view(&mut self, param: &Param) -> Result<ViewMut<'_>> {
        self.place(param, 0)
    }

    /// The same, for a caller that writes every element: the first call for the unit in a micro-batch
    /// skips the zeroing, and what was there before shows until it is written.
    pub fn view_to_overwrite(&mut self, param: &Param) -> Result<ViewMut<'_>> {
        self.place(param, u64::from(sys::MERON_GRADIENT_OVERWRITE))
    }

    /// The places of several params at once. Errors as [`view`](Gradients::view);
    /// [`Duplicate`](crate::ErrorKind::Duplicate) for a param that is given twice.
    pub fn views(&mut self, params: &[&Param]) -> Result<Vec<ViewMut<'_>>> {
        require_distinct(params)?;
        params.iter().map(|param| self.place(param, 0)).collect()
    }

    /// The callers borrow `self` mutably for as long as the view lives, and ask once per param.
    fn place<'a>(&self, param: &Param, flags: u64) -> Result<ViewMut<'a>> {
        self.unit.state().require(param.as_raw().id, param.name())?;
        // SAFETY: `_in_use` keeps others of this process from this unit's bucket, the library keeps peers
        // from reading it until it is reduced, and `_open` keeps the mapping.
        unsafe {
            let raw = receive(std::mem::zeroed(), |out, err| {
                sys::meron_gradient_view(out, param.as_raw(), flags, err)
            })?;
            ViewMut::new(raw, param)
        }
    }

    /// Reduces the unit's gradients of one micro-batch: begins as
    /// [`reduce_begin`](Gradients::reduce_begin) does, and waits for the end. Collective over the unit's
    /// group.
    ///
    /// Blocks on peers, at most until the deadline. If `should_stop` ends the wait, the reduction
    /// continues, and [`Context::wait_reductions`](crate::Context::wait_reductions) waits for it again.
    ///
    /// # Errors
    ///
    /// Those of [`reduce_begin`](Gradients::reduce_begin) and [`Operation::wait`].
    pub fn reduce(self, options: &ReduceOptions) -> Result<()> {
        self.reduce_begin(options)?.wait()
    }

    /// Begins the reduction of the unit's gradients of one micro-batch. Collective over the unit's group.
    /// The operation must have ended before the result is used. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for a divisor that is not above 0,
    /// [`State`](crate::ErrorKind::State) when all params are frozen; errors of the group. Written
    /// values stay, and [`Unit::gradients`](Unit::gradients) returns them again.
    pub fn reduce_begin(self, options: &ReduceOptions) -> Result<Operation> {
        self.unit.begin_reduction(&[], options)
    }
}

/// The reduced gradients of the parts that this rank updates, f32, to read and write.
///
/// Dropping it keeps them, for [`Optimizer::step`](crate::Optimizer::step) or a later look. It owns
/// its part in the unit, as [`Gradients`] does.
pub struct Reduced {
    unit: Unit,
    in_use: Arc<InUse>,
    open: Arc<Open>,
}

impl Reduced {
    fn begin(unit: &Unit) -> Result<Reduced> {
        let open = unit.shared().open()?;
        let in_use = InUse::begin(unit.state(), Use::Gradient)?;
        unit.state().require_no_step()?;
        Ok(Reduced { unit: unit.share(), in_use: Arc::new(in_use), open })
    }

    /// The part of a param's reduced gradient.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when no reduction at a boundary has ended;
    /// [`Argument`](crate::ErrorKind::Argument) when the param is not in the unit.
    pub fn view(&mut self, param: &Param) -> Result<ViewMut<'_>> {
        self.part(param)
    }

    /// The parts of several params at once. Errors as [`view`](Reduced::view);
    /// [`Duplicate`](crate::ErrorKind::Duplicate) for a param that is given twice.
    pub fn views(&mut self, params: &[&Param]) -> Result<Vec<ViewMut<'_>>> {
        require_distinct(params)?;
        params.iter().map(|param| self.part(param)).collect()
    }

    /// As Gradients::place.
    fn part<'a>(&self, param: &Param) -> Result<ViewMut<'a>> {
        self.unit.state().require(param.as_raw().id, param.name())?;
        // SAFETY: `in_use` keeps this process from beginning another gradient, a step or a discard; peers
        // never touch these sums; `open` keeps the mapping.
        unsafe {
            let raw = receive(std::mem::zeroed(), |out, err| {
                sys::meron_reduced_view(out, param.as_raw(), err)
            })?;
            ViewMut::new(raw, param)
        }
    }

    /// The parts of several params as DLPack tensors of one dimension, writable, for other libraries. The
    /// unit's gradient stays in use until all of them were deleted. Errors as [`views`](Reduced::views).
    pub fn into_dlpack(self, params: &[&Param]) -> Result<Vec<DlpackTensor>> {
        require_distinct(params)?;
        let lend = |param: &&Param| {
            self.unit.state().require(param.as_raw().id, param.name())?;
            // SAFETY: `out` is valid during the call, and what it receives is ours. As in `part`: the tensor
            // has `in_use` and `open`.
            unsafe {
                let raw = receive(std::ptr::null_mut(), |out, err| {
                    sys::meron_reduced_dlpack(out, param.as_raw(), err)
                })?;
                DlpackTensor::of_context(raw, self.open.clone(), Some(self.in_use.clone()))
            }
        };
        params.iter().map(lend).collect()
    }

    /// Declares them as used by an optimizer of your own.
    pub fn consume(self) -> Result<()> {
        self.unit.consume()
    }

    /// Throws them away, with the codec's feedback.
    pub fn discard(self) -> Result<()> {
        self.unit.discard()
    }
}

impl fmt::Debug for Gradients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Gradients({:?})", self.unit.name())
    }
}

impl fmt::Debug for Reduced {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Reduced({:?})", self.unit.name())
    }
}

impl Unit {
    /// The unit's gradients to add to, where peers read them: nothing is copied.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when they are in use already: the guard of an earlier call,
    /// or of [`reduced`](Unit::reduced), is alive.
    pub fn gradients(&self) -> Result<Gradients> {
        Gradients::begin(self)
    }

    /// The reduced gradients of the parts that this rank updates, for an optimizer of the program's own.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when they are in use already, or an optimizer's step uses
    /// them.
    pub fn reduced(&self) -> Result<Reduced> {
        Reduced::begin(self)
    }
}

fn require_distinct(params: &[&Param]) -> Result<()> {
    for (i, param) in params.iter().enumerate() {
        if params[..i].iter().any(|other| other.as_raw() == param.as_raw()) {
            let what = format!("param '{}' is asked for twice", param.name());
            return Err(Error::new(
                sys::MERON_E_DUPLICATE,
                param.name(),
                &what,
                "ask once: two views would be of the same memory",
            ));
        }
    }
    Ok(())
}
