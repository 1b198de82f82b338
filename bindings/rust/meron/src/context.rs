// SPDX-License-Identifier: Apache-2.0
//! The context: this rank's engine.

use std::fmt;
use std::sync::Arc;

use meron_sys as sys;

use crate::call::{check, copy_text, receive, sized};
use crate::error::Result;
use crate::group::Group;
use crate::home::{ForCall, Open, Shared};
use crate::values::{Prediction, Stats, Workload};

/// This rank's engine: what all params, units and operations are made from.
///
/// Shared between threads as it is: all calls are safe from any of them.
///
/// **Closing.** [`close`](Context::close), or dropping the context, ends its use: calls on what was
/// made from it give errors of kind [`Closed`](crate::ErrorKind::Closed) or
/// [`Stale`](crate::ErrorKind::Stale), and threads that wait are woken with such an error. Memory that
/// is being looked at stays: the library's side is closed when the last gather, update, gradient,
/// state or DLPack tensor is gone (one that a thread waits for counts too). Peers that still need this
/// rank then get [`PeerClosed`](crate::ErrorKind::PeerClosed).
///
/// ```
/// use meron::Context;
///
/// let context = Context::open()?; // rank and world from the environment; alone without one
/// let table = context.param("table", &[8, 1000])?;
/// let unit = context.unit("table", &[&table])?;
///
/// let mut update = context.update(&[&unit])?;
/// update.write(&table, &vec![1.0f32; 8000])?;
/// update.publish()?;
///
/// let full = unit.gather()?;
/// assert_eq!(full.view(&table)?.as_slice::<f32>()?[7999], 1.0);
/// # Ok::<(), meron::Error>(())
/// ```
pub struct Context {
    open: Arc<Open>,
    rank: i32,
    world_size: i32,
    transport: String,
}

impl ForCall for Context {
    type Raw = sys::meron_context;

    fn for_call(&self) -> Result<sys::meron_context> {
        Ok(self.as_raw())
    }
}

impl Context {
    pub(crate) fn new(open: Arc<Open>) -> Result<Context> {
        let handle = open.handle();
        // SAFETY: `out` is valid during the calls; the transport's name is a static string.
        unsafe {
            let rank = receive(0, |out, err| sys::meron_context_rank(out, handle, err))?;
            let world_size =
                receive(0, |out, err| sys::meron_context_world_size(out, handle, err))?;
            let transport = copy_text(|out, err| sys::meron_context_transport(out, handle, err))?;
            Ok(Context { open, rank, world_size, transport })
        }
    }

    // ---- Looking at it -------------------------------------------------------------------------

    /// This rank, 0 to world size - 1.
    pub fn rank(&self) -> i32 {
        self.rank
    }

    /// The number of ranks.
    pub fn world_size(&self) -> i32 {
        self.world_size
    }

    /// The transport in use: `"self"`, `"local"`, `"shm"`, `"cluster"`, `"mpi"` or the name of a
    /// custom one.
    pub fn transport(&self) -> &str {
        &self.transport
    }

    /// Advances every operation that can advance, without waiting. Waits do the same; a trainer that
    /// computes for long between begin and wait may call it in between. Never blocks on peers.
    ///
    /// # Errors
    ///
    /// As [`Operation::wait`](crate::Operation::wait).
    pub fn progress(&self) -> Result<()> {
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        check(|err| unsafe { sys::meron_context_progress(self.as_raw(), err) })?;
        self.shared().sweep();
        Ok(())
    }

    /// The counters, and the memory of this moment.
    pub fn stats(&self) -> Result<Stats> {
        // SAFETY: `out` says its size, and is valid during the call.
        let raw = receive(sized!(meron_stats), |out, err| unsafe {
            sys::meron_context_stats(out, self.as_raw(), err)
        })?;
        Ok(Stats::of(&raw))
    }

    /// The plan's predictions for this rank and its current units. The counters of
    /// [`stats`](Context::stats) grow by exactly these bytes per step of that workload.
    pub fn predict(&self, workload: &Workload) -> Result<Prediction> {
        let workload = workload.raw();
        // SAFETY: as in `stats`; `workload` is only read, during the call.
        let raw = receive(sized!(meron_prediction), |out, err| unsafe {
            sys::meron_context_predict(out, self.as_raw(), &workload, err)
        })?;
        Ok(Prediction::of(&raw))
    }

    // ---- Groups --------------------------------------------------------------------------------

    /// The group of all ranks.
    pub fn world(&self) -> Result<Group> {
        // SAFETY: `out` is valid during the call.
        receive(sys::meron_group::default(), |out, err| unsafe {
            sys::meron_context_world(out, self.as_raw(), err)
        })
        .map(|handle| Group::new(handle, self.shared()))
    }

    /// A group of some ranks of the world, each once, in the group's order; `None` on the others.
    /// Collective over the world: every rank calls it with the same list.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for a rank beyond the world or twice,
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for more than 64 groups.
    pub fn group(&self, ranks: &[i32]) -> Result<Option<Group>> {
        // SAFETY: `ranks` is only read, during the call.
        let handle = receive(sys::meron_group::default(), |out, err| unsafe {
            sys::meron_group_create(out, self.as_raw(), ranks.as_ptr(), ranks.len(), err)
        })?;
        Ok(if handle.id == 0 { None } else { Some(Group::new(handle, self.shared())) })
    }

    // ---- Life ----------------------------------------------------------------------------------

    /// Closes the context, like dropping it, and returns the result. Does not wait for peers. A
    /// deferred close (see above) is reported as success.
    ///
    /// # Errors
    ///
    /// [`Forked`](crate::ErrorKind::Forked) in a child process.
    pub fn close(self) -> Result<()> {
        self.shared().set_closed();
        let open = self.open.clone();
        drop(self);
        match Arc::try_unwrap(open) {
            Ok(last) => last.close(),
            Err(_in_use) => Ok(()),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.open.shared()
    }

    /// The handle of the C interface, for calls of `meron-sys`. Closing it makes what this crate shows
    /// of its memory invalid.
    pub fn as_raw(&self) -> sys::meron_context {
        self.open.handle()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.shared().set_closed();
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Context(rank {} of {}, {})", self.rank, self.world_size, self.transport)
    }
}
