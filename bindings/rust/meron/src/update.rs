// SPDX-License-Identifier: Apache-2.0
//! Writing the values of params.

use std::future::Future;
use std::os::raw::c_void;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use meron_sys as sys;

use crate::borrow::{InUse, Use};
use crate::call::{call, check, nanoseconds, receive, NO_TIMEOUT};
use crate::context::Context;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::handle::{debug_by_handle, Owned};
use crate::home::{Open, Shared};
use crate::operation::poll_state;
use crate::param::Param;
use crate::unit::{home_of, raw_units, Unit};
use crate::view::ViewMut;
use crate::wake::Backoff;

/// An update that was begun: every rank is asked to release the present version.
///
/// Dropping it cancels the update, which breaks the group with an error of kind
/// [`Aborted`](crate::ErrorKind::Aborted) on every rank, because the peers continue it.
///
/// It is also a [`std::future::Future`], which polls as [`Operation`](crate::Operation) does.
#[must_use = "dropping an update that was not waited for breaks the group"]
pub struct PendingUpdate {
    update: Option<Update>,
    backoff: Backoff,
}

debug_by_handle! {
    [] PendingUpdate: "PendingUpdate",
    [] Update: "Update",
}

impl PendingUpdate {
    /// The handle of the C interface, for calls of `meron-sys`; null when it has been awaited.
    pub fn as_raw(&self) -> sys::meron_future {
        self.update.as_ref().map_or(sys::meron_future::default(), Update::as_raw)
    }

    pub(crate) fn begin(shared: &Arc<Shared>, units: &[&Unit]) -> Result<PendingUpdate> {
        let open = home_of(units).unwrap_or(shared).open()?;
        let states: Vec<_> = units.iter().map(|unit| unit.state().clone()).collect();
        let in_use = InUse::begin_all(&states, Use::WriteValues)?;
        let handles = raw_units(units);
        // SAFETY: the handles are only read, during the call.
        let handle = receive(sys::meron_future::default(), |out, err| unsafe {
            let first = crate::group::table(&handles);
            sys::meron_update_begin(out, first, handles.len(), err)
        })?;
        let update = Update { handle: Owned::new(handle), _in_use: in_use, _open: open };
        Ok(PendingUpdate { update: Some(update), backoff: Backoff::default() })
    }

    /// Waits until every rank has released it, after which this rank's parts may be written.
    ///
    /// Blocks on peers, at most until the deadline. Every error cancels the update;
    /// [`wait_timeout`](PendingUpdate::wait_timeout) keeps it.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::wait`](crate::Operation::wait).
    pub fn wait(mut self) -> Result<Update> {
        self.update()?.wait(NO_TIMEOUT)?;
        self.take()
    }

    /// Waits at most `timeout`. Returns `false` after the timeout, and `true` when all have released
    /// it; then [`wait`](PendingUpdate::wait) returns at once.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.update()?.wait(nanoseconds(timeout))
    }

    /// True if every rank has released it; never blocks on peers. Errors as
    /// [`wait`](PendingUpdate::wait).
    pub fn is_done(&self) -> Result<bool> {
        self.update()?.poll()
    }

    fn update(&self) -> Result<&Update> {
        self.update.as_ref().ok_or_else(awaited)
    }

    fn take(&mut self) -> Result<Update> {
        self.update.take().ok_or_else(awaited)
    }
}

fn awaited() -> Error {
    Error::state("", "this update has been awaited already", "use what it gave")
}

impl Future for PendingUpdate {
    type Output = Result<Update>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Result<Update>> {
        let open = self.is_done().and_then(|done| match done {
            true => self.take().map(Some),
            false => Ok(None),
        });
        poll_state(open, &mut self.backoff, task)
    }
}

