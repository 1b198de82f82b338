// SPDX-License-Identifier: Apache-2.0
//! Operations under way.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use meron_sys as sys;

use crate::call::{nanoseconds, receive, NO_TIMEOUT};
use crate::dtype::Plain;
use crate::error::Result;
use crate::handle::debug_by_handle;
use crate::home::Shared;
use crate::raw_future::RawFuture;
use crate::wake::Backoff;

/// An operation that was begun and yields nothing but its end.
///
/// Waiting for it advances every operation of the context. Dropping it does not stop the operation,
/// because the ranks must stay in step.
///
/// It is also a [`std::future::Future`]. Polling advances the context's operations and never blocks
/// on peers. A task that waits is woken at once a few times, then by a thread of this crate, at last
/// every 2 ms: an operation that depends on this rank's polls may end so much later. If the thread
/// has no other work, [`wait`](Operation::wait) has no such delay.
///
/// ```
/// # let context = meron::Context::open()?;
/// async fn meet(context: &meron::Context) -> meron::Result<()> {
///     context.world()?.barrier_begin()?.await
/// }
/// let barrier = context.world()?.barrier_begin()?;
/// // ... work that needs no peer ...
/// barrier.wait()?;
/// # Ok::<(), meron::Error>(())
/// ```
#[must_use = "an operation has to be waited for before its result is used"]
#[derive(Clone)]
pub struct Operation {
    future: RawFuture,
    // Keeps the closures alive that waiting may call.
    shared: Arc<Shared>,
    backoff: Backoff,
}

debug_by_handle! {
    [] Operation: "Operation",
    [T: Plain] Transfer<T>: "Transfer",
}

impl Operation {
    pub(crate) fn new(handle: sys::meron_future, shared: &Arc<Shared>) -> Operation {
        let (future, shared) = (RawFuture::new(handle), shared.clone());
        Operation { future, shared, backoff: Backoff::default() }
    }

    /// Waits until the operation has ended.
    ///
    /// Blocks on peers, at most until the operation's deadline. Several threads may wait for one
    /// operation (clone it). If `should_stop` ends the wait
    /// ([`Cancelled`](crate::ErrorKind::Cancelled)), the operation continues, and may be waited for
    /// again.
    ///
    /// # Errors
    ///
    /// Those of the operation; [`Timeout`](crate::ErrorKind::Timeout),
    /// [`PeerDead`](crate::ErrorKind::PeerDead), [`PeerClosed`](crate::ErrorKind::PeerClosed),
    /// [`Mismatch`](crate::ErrorKind::Mismatch), [`Aborted`](crate::ErrorKind::Aborted),
    /// [`Cancelled`](crate::ErrorKind::Cancelled).
    pub fn wait(&self) -> Result<()> {
        self.wait_ns(NO_TIMEOUT).map(drop)
    }

    /// Waits at most `timeout`. Returns `false` after the timeout; the operation continues. Errors
    /// as [`wait`](Operation::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.wait_ns(nanoseconds(timeout))
    }

    fn wait_ns(&self, timeout: i64) -> Result<bool> {
        let ended = self.future.wait(timeout);
        self.shared.sweep();
        ended
    }

    /// True if the operation has ended; never blocks on peers. Errors as [`wait`](Operation::wait).
    pub fn is_done(&self) -> Result<bool> {
        let ended = self.future.poll();
        self.shared.sweep();
        ended
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_future {
        self.future.raw()
    }

    /// The future without the context's closures, for units and `Shared` to keep.
    pub(crate) fn future(&self) -> &RawFuture {
        &self.future
    }
}

/// Begins an operation of a context by a call that fills a future.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    function: impl FnOnce(*mut sys::meron_future, *mut *mut sys::meron_error) -> sys::meron_status,
) -> Result<Operation> {
    shared.sweep();
    let handle = receive(sys::meron_future::default(), function)?;
    Ok(Operation::new(handle, shared))
}

/// Result of a poll, in the form for an executor.
pub(crate) fn poll_state<T>(
    done: Result<Option<T>>,
    backoff: &mut Backoff,
    task: &TaskContext<'_>,
) -> Poll<Result<T>> {
    match done {
        Ok(Some(value)) => Poll::Ready(Ok(value)),
        Ok(None) => {
            backoff.wake_later(task.waker());
            Poll::Pending
        }
        Err(error) => Poll::Ready(Err(error)),
    }
}

impl Future for Operation {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Result<()>> {
        let done = self.is_done().map(|done| done.then_some(()));
        poll_state(done, &mut self.backoff, task)
    }
}

/// An operation on an array that it owns while it is pending, and returns at its end.
///
/// Dropping it does not stop the operation; the array is kept until it has ended. It is also a
/// [`std::future::Future`], which polls as [`Operation`] does.
///
/// ```
/// # let context = meron::Context::open()?;
/// use meron::ReduceOp;
///
/// let mut sums = context.world()?.all_reduce_begin(vec![1.0f64, 2.0], ReduceOp::Sum)?;
/// let sums: Vec<f64> = sums.wait()?;
/// # assert_eq!(sums, [1.0, 2.0]);
/// # Ok::<(), meron::Error>(())
/// ```
#[must_use = "the values are only there when the transfer has been waited for"]
pub struct Transfer<T: Plain> {
    operation: Operation,
    shared: Arc<Shared>,
    array: Option<Vec<T>>,
}

impl<T: Plain> Transfer<T> {
    pub(crate) fn new(operation: Operation, shared: &Arc<Shared>, array: Vec<T>) -> Transfer<T> {
        Transfer { operation, shared: shared.clone(), array: Some(array) }
    }

    /// Waits until the operation has ended, and gives its array back.
    ///
    /// Blocks as [`Operation::wait`]. After an error of kind
    /// [`Cancelled`](crate::ErrorKind::Cancelled) it may be waited for again.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::wait`]; [`State`](crate::ErrorKind::State) if the array was already
    /// returned.
    pub fn wait(&mut self) -> Result<Vec<T>> {
        self.require_array()?;
        self.operation.wait()?;
        Ok(self.array.take().unwrap_or_default())
    }

    /// Waits at most `timeout`. Returns `false` after the timeout, and `true` when the operation has
    /// ended; then [`wait`](Transfer::wait) returns the array at once. Errors as there.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.operation.wait_timeout(timeout)
    }

    /// True if the operation has ended; never blocks on peers. Errors as [`wait`](Transfer::wait).
    pub fn is_done(&self) -> Result<bool> {
        self.operation.is_done()
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_future {
        self.operation.as_raw()
    }

    fn require_array(&self) -> Result<()> {
        if self.array.is_some() {
            return Ok(());
        }
        Err(crate::Error::state("", "the array was given back already", "wait once"))
    }
}

impl<T: Plain> Drop for Transfer<T> {
    fn drop(&mut self) {
        if let Some(array) = self.array.take() {
            let future = self.operation.future();
            if future.may_use_memory() {
                self.shared.abandon(future.clone(), Box::new(array));
            }
        }
    }
}

impl<T: Plain> Future for Transfer<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Result<Vec<T>>> {
        if let Err(error) = self.require_array() {
            return Poll::Ready(Err(error));
        }
        let done = self.operation.is_done();
        let array = done.map(|done| if done { self.array.take() } else { None });
        poll_state(array, &mut self.operation.backoff, task)
    }
}
