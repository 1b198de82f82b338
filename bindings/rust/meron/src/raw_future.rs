// SPDX-License-Identifier: Apache-2.0
//! Futures of the C interface, without what keeps their context's closures alive.

use std::sync::Arc;

use meron_sys as sys;

use crate::call::call;
use crate::error::Result;
use crate::error_kind::ErrorKind;
use crate::handle::Owned;

/// A future that several owners share; the last one releases it.
///
/// Waiting and polling may call the context's closures, so callers keep `Shared` alive meanwhile. A
/// future does not hold it: `Shared` has futures itself, and would then never be dropped.
#[derive(Clone)]
pub(crate) struct RawFuture(Arc<Owned<sys::meron_future>>);

impl RawFuture {
    pub(crate) fn new(handle: sys::meron_future) -> RawFuture {
        RawFuture(Arc::new(Owned::new(handle)))
    }

    pub(crate) fn raw(&self) -> sys::meron_future {
        self.0.raw()
    }

    /// Waits at most so many nanoseconds; whether the operation has ended.
    pub(crate) fn wait(&self, timeout: i64) -> Result<bool> {
        // SAFETY: a call with a handle by value, and a wrong one gives an error; the caller keeps the
        // closures alive that it calls.
        call(|err| unsafe { sys::meron_future_wait(self.raw(), timeout, err) })
    }

    /// True if the operation has ended; never blocks on peers.
    pub(crate) fn poll(&self) -> Result<bool> {
        // SAFETY: as in `wait`.
        call(|err| unsafe { sys::meron_future_poll(self.raw(), err) })
    }

    /// True if the operation may still read or write its memory. Also true after errors that do not
    /// concern the operation itself (a stale handle of a context that another thread is closing).
    pub(crate) fn may_use_memory(&self) -> bool {
        let status = self.status();
        let cancelled = status == sys::MERON_E_CANCELLED; // no poll is ended by should_stop
        status == sys::MERON_IN_PROGRESS
            || (status < 0 && !cancelled && !ends_operation(ErrorKind::of(status)))
    }

    /// Whether it is still under way, as far as this can be known.
    pub(crate) fn is_under_way(&self) -> bool {
        self.status() == sys::MERON_IN_PROGRESS
    }

    /// The status of a poll without a place for its error: a failure still counts as not reported.
    fn status(&self) -> sys::meron_status {
        // SAFETY: as in `wait`; the place for an error may be null.
        unsafe { sys::meron_future_poll(self.raw(), std::ptr::null_mut()) }
    }
}

/// True if an error of a wait or a poll means that the operation has ended.
fn ends_operation(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Cancelled
            | ErrorKind::Handle
            | ErrorKind::Stale
            | ErrorKind::Closed
            | ErrorKind::Forked
            | ErrorKind::NoMemory
            | ErrorKind::Internal
    )
}
