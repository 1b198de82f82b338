// SPDX-License-Identifier: Apache-2.0
//! Waiting for any of several operations.

use std::time::Duration;

use meron_sys as sys;

use crate::call::{call, nanoseconds, NO_TIMEOUT};
use crate::dtype::Plain;
use crate::error::Result;
use crate::gather::PendingGather;
use crate::gather_into::PendingGatherInto;
use crate::operation::{Operation, Transfer};
use crate::update::PendingUpdate;

mod sealed {
    pub trait Sealed {
        fn raw(&self) -> super::sys::meron_future;
    }
}

/// An operation under way, as [`wait_any`] takes it: an [`Operation`], a [`Transfer`], a
/// [`PendingGather`], a [`PendingGatherInto`] or a [`PendingUpdate`].
pub trait Pending: sealed::Sealed {}

macro_rules! pending {
    ($([$($generics:tt)*] $kind:ty),* $(,)?) => {
        $(
            impl<$($generics)*> sealed::Sealed for $kind {
                fn raw(&self) -> sys::meron_future {
                    self.as_raw()
                }
            }
            impl<$($generics)*> Pending for $kind {}
        )*
    };
}

pending! {
    [] Operation,
    [T: Plain] Transfer<T>,
    [] PendingGather,
    [] PendingGatherInto,
    [] PendingUpdate,
}

/// Waits until one of several operations of a context has ended, well or with an error.
///
/// Returns the index of the first one that has ended: its `wait` then returns, or fails, at once.
/// Returns `None` after `timeout`; by default it waits as long as the operations' own deadlines.
/// Blocks on peers. The operations continue, whatever it returns.
///
/// # Errors
///
/// [`Handle`](crate::ErrorKind::Handle) if there are none, or if they belong to different contexts;
/// [`Stale`](crate::ErrorKind::Stale); [`Cancelled`](crate::ErrorKind::Cancelled) if `should_stop`
/// ended the wait.
pub fn wait_any(pending: &[&dyn Pending], timeout: Option<Duration>) -> Result<Option<usize>> {
    let futures: Vec<sys::meron_future> = pending.iter().map(|item| item.raw()).collect();
    let limit = timeout.map_or(NO_TIMEOUT, nanoseconds);
    let mut place = 0;
    // SAFETY: the array lives during the call, and a wrong handle in it gives an error.
    let ended = call(|err| unsafe {
        sys::meron_future_wait_any(&mut place, futures.as_ptr(), futures.len(), limit, err)
    })?;
    Ok(ended.then_some(place))
}
