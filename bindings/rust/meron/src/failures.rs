// SPDX-License-Identifier: Apache-2.0
//! Failures of the program's closures and transport: contained in the callback, and kept for the
//! error that the library returns next.
//!
//! The library knows only that they failed. It calls them on the thread that is inside of it, so the
//! reason waits there until that thread's call returns.

// Clippy of Rust 1.63 takes a thread's initial value for a constant.
#![allow(clippy::declare_interior_mutable_const)]

use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::mem::forget;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::LocalKey;

/// The reason for a failure, as [`Error::source`] returns it.
pub(crate) type Cause = Arc<dyn Error + Send + Sync>;

type Noted = RefCell<Option<Cause>>;

thread_local! {
    /// Panic of `should_stop` on this thread, until the wait that it ended has returned.
    static PANIC: Noted = const { RefCell::new(None) };
}

thread_local! {
    /// Last failure of the program's transport on this thread.
    static TRANSPORT: Noted = const { RefCell::new(None) };
}

/// The text of a panic in a callback.
#[derive(Debug)]
pub(crate) struct Panicked(String);

impl fmt::Display for Panicked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Panicked {}

/// Runs code of the program inside a callback of the library. No panic leaves it, also not one of
/// the panic's own payload when that is dropped.
pub(crate) fn contained<T>(body: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        let text = describe(&*payload);
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            forget(second);
        }
        Panicked(text)
    })
}

/// Keeps what `should_stop` panicked with, for the error of the wait that it ended.
pub(crate) fn note_panic(why: Panicked) {
    note(&PANIC, Arc::new(why));
}

/// Takes the panic of `should_stop` on this thread since the last call.
pub(crate) fn take_panic() -> Option<Cause> {
    take(&PANIC)
}

/// Keeps why the program's transport failed, for the error that will come of it.
pub(crate) fn note_transport_failure(why: Cause) {
    note(&TRANSPORT, why);
}

/// Takes the failure of the program's transport on this thread since the last call.
pub(crate) fn take_transport_failure() -> Option<Cause> {
    take(&TRANSPORT)
}

/// A thread that is ending may have dropped its thread-locals. Its reasons are lost.
fn note(place: &'static LocalKey<Noted>, why: Cause) {
    // The error of a transport may panic when it is dropped.
    let _ = contained(|| drop(place.try_with(|noted| noted.replace(Some(why)))));
}

fn take(place: &'static LocalKey<Noted>) -> Option<Cause> {
    place.try_with(RefCell::take).ok().flatten()
}

/// The text of a panic.
fn describe(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| text.to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is no text".to_string())
}
