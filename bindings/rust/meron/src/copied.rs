// SPDX-License-Identifier: Apache-2.0
//! Whether the save under way has copied the states that it saves.

use meron_sys as sys;

use crate::call::call;
use crate::error::Result;

/// Waits at most so many nanoseconds until no save of the context reads states; whether none does.
pub(crate) fn wait_copied(context: sys::meron_context, timeout: i64) -> Result<bool> {
    // SAFETY: a call with a handle by value; a wrong one gives an error.
    call(|err| unsafe { sys::meron_checkpoint_wait_copied(context, timeout, err) })
}

/// True if no save of the context reads states; never blocks.
pub(crate) fn is_copied(context: sys::meron_context) -> Result<bool> {
    wait_copied(context, 0)
}
