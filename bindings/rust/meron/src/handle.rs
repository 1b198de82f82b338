// SPDX-License-Identifier: Apache-2.0
//! Handles of the C interface, each released once.

use meron_sys as sys;

use crate::call::check;
use crate::error::Result;

/// A handle of the C interface and the function that releases it.
pub(crate) trait Handle: Copy {
    /// # Safety
    ///
    /// None is needed: handles are values, and a wrong one gives an error. The functions are `unsafe`
    /// because they are foreign.
    unsafe fn release(self, err: *mut *mut sys::meron_error) -> sys::meron_status;
}

macro_rules! handles {
    ($($kind:ident: $release:ident),* $(,)?) => {
        $(impl Handle for sys::$kind {
            #[inline]
            unsafe fn release(self, err: *mut *mut sys::meron_error) -> sys::meron_status {
                // SAFETY: a call with a handle by value; a wrong one gives an error.
                unsafe { sys::$release(self, err) }
            }
        })*
    };
}

handles! {
    meron_plan: meron_plan_release,
    meron_future: meron_future_release,
    meron_group: meron_group_release,
    meron_param: meron_param_release,
    meron_unit: meron_unit_release,
    meron_optimizer: meron_optimizer_release,
    meron_schedule: meron_schedule_release,
    meron_checkpoint: meron_checkpoint_release,
    meron_io_buffer: meron_io_buffer_release,
}

/// `Debug` of types that have no more to show than their handle. (Showing one makes no call.)
macro_rules! debug_by_handle {
    ($([$($generics:tt)*] $kind:ty: $name:literal),* $(,)?) => {
        $(impl<$($generics)*> ::std::fmt::Debug for $kind {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(formatter, concat!($name, "({:#x})"), self.as_raw().id)
            }
        })*
    };
}
pub(crate) use debug_by_handle;

/// A handle that is released when it is dropped, on any thread.
pub(crate) struct Owned<H: Handle>(H);

impl<H: Handle> Owned<H> {
    #[inline]
    pub(crate) fn new(handle: H) -> Owned<H> {
        Owned(handle)
    }

    #[inline]
    pub(crate) fn raw(&self) -> H {
        self.0
    }

    /// Releases it now, and says how that went.
    #[inline]
    pub(crate) fn release(self) -> Result<()> {
        let handle = self.into_raw();
        // SAFETY: see Handle::release.
        check(|err| unsafe { handle.release(err) })
    }

    /// Gives the handle to a call that ends it.
    #[inline]
    pub(crate) fn into_raw(self) -> H {
        let handle = self.0;
        std::mem::forget(self);
        handle
    }
}

impl<H: Handle> Drop for Owned<H> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: see Handle::release. A handle that is stale by now (its context was closed) gives
        // an error, and there is nothing left to do.
        unsafe { self.0.release(std::ptr::null_mut()) };
    }
}
