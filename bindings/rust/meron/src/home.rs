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

use crate::borrow::{StateUses, UnitState};
use crate::call::check;
use crate::callbacks::Callbacks;
use crate::device::Memory;
use crate::error::{Error, Result};
use crate::raw_future::RawFuture;

pub(crate) struct Shared {
    open: Weak<Open>,
    closed: AtomicBool,
    /// Arrays of abandoned operations. They are freed when the operation has ended, or after the
    /// context is closed: with the last `Arc<Shared>`; `Open` has one of these.
    abandoned: Mutex<Vec<(RawFuture, Box<dyn Any + Send>)>>,
    /// Live units, which a load writes.
    units: Mutex<Vec<Weak<UnitState>>>,
    /// Slices of the optimizers' states, exports and loads.
    pub state_uses: Arc<StateUses>,
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
                state_uses: Arc::default(),
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
    pub fn abandon(&self, future: RawFuture, array: Box<dyn Any + Send>) {
        self.sweep();
        self.list().push((future, array));
    }

    /// Frees arrays of operations that have ended.
    pub fn sweep(&self) {
        let mut list = std::mem::take(&mut *self.list());
        list.retain(|(future, _)| future.may_use_memory());
        self.list().append(&mut list);
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<(RawFuture, Box<dyn Any + Send>)>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Arguments with which methods.rs calls the library.
pub(crate) trait ForCall {
    type Raw;

    /// The handle, for a call; an error when the context was closed.
    fn for_call(&self) -> Result<Self::Raw>;
}
