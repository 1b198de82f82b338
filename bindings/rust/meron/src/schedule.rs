// SPDX-License-Identifier: Apache-2.0
//! The order in which a trainer uses its units, recorded and replayed.

use std::fmt;
use std::future::Future;
use std::os::raw::c_void;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use meron_sys as sys;

use crate::borrow::UnitState;
use crate::call::{call, check, nanoseconds, receive, sized, NO_TIMEOUT};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::group::table;
use crate::handle::Owned;
use crate::home::{ForCall, Open, Shared};
use crate::operation::poll_state;
use crate::param::Param;
use crate::unit::{home_of, raw_units, Unit};
use crate::values::{ScheduleInfo, ScheduleOptions};
use crate::view::View;
use crate::wake::Backoff;

/// Shared state of a schedule and the uses of its units. The handle is released with the last of
/// them.
struct Inner {
    handle: Owned<sys::meron_schedule>,
    shared: Arc<Shared>,
    units: Vec<Arc<UnitState>>,
}

impl Inner {
    fn raw(&self) -> sys::meron_schedule {
        self.handle.raw()
    }

    fn enter(self: &Arc<Inner>, index: usize, timeout: i64) -> Result<Option<Entered>> {
        let open = self.shared.open()?;
        // SAFETY: a call with a handle by value; the closures that it calls live as long as `open`.
        let entered =
            call(|err| unsafe { sys::meron_schedule_enter(self.raw(), index, timeout, err) })?;
        Ok(entered.then(|| Entered { inner: self.clone(), index, left: false, _open: open }))
    }
}

/// Units, the recorded orders of their uses, and the leases that follow from these. Made by
/// [`Context::schedule`](crate::Context::schedule).
///
/// A pass (the forward, and backward if there is one, of a micro-batch) records the order of the uses; the
/// next pass of its kind follows it: gathers are prefetched, and units that are used again soon
/// stay full. The calls alone determine the gathers, so ranks that make the same calls stay in
/// step.
///
/// ```
/// # let context = meron::Context::open()?;
/// # let table = context.param("table", &[8])?;
/// # let unit = context.unit("table", &[&table])?;
/// let schedule = context.schedule(&[&unit], &Default::default())?;
/// schedule.start_pass(0)?;
/// let table_now = schedule.enter(0)?; // whole, until it is dropped
/// assert_eq!(table_now.view(&table)?.as_slice::<f32>()?.len(), 8);
/// drop(table_now);
/// schedule.drop_all()?; // before an optimizer's step
/// # Ok::<(), meron::Error>(())
/// ```
pub struct Schedule(Arc<Inner>);

impl ForCall for Schedule {
    type Raw = sys::meron_schedule;

    fn for_call(&self) -> Result<sys::meron_schedule> {
        self.shared().require_open()?;
        Ok(self.as_raw())
    }
}

impl Schedule {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn create(
        shared: &Arc<Shared>,
        units: &[&Unit],
        options: &ScheduleOptions,
    ) -> Result<Schedule> {
        let shared = home_of(units).unwrap_or(shared);
        shared.require_open()?;
        let handles = raw_units(units);
        let options = options.raw();
        // SAFETY: handles and options are only read, during the call.
        let handle = receive(sys::meron_schedule::default(), |out, err| unsafe {
            sys::meron_schedule_create(out, table(&handles), handles.len(), &options, err)
        })?;
        Ok(Schedule(Arc::new(Inner {
            handle: Owned::new(handle),
            shared: shared.clone(),
            units: units.iter().map(|unit| unit.state().clone()).collect(),
        })))
    }

    /// Starts a pass; each kind, 0 to 15, has a recorded order of its own. Never blocks.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) names the units that are entered.
    pub fn start_pass(&self, kind: u32) -> Result<()> {
        self.0.shared.require_open()?;
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        check(|err| unsafe { sys::meron_schedule_start_pass(self.as_raw(), kind, err) })
    }

    /// Enters the unit at this place of those that the schedule was made of: it is full until what is
    /// returned is dropped. Collective over the units' group where it is not full already.
    ///
    /// Blocks on peers, at most until the deadline.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when the unit, or one that is begun ahead, is being updated on
    /// this rank; [`Argument`](crate::ErrorKind::Argument) beyond the units; those of
    /// [`Operation::wait`](crate::Operation::wait).
    pub fn enter(&self, index: usize) -> Result<Entered> {
        self.0.enter(index, NO_TIMEOUT)?.ok_or_else(|| {
            Error::state("", "the unit is not full", "enter it again: its gather goes on")
        })
    }

    /// Waits at most `timeout`. Returns `None` after the timeout: the next enter of the unit
    /// continues the same use.
    pub fn enter_timeout(&self, index: usize, timeout: Duration) -> Result<Option<Entered>> {
        self.0.enter(index, nanoseconds(timeout))
    }

    /// [`enter`](Schedule::enter) as a future. Its first poll begins the use; if it is dropped before
    /// its end, the next enter of the unit continues that use.
    pub fn entering(&self, index: usize) -> Entering {
        Entering { inner: self.0.clone(), index, backoff: Backoff::default() }
    }

