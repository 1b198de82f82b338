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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    /// Number of these, so that a call without any takes no lock.
    abandoned_count: AtomicUsize,
    /// Live units, which a load writes.
    units: Mutex<Units>,
    /// Slices of the optimizers' states, exports and loads.
    pub state_uses: Arc<StateUses>,
    /// Of views that are on the device, where there is one.
    pub memory: Memory,
    _callbacks: Arc<Callbacks>,
}

/// Units that were made. Dead ones are removed whenever the list has doubled.
#[derive(Default)]
struct Units {
    all: Vec<Weak<UnitState>>,
    limit: usize,
}

pub(crate) struct Open {
    handle: sys::meron_context,
    shared: Arc<Shared>,
}

impl Open {
    /// Takes a context over.
    pub(crate) fn new(
        handle: sys::meron_context,
        callbacks: Arc<Callbacks>,
        memory: Memory,
    ) -> Arc<Open> {
        Arc::new_cyclic(|open| Open {
            handle,
            shared: Arc::new(Shared {
                open: open.clone(),
                closed: AtomicBool::new(false),
                abandoned: Mutex::default(),
                abandoned_count: AtomicUsize::new(0),
                units: Mutex::default(),
                state_uses: Arc::default(),
                memory,
                _callbacks: callbacks,
            }),
        })
    }

    pub(crate) fn handle(&self) -> sys::meron_context {
        self.handle
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Closes the library's context now, and says how that went.
    pub(crate) fn close(mut self) -> Result<()> {
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
    pub(crate) fn open(&self) -> Result<Arc<Open>> {
        self.require_open()?;
        self.open.upgrade().ok_or_else(Error::closed)
    }

    /// An error when the context was closed. (Another thread may close it right after: then the
    /// library finds the handle stale.)
    #[inline]
    pub(crate) fn require_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        Ok(())
    }

    /// From now on nothing new is begun.
    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Notes a unit that was made.
    pub(crate) fn add_unit(&self, unit: &Arc<UnitState>) {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        if units.all.len() >= units.limit {
            units.all.retain(|unit| unit.strong_count() > 0);
            units.limit = 2 * units.all.len() + 16;
        }
        units.all.push(Arc::downgrade(unit));
    }

    /// The units of the context whose memory anything in this process may show.
    pub(crate) fn units(&self) -> Vec<Arc<UnitState>> {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        units.all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Keeps an array for as long as the operation may use it.
    pub(crate) fn abandon(&self, future: RawFuture, array: Box<dyn Any + Send>) {
        self.sweep();
        let mut list = self.list();
        list.push((future, array));
        self.abandoned_count.store(list.len(), Ordering::Release);
    }

    /// Frees arrays of operations that have ended. Every call that begins or waits for an operation
    /// does it.
    #[inline]
    pub(crate) fn sweep(&self) {
        if self.abandoned_count.load(Ordering::Acquire) > 0 {
            self.sweep_list();
        }
    }

    #[cold]
    fn sweep_list(&self) {
        // A poll may call closures of the program, so it takes place outside of the lock.
        let mut taken = std::mem::take(&mut *self.list());
        taken.retain(|(future, _)| future.may_use_memory());
        let mut list = self.list();
        list.append(&mut taken);
        self.abandoned_count.store(list.len(), Ordering::Release);
    }

    /// Number of operations whose arrays are kept.
    #[cfg(test)]
    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned_count.load(Ordering::Acquire)
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
