// SPDX-License-Identifier: Apache-2.0
//! What may go wrong in a case.

use meron::{sys, Error};

pub enum Failure {
    /// Of the library, or of the crate.
    Meron(Error),
    /// Something was not as the case demands.
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Meron(error)
    }
}

pub fn wrong(what: impl Into<String>) -> Failure {
    Failure::Wrong(what.into())
}

/// Converts the error of a raw call that has no counterpart in the natural layer.
pub fn raw(status: sys::meron_status) -> Result<(), Failure> {
    if status >= 0 {
        return Ok(());
    }
    Err(Failure::Wrong(RAW.to_string() + &status_name(status)))
}

/// Marks what `raw` has made of a status.
pub const RAW: &str = "raw ";

pub fn status_name(status: sys::meron_status) -> String {
    // SAFETY: the library returns a static string.
    unsafe { std::ffi::CStr::from_ptr(sys::meron_status_name(status)) }
        .to_string_lossy()
        .into_owned()
}

pub type Done = Result<(), Failure>;

pub fn check(holds: bool, what: impl Into<String>) -> Done {
    if holds {
        Ok(())
    } else {
        Err(wrong(what))
    }
}