    /// Forgets the pass, and gives everything back: after an error in the trainer. The recorded orders
    /// stay. Never blocks.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when a unit is entered: drop that first.
    pub fn reset(&mut self) -> Result<()> {
        self.0.shared.require_open()?;
        if Arc::strong_count(&self.0) > 1 {
            return Err(Error::state("", "units are entered", "drop what Schedule::enter gave"));
        }
        // SAFETY: a call with a handle by value; the borrow of this schedule is exclusive, so it
        // has no views.
        check(|err| unsafe { sys::meron_schedule_reset(self.as_raw(), err) })
    }

    /// Information about the schedule. Never blocks.
    pub fn info(&self) -> Result<ScheduleInfo> {
        self.0.shared.require_open()?;
        // SAFETY: `out` says its size, and is valid during the call.
        let raw = receive(sized!(meron_schedule_info), |out, err| unsafe {
            sys::meron_schedule_get_info(out, self.as_raw(), err)
        })?;
        Ok(ScheduleInfo::of(&raw))
    }

    /// The handle of the C interface, for calls of `meron-sys`. Resetting or releasing it makes what this
    /// crate shows of its units invalid.
    pub fn as_raw(&self) -> sys::meron_schedule {
        self.0.raw()
    }
}

impl Context {
    /// Makes a schedule of some units, which are used by their place in `units` from then on. Collective
    /// over the units' group: units and options are equal on all ranks. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (no unit, units of several groups),
    /// [`Duplicate`](crate::ErrorKind::Duplicate) (a unit twice),
    /// [`Mismatch`](crate::ErrorKind::Mismatch).
    pub fn schedule(&self, units: &[&Unit], options: &ScheduleOptions) -> Result<Schedule> {
        Schedule::create(self.shared(), units, options)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Schedule({} units)", self.0.units.len())
    }
}

/// A unit on its way to being entered, made by [`Schedule::entering`]. A future, which polls as
/// [`Operation`](crate::Operation) does.
#[must_use = "a future does nothing before it is polled"]
pub struct Entering {
    inner: Arc<Inner>,
    index: usize,
    backoff: Backoff,
}

impl Future for Entering {
    type Output = Result<Entered>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Result<Entered>> {
        let entered = self.inner.enter(self.index, 0);
        poll_state(entered, &mut self.backoff, task)
    }
}

impl fmt::Debug for Entering {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Entering({})", self.index)
    }
}

/// A use of a unit of a [`Schedule`]: its tensors are whole until this is dropped.
///
/// ```compile_fail,E0505
/// # let context = meron::Context::open()?;
/// # let table = context.param("table", &[8])?;
/// # let unit = context.unit("table", &[&table])?;
/// # let schedule = context.schedule(&[&unit], &Default::default())?;
/// let used = schedule.enter(0)?;
/// let values = used.view(&table)?.as_slice::<f32>()?;
/// drop(used); // error: `used` is borrowed by `values`
/// println!("{}", values[0]);
/// # Ok::<(), meron::Error>(())
/// ```
#[must_use = "the unit is left when this is dropped"]
pub struct Entered {
    inner: Arc<Inner>,
    index: usize,
    left: bool,
    _open: Arc<Open>,
}

impl Entered {
    /// The whole tensor of a param of the unit. Other ranks read the same memory.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) when the param is not in the unit;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) when it is in a device's memory, also in that of
    /// the emulated one: a stream may still write it. See
    /// [`device_pointer`](Entered::device_pointer) and [`Tier::Host`](crate::Tier::Host).
    pub fn view(&self, param: &Param) -> Result<View<'_>> {
        // SAFETY: the unit stays entered until `self` is dropped, which prevents writes of the
        // values; `_open` keeps the mapping.
        unsafe { View::new(self.raw_view(param)?, param) }
    }

    /// Address of the full tensor of a param, row-major: on the device for work of the schedule's
    /// stream. No code may write it, and it is valid until this use ends.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) when the param is not in the unit.
    pub fn device_pointer(&self, param: &Param) -> Result<*const c_void> {
        Ok(self.raw_view(param)?.data as *const c_void)
    }

    fn raw_view(&self, param: &Param) -> Result<sys::meron_view> {
        self.inner.units[self.index].require(param.as_raw().id, param.name())?;
        // SAFETY: `out` is plain data, and valid during the call.
        receive(unsafe { std::mem::zeroed() }, |out, err| unsafe {
            sys::meron_schedule_view(out, self.inner.raw(), param.as_raw(), err)
        })
    }

    /// The unit's place in those of the schedule.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Leaves the unit, as dropping it does, and says how that went. Never blocks.
    pub fn leave(mut self) -> Result<()> {
        self.left = true;
        self.end()
    }

    fn end(&self) -> Result<()> {
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        check(|err| unsafe { sys::meron_schedule_leave(self.inner.raw(), self.index, err) })
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Entered({:?})", self.inner.units[self.index].name)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.left {
            // A closed context has already released it; there is nothing left to do.
            let _ = self.end();
        }
    }
}
