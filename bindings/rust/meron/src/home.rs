// SPDX-License-Identifier: Apache-2.0
//! What objects of a context share, and what keeps its memory mapped.
//!
//! Two references count. `Open` is the library's context: it is closed when the last `Arc<Open>` goes.
//! The [`Context`](crate::Context) holds one, and so does every object through which memory of the
//! library can be seen (gathers, updates, gradients, states, DLPack tensors). So memory is never
//! unmapped under a slice, and closing is put off until the last such object is gone.
//!
//! `Shared` is what calls need that may still run while the context is being closed: the closures that
//! the library calls, and arrays that operations still use. Every object holds an `Arc<Shared>`.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use meron_sys as sys;

use crate::borrow::UnitState;
use crate::call::check;
use crate::callbacks::Callbacks;
use crate::device::Memory;
use crate::error::{Error, Result};
use crate::operation::Operation;

pub(crate) struct Shared {
    open: Weak<Open>,
    closed: AtomicBool,
    /// Arrays of operations that nobody waits for any more. They are freed when the operation has
    /// ended, or after the context is closed: with the last `Arc<Shared>`, of which `Open` has one.
    abandoned: Mutex<Vec<(Operation, Box<dyn Any + Send>)>>,
    /// Units that are not gone: what a load writes.
    units: Mutex<Vec<Weak<UnitState>>>,
    /// Of views that are on the device, where there is one.
    pub memory: Memory,
    _callbacks: Arc<Callbacks>,
}

pub(crate) struct Open {
    handle: sys::meron_context,
    shared: Arc<Shared>,
}

impl Open {
    /// Takes a context over.
    pub fn new(handle: sys::meron_context, callbacks: Arc<Callbacks>, memory: Memory) -> Arc<Open> {
        Arc::new_cyclic(|open| Open {
            handle,
            shared: Arc::new(Shared {
                open: open.clone(),
                closed: AtomicBool::new(false),
                abandoned: Mutex::new(Vec::new()),
                units: Mutex::new(Vec::new()),
                memory,
                _callbacks: callbacks,
            }),
        })
    }

    pub fn handle(&self) -> sys::meron_context {
        self.handle
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Closes the library's context now, and says how that went.
    pub fn close(mut self) -> Result<()> {
        let handle = std::mem::take(&mut self.handle);
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        check(|err| unsafe { sys::meron_context_close(handle, err) })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.handle.id != 0 {
            // SAFETY: as in `close`. In a forked child this is an error, and does nothing.
            unsafe { sys::meron_context_close(self.handle, std::ptr::null_mut()) };
        }
    }
}

impl Shared {
    /// Keeps the context open. An error when it was closed.
    #[inline]
    pub fn open(&self) -> Result<Arc<Open>> {
        self.require_open()?;
        self.open.upgrade().ok_or_else(Error::closed)
    }

    /// An error when the context was closed. (Another thread may close it right after: then the
    /// library finds the handle stale.)
    #[inline]
    pub fn require_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        Ok(())
    }

    /// From now on nothing new is begun.
    pub fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Notes a unit that was made.
    pub fn add_unit(&self, unit: &Arc<UnitState>) {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        units.retain(|unit| unit.strong_count() > 0);
        units.push(Arc::downgrade(unit));
    }

    /// The units of the context whose memory anything in this process may show.
    pub fn units(&self) -> Vec<Arc<UnitState>> {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        units.iter().filter_map(Weak::upgrade).collect()
    }

    /// Keeps an array for as long as the operation may use it.
    pub fn abandon(&self, operation: Operation, array: Box<dyn Any + Send>) {
        self.sweep();
        self.list().push((operation, array));
    }

    /// Frees arrays of operations that have ended.
    pub fn sweep(&self) {
        let mut list = std::mem::take(&mut *self.list());
        list.retain(|(operation, _)| operation.may_use_memory());
        self.list().append(&mut list);
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<(Operation, Box<dyn Any + Send>)>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What methods.rs calls the library with.
pub(crate) trait ForCall {
    type Raw;

    /// The handle, for a call; an error when the context was closed.
    fn for_call(&self) -> Result<Self::Raw>;
}

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
                sys::$release(self, err)
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

/// A handle that is released when it is dropped, on any thread.
pub(crate) struct Owned<H: Handle>(H);

impl<H: Handle> Owned<H> {
    #[inline]
    pub fn new(handle: H) -> Owned<H> {
        Owned(handle)
    }

    #[inline]
    pub fn raw(&self) -> H {
        self.0
    }

    /// Releases it now, and says how that went.
    #[inline]
    pub fn release(self) -> Result<()> {
        let handle = self.into_raw();
        // SAFETY: see Handle::release.
        check(|err| unsafe { handle.release(err) })
    }

    /// Gives the handle to a call that ends it.
    #[inline]
    pub fn into_raw(self) -> H {
        let handle = self.0;
        std::mem::forget(self);
        handle
    }
}

impl<H: Handle> Drop for Owned<H> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: see Handle::release. What is stale by now (its context was closed) gives an error,
        // and there is nothing left to do.
        unsafe { self.0.release(std::ptr::null_mut()) };
    }
}
