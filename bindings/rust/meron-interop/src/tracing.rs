// SPDX-License-Identifier: Apache-2.0
//! The log of a context by `tracing`.

use meron::LogLevel;

/// Emits a message of the log as an event with the target `meron`. Pass it to
/// [`ContextOptions::log`](meron::ContextOptions::log):
///
/// ```
/// let context = meron::Context::options().log(meron_interop::trace).open()?;
/// # Ok::<(), meron::Error>(())
/// ```
///
/// The library calls it within its own calls: a subscriber must not call `meron`.
pub fn trace(level: LogLevel, message: &str) {
    match level {
        LogLevel::Error => tracing::error!(target: "meron", "{message}"),
        LogLevel::Warning => tracing::warn!(target: "meron", "{message}"),
        _ => tracing::info!(target: "meron", "{message}"),
    }
}
