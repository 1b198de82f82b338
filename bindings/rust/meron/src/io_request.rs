// SPDX-License-Identifier: Apache-2.0
//! Requests on files, and what becomes of those that nobody waits for any more.

use std::any::Any;
use std::future::Future;
use std::mem::forget;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use meron_sys as sys;

use crate::call::{call, check, nanoseconds, NO_TIMEOUT};
use crate::error::{Error, Result};
use crate::error_kind::ErrorKind;
use crate::handle::{debug_by_handle, Owned};
use crate::io_memory::IoMemory;
use crate::operation::poll_state;
use crate::wake::Backoff;

/// An io, which outlives its owner as long as requests are held.
pub(crate) struct Queue {
    /// The handle's id; 0 once closed.
    raw: AtomicU64,
    abandoned: Mutex<Abandoned>,
}

/// Abandoned requests.
#[derive(Default)]
struct Abandoned {
    requests: Vec<(Owned<sys::meron_future>, Box<dyn Any + Send>)>,
    /// The error of one of them.
    error: Option<Error>,
}

impl Queue {
    pub(crate) fn open(raw: sys::meron_io) -> Queue {
        Queue { raw: AtomicU64::new(raw.id), abandoned: Mutex::default() }
    }

    pub(crate) fn raw(&self) -> sys::meron_io {
        sys::meron_io { id: self.raw.load(Ordering::Acquire) }
    }

    fn abandoned(&self) -> MutexGuard<'_, Abandoned> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the error of an abandoned request.
    pub(crate) fn take_error(&self) -> Result<()> {
        self.abandoned().error.take().map_or(Ok(()), Err)
    }

    /// Frees what has ended.
    pub(crate) fn sweep(&self) {
        let mut abandoned = self.abandoned();
        let mut error = None;
        abandoned.requests.retain(|(request, _)| {
            let state = wait_for(request, 0);
            let under_way = may_use_memory(&state);
            if let (Err(failed), false) = (state, under_way) {
                error = Some(failed);
            }
            under_way
        });
        if abandoned.error.is_none() {
            abandoned.error = error;
        }
    }

    pub(crate) fn close(&self) -> Result<()> {
        let raw = sys::meron_io { id: self.raw.swap(0, Ordering::AcqRel) };
        if raw.id == 0 {
            return Ok(());
        }
        // SAFETY: a call with a handle by value.
        let closed = check(|err| unsafe { sys::meron_io_close(raw, err) });
        let mut abandoned = self.abandoned();
        let requests = std::mem::take(&mut abandoned.requests);
        for (request, memory) in requests {
            // The drive may still write to memory that it holds for longer.
            if may_use_memory(&wait_for(&request, 0)) {
                forget(memory);
            }
        }
        closed?;
        abandoned.error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn wait_for(request: &Owned<sys::meron_future>, timeout: i64) -> Result<bool> {
    // SAFETY: a call with a handle by value; a wrong one gives an error.
    call(|err| unsafe { sys::meron_future_wait(request.raw(), timeout, err) })
}

/// True if the drive may still use the memory of a request after a wait has returned `state`.
fn may_use_memory(state: &Result<bool>) -> bool {
    match state {
        Ok(ended) => !ended,
        Err(error) => !matches!(
            error.kind(),
            ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::NotFound | ErrorKind::Argument
        ),
    }
}

/// A read or write that was begun, and the memory that it works on.
///
/// Dropping it does not stop it: the memory is kept until it has ended, and
/// [`Io::wait`](crate::Io::wait) or [`Io::close`](crate::Io::close) tells how it did. It is also a
/// [`std::future::Future`], which polls as [`Operation`](crate::Operation) does.
#[must_use = "the bytes are only there when the request has been waited for"]
pub struct IoRequest<M: IoMemory> {
    request: Owned<sys::meron_future>,
    memory: Option<M>,
    io: Arc<Queue>,
    backoff: Backoff,
}

debug_by_handle!([M: IoMemory] IoRequest<M>: "IoRequest");

impl<M: IoMemory> IoRequest<M> {
    pub(crate) fn new(
        request: Owned<sys::meron_future>,
        memory: M,
        io: Arc<Queue>,
    ) -> IoRequest<M> {
        IoRequest { request, memory: Some(memory), io, backoff: Backoff::default() }
    }

    /// Waits until it has ended, and gives its memory back.
    ///
    /// Blocks on the drive, as long as something moves.
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io), [`NoSpace`](ErrorKind::NoSpace); [`Timeout`](ErrorKind::Timeout) if
    /// no transfer progresses (it continues, and may be waited for again);
    /// [`Closed`](ErrorKind::Closed) if the io was closed before; [`State`](ErrorKind::State) if
    /// the memory was already returned.
    pub fn wait(&mut self) -> Result<M> {
        self.require_memory()?;
        wait_for(&self.request, NO_TIMEOUT)?;
        self.memory.take().ok_or_else(given_back)
    }

    fn require_memory(&self) -> Result<()> {
        self.memory.as_ref().map(drop).ok_or_else(given_back)
    }

    /// Waits at most so long; whether it has ended. [`wait`](IoRequest::wait) then gives the memory
    /// back. Errors as there.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        wait_for(&self.request, nanoseconds(timeout))
    }

    /// Whether it has ended; never blocks. Errors as [`wait`](IoRequest::wait).
    pub fn is_done(&self) -> Result<bool> {
        wait_for(&self.request, 0)
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_future {
        self.request.raw()
    }
}

fn given_back() -> Error {
    Error::state("", "the memory was given back already", "wait once")
}

impl<M: IoMemory> Future for IoRequest<M> {
    type Output = Result<M>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Result<M>> {
        let done = self.require_memory().and_then(|()| self.is_done());
        let memory = done.map(|done| if done { self.memory.take() } else { None });
        poll_state(memory, &mut self.backoff, task)
    }
}

impl<M: IoMemory> Drop for IoRequest<M> {
    fn drop(&mut self) {
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => return,
        };
        if !may_use_memory(&wait_for(&self.request, 0)) {
            return;
        }
        let mut abandoned = self.io.abandoned();
        if self.io.raw().id == 0 {
            // A drive has held it for longer than the close: it may still write there.
            forget(memory);
            return;
        }
        let request = std::mem::replace(&mut self.request, Owned::new(Default::default()));
        abandoned.requests.push((request, Box::new(memory)));
    }
}
