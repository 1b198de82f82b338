// SPDX-License-Identifier: Apache-2.0
//! The closures that the library calls while a context is open.

use std::os::raw::{c_char, c_void};
use std::slice;

use meron_sys as sys;

use crate::device::Allocator;
use crate::failures::{contained, note_panic};
use crate::transport::Bridge;
use crate::values::LogLevel;

pub(crate) type LogFunction = Box<dyn Fn(LogLevel, &str) + Send + Sync>;
pub(crate) type StopFunction = Box<dyn Fn() -> bool + Send + Sync>;

/// Target of the library's user pointers. It has to outlive every call of the library that may call
/// back, so each object of a context keeps it alive, not only the context.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub log: Option<LogFunction>,
    pub should_stop: Option<StopFunction>,
    pub transport: Option<Bridge>,
    pub allocator: Option<Allocator>,
}

impl Callbacks {
    /// Enters the closures that are there. They are called for as long as `self` stays where it is.
    pub(crate) fn enter(&self, options: &mut sys::meron_context_options) {
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

/// A panic ends here: the panic hook has reported it, and the message was only to be logged.
unsafe extern "C" fn log(
    user: *mut c_void,
    level: sys::meron_log_level,
    message: *const c_char,
    length: usize,
) {
    // SAFETY: `user` is the pointer of `Callbacks::enter`, and each object of the context keeps its
    // target. The message has `length` bytes during the call.
    let (callbacks, bytes) = unsafe {
        (&*(user as *const Callbacks), slice::from_raw_parts(message as *const u8, length))
    };
    let _ = contained(|| {
        if let Some(log) = &callbacks.log {
            log(LogLevel::of(level), &String::from_utf8_lossy(bytes));
        }
    });
}

/// A panic ends the wait; its error says so.
unsafe extern "C" fn should_stop(user: *mut c_void) -> i32 {
    // SAFETY: as in `log`.
    let callbacks = unsafe { &*(user as *const Callbacks) };
    match contained(|| callbacks.should_stop.as_ref().map_or(false, |ask| ask())) {
        Ok(stop) => i32::from(stop),
        Err(panic) => {
            note_panic(panic);
            1
        }
    }
}
