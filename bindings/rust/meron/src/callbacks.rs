// SPDX-License-Identifier: Apache-2.0
//! The closures that the library calls while a context is open.

// Clippy of Rust 1.63 takes a thread's initial value for a constant.
#![allow(clippy::declare_interior_mutable_const)]

use std::any::Any;
use std::cell::RefCell;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

use meron_sys as sys;

use crate::device::Allocator;
use crate::transport::Bridge;
use crate::values::LogLevel;

pub(crate) type LogFunction = Box<dyn Fn(LogLevel, &str) + Send + Sync>;
pub(crate) type StopFunction = Box<dyn Fn() -> bool + Send + Sync>;

/// What the library's user pointers point at. It has to outlive every call of the library that may
/// call back, so each object of a context keeps it alive, not only the context.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub log: Option<LogFunction>,
    pub should_stop: Option<StopFunction>,
    pub transport: Option<Bridge>,
    pub allocator: Option<Allocator>,
}

impl Callbacks {
    /// Enters the closures that are there. They are called for as long as `self` stays where it is.
    pub fn enter(&self, options: &mut sys::meron_context_options) {
        let user = self as *const Callbacks as *mut c_void;
        if self.log.is_some() {
            options.log = Some(log);
            options.log_user = user;
        }
        if self.should_stop.is_some() {
            options.should_stop = Some(should_stop);
            options.should_stop_user = user;
        }
    }
}

thread_local! {
    /// What `should_stop` panicked with on this thread, until the wait that it ended has returned.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

thread_local! {
    /// What the program's transport failed with last on this thread.
    static TRANSPORT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps why the program's transport failed, for the error that will come of it.
pub(crate) fn note_transport_failure(why: String) {
    TRANSPORT.with(|failure| *failure.borrow_mut() = Some(why));
}

/// What the program's transport failed with on this thread since the last call.
pub(crate) fn take_transport_failure() -> Option<String> {
    TRANSPORT.with(|failure| failure.borrow_mut().take())
}

/// What `should_stop` panicked with on this thread since the last call.
pub(crate) fn take_panic() -> Option<String> {
    PANIC.with(|panic| panic.borrow_mut().take())
}

pub(crate) fn describe(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| text.to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is no text".to_string())
}

/// A panic ends here: the panic hook has reported it, and the message was only to be logged.
unsafe extern "C" fn log(
    user: *mut c_void,
    level: sys::meron_log_level,
    message: *const c_char,
    length: usize,
) {
    let callbacks = &*(user as *const Callbacks);
    let bytes = slice::from_raw_parts(message as *const u8, length);
    let level = LogLevel::of(level);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Some(log) = &callbacks.log {
            log(level, &String::from_utf8_lossy(bytes));
        }
    }));
}

/// A panic ends the wait; its error says so.
unsafe extern "C" fn should_stop(user: *mut c_void) -> i32 {
    let callbacks = &*(user as *const Callbacks);
    match catch_unwind(AssertUnwindSafe(|| {
        callbacks.should_stop.as_ref().map_or(false, |ask| ask())
    })) {
        Ok(stop) => i32::from(stop),
        Err(payload) => {
            let text = describe(&*payload);
            PANIC.with(|panic| *panic.borrow_mut() = Some(text));
            1
        }
    }
}
