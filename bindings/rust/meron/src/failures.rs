// SPDX-License-Identifier: Apache-2.0
//! Why the program's closures and transport failed, kept for the error that the library gives next.
//!
//! The library knows only that they failed. It calls them on the thread that is inside of it, so the
//! reason waits there until that thread's call returns.

// Clippy of Rust 1.63 takes a thread's initial value for a constant.
#![allow(clippy::declare_interior_mutable_const)]

use std::any::Any;
use std::cell::RefCell;

thread_local! {
    /// Panic of `should_stop` on this thread, until the wait that it ended has returned.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

thread_local! {
    /// Last failure of the program's transport on this thread.
    static TRANSPORT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps what `should_stop` panicked with, for the error of the wait that it ended.
pub(crate) fn note_panic(why: String) {
    PANIC.with(|panic| *panic.borrow_mut() = Some(why));
}

/// Takes the panic of `should_stop` on this thread since the last call.
pub(crate) fn take_panic() -> Option<String> {
    PANIC.with(|panic| panic.borrow_mut().take())
}

/// Keeps why the program's transport failed, for the error that will come of it.
pub(crate) fn note_transport_failure(why: String) {
    TRANSPORT.with(|failure| *failure.borrow_mut() = Some(why));
}

/// Takes the failure of the program's transport on this thread since the last call.
pub(crate) fn take_transport_failure() -> Option<String> {
    TRANSPORT.with(|failure| failure.borrow_mut().take())
}

/// The text of a panic.
pub(crate) fn describe(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| text.to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is no text".to_string())
}