/// Units opened for writing. Collective over the units' group: every rank publishes.
///
/// Elements that were not written keep their values. End it by [`publish`](Update::publish).
/// Dropping it before, as an early return or a panic does, cancels it: if nothing was written or
/// viewed, the values are published unchanged; otherwise the group breaks with an error of kind
/// [`Aborted`](crate::ErrorKind::Aborted) on every rank, which names this one.
pub struct Update {
    handle: Owned<sys::meron_future>,
    _in_use: Vec<InUse>,
    _open: Arc<Open>,
}

impl Update {
    fn wait(&self, timeout: i64) -> Result<bool> {
        // SAFETY: a call with a handle by value; the closures that it calls live as long as `_open`.
        call(|err| unsafe { sys::meron_future_wait(self.handle.raw(), timeout, err) })
    }

    fn poll(&self) -> Result<bool> {
        // SAFETY: as in `wait`.
        call(|err| unsafe { sys::meron_future_poll(self.handle.raw(), err) })
    }

    /// Writes this rank's shard of `param` from the full tensor. Every rank passes equal values.
    /// Converts between dtypes, and keeps f32 values in the master copy if there is one. Never
    /// blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for another number of elements, or a param of none of
    /// the units.
    pub fn write<T: Element>(&mut self, param: &Param, values: &[T]) -> Result<()> {
        let data = values.as_ptr() as *const c_void;
        let (count, dtype) = (values.len() as u64, T::DTYPE.code());
        // SAFETY: the values are only read, during the call.
        check(|err| unsafe {
            sys::meron_update_write(self.as_raw(), param.as_raw(), data, count, dtype, err)
        })
    }

    /// The part of `param` that this rank updates, to write in place: elements
    /// [`offset`](ViewMut::offset) to `offset + len` of the whole tensor, in the param's dtype.
    ///
    /// Views live no longer than the update:
    ///
    /// ```compile_fail,E0505
    /// # let context = meron::Context::open()?;
    /// # let table = context.param("table", &[8])?;
    /// # let unit = context.unit("table", &[&table])?;
    /// let mut update = context.update(&[&unit])?;
    /// let mut part = update.view(&table)?;
    /// update.publish()?; // error: `update` is borrowed by `part`
    /// part.as_mut_slice::<f32>()?[0] = 1.0;
    /// # Ok::<(), meron::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for a param of none of the units.
    pub fn view(&mut self, param: &Param) -> Result<ViewMut<'_>> {
        // SAFETY: every rank has released the values; `_in_use` and the exclusive borrow keep others of
        // this process away, and `_open` keeps the mapping.
        unsafe {
            let raw = receive(std::mem::zeroed(), |out, err| {
                sys::meron_update_view(out, self.as_raw(), param.as_raw(), err)
            })?;
            ViewMut::new(raw, param)
        }
    }

    /// Publishes the written parts as the next version. Never blocks.
    ///
    /// # Errors
    ///
    /// Those of the group.
    pub fn publish(self) -> Result<()> {
        // SAFETY: a call with a handle by value. It ends the update even if it fails: should the handle be
        // alive still, dropping it releases it.
        check(|err| unsafe { sys::meron_update_publish(self.handle.raw(), err) })
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_future {
        self.handle.raw()
    }
}

impl Context {
    /// Opens units for writing, and waits until every rank has released the present version.
    /// Collective over the units' group.
    ///
    /// Blocks on peers, at most until the deadline. If `should_stop` ends the wait, the update is
    /// cancelled, which breaks the group, because the peers continue it;
    /// [`update_begin`](Context::update_begin) can wait in portions instead.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when a unit is gathered on this rank or being updated,
    /// [`Duplicate`](crate::ErrorKind::Duplicate); errors of the group.
    pub fn update(&self, units: &[&Unit]) -> Result<Update> {
        self.update_begin(units)?.wait()
    }

    /// Begins an update and returns at once. Else as [`update`](Context::update).
    pub fn update_begin(&self, units: &[&Unit]) -> Result<PendingUpdate> {
        PendingUpdate::begin(self.shared(), units)
    }
}
