// SPDX-License-Identifier: Apache-2.0
//! How the C interface is called: statuses become results, strings cross with their checks.

use std::ffi::CString;
use std::os::raw::c_char;
use std::ptr;
use std::time::Duration;

use meron_sys as sys;

use crate::error::{self, Error, Result};
use crate::failures::{take_panic, take_transport_failure};

/// Runs a call that returns a status and leaves its error in the place that it is given.
///
/// `Ok(true)` for MERON_OK, `Ok(false)` for MERON_IN_PROGRESS.
#[inline]
pub(crate) fn call(
    function: impl FnOnce(*mut *mut sys::meron_error) -> sys::meron_status,
) -> Result<bool> {
    let mut raw = ptr::null_mut();
    let status = function(&mut raw);
    if status >= 0 {
        return Ok(status == sys::MERON_OK);
    }
    Err(failed(status, raw))
}

#[cold]
fn failed(status: sys::meron_status, raw: *mut sys::meron_error) -> Error {
    // SAFETY: the call that failed has just set it, and handed it to its caller.
    let mut error = unsafe { Error::take(status, raw) };
    if status == sys::MERON_E_CANCELLED {
        if let Some(panic) = take_panic() {
            error.amend(&format!("should_stop panicked ({panic})"), panic);
        }
    }
    if status == sys::MERON_E_PEER_DEAD {
        if let Some(why) = take_transport_failure() {
            error.amend(&format!("the transport failed ({why})"), why);
        }
    }
    error
}

/// The same for calls that have no "not yet".
#[inline]
pub(crate) fn check(
    function: impl FnOnce(*mut *mut sys::meron_error) -> sys::meron_status,
) -> Result<()> {
    call(function).map(drop)
}

/// A call that fills a value.
#[inline]
pub(crate) fn receive<T>(
    mut initial: T,
    function: impl FnOnce(*mut T, *mut *mut sys::meron_error) -> sys::meron_status,
) -> Result<T> {
    check(|err| function(&mut initial, err))?;
    Ok(initial)
}

/// A call that returns a string, which is copied and freed.
pub(crate) fn receive_text(
    function: impl FnOnce(*mut *mut c_char, *mut *mut sys::meron_error) -> sys::meron_status,
) -> Result<String> {
    let raw = receive(ptr::null_mut(), function)?;
    // SAFETY: the library has returned a NUL-terminated string, which this function frees.
    unsafe {
        let text = error::text(raw);
        sys::meron_string_free(raw);
        Ok(text)
    }
}

/// A call that lends a string, which is copied.
pub(crate) fn copy_text(
    function: impl FnOnce(*mut *const c_char, *mut *mut sys::meron_error) -> sys::meron_status,
) -> Result<String> {
    let raw = receive(ptr::null(), function)?;
    // SAFETY: the string is NUL-terminated, and lives as long as the object that the caller holds.
    Ok(unsafe { error::text(raw) })
}

/// A string as the library takes it. One with a NUL in it is an error that names it.
pub(crate) fn c_string(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        Error::argument(
            what,
            &format!("{what} has a NUL at byte {}: {text:?}", error.nul_position()),
            "leave the NUL out",
        )
    })
}

/// Nanoseconds as the library counts them; what exceeds its range is as long as it can say.
pub(crate) fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// A timeout that leaves the bound to the operation's deadline.
pub(crate) const NO_TIMEOUT: i64 = sys::MERON_TIMEOUT_DEFAULT as i64;

/// Makes a struct that says its own size, otherwise zero, for the library to fill.
macro_rules! sized {
    ($kind:ident) => {{
        // SAFETY: structs of the C interface hold numbers, pointers and optional function pointers.
        // Zero is a valid value of all of them.
        let mut value: ::meron_sys::$kind = unsafe { ::std::mem::zeroed() };
        value.struct_size = ::std::mem::size_of::<::meron_sys::$kind>() as u32;
        value
    }};
}
pub(crate) use sized;
