// SPDX-License-Identifier: Apache-2.0
//! The library itself: its version, and what it finds on this host.

use std::ffi::CStr;

use meron_sys as sys;

use crate::call::receive_text;
use crate::error::{Error, Result};

/// The version of the library that was loaded, for example `"0.2.0"`.
pub fn version() -> &'static str {
    // SAFETY: the library returns a static string.
    unsafe { CStr::from_ptr(sys::meron_version_string()) }.to_str().unwrap_or("unknown")
}

/// Describes this host and this build of the library, as JSON: CPU features and the kernels in use,
/// transports with the reason if one is unavailable, memory, limits.
pub fn system_info() -> Result<String> {
    require_version()?;
    // SAFETY: the string is freed by receive_text.
    receive_text(|out, err| unsafe { sys::meron_system_info(out, err) })
}

/// An error unless the loaded library fits the declarations of meron-sys. Everything that can be made
/// without a context, and the context itself, asks this first.
#[inline]
pub(crate) fn require_version() -> Result<()> {
    // SAFETY: a function without arguments that returns a number.
    let found = unsafe { sys::meron_version() };
    if fits(found, sys::MERON_VERSION) {
        return Ok(());
    }
    Err(Error::new(
        sys::MERON_E_VERSION,
        "libmeron.so",
        &format!(
            "the library that was loaded is version {}, this program needs {} or a later one that \
             is compatible with it",
            written(found),
            written(sys::MERON_VERSION)
        ),
        "install the library of the crate's version, or build the program against the one there",
    ))
}

/// Before 1.0 a minor version may change the interface, after it a major one.
fn fits(found: u32, needed: u32) -> bool {
    let ignored = if needed >> 16 == 0 { 8 } else { 16 };
    found >> ignored == needed >> ignored && found >= needed
}

fn written(version: u32) -> String {
    format!("{}.{}.{}", version >> 16, version >> 8 & 0xFF, version & 0xFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_fit_as_the_headers_say() {
        for (found, needed, fit) in [
            (0x000100, 0x000100, true),
            (0x000101, 0x000100, true),
            (0x000100, 0x000101, false),
            (0x000200, 0x000100, false),
            (0x010200, 0x010100, true),
            (0x010000, 0x010100, false),
            (0x020000, 0x010000, false),
        ] {
            assert_eq!(fits(found, needed), fit, "{found:#x} for {needed:#x}");
        }
        assert_eq!(written(0x010203), "1.2.3");
    }

    #[test]
    fn the_library_is_of_the_crates_version() {
        require_version().unwrap();
        assert_eq!(version(), env!("CARGO_PKG_VERSION"));
    }
}
