// SPDX-License-Identifier: Apache-2.0
//! Groups of ranks, and the collectives on plain memory.

use std::fmt;
use std::mem::size_of;
use std::os::raw::c_void;
use std::ptr;
use std::sync::Arc;

use meron_sys as sys;

use crate::call::{c_string, check};
use crate::dtype::{Number, Plain};
use crate::error::Result;
use crate::handle::Owned;
use crate::home::{ForCall, Shared};
use crate::operation::{begin, Transfer};
use crate::values::ReduceOp;

/// Some ranks, or all: [`Context::world`](crate::Context::world),
/// [`Context::group`](crate::Context::group).
///
/// The ranks of a group begin their collectives on it in the same order; ranks that diverge get an error
/// of kind [`Mismatch`](crate::ErrorKind::Mismatch) that names both calls.
pub struct Group {
    handle: Owned<sys::meron_group>,
    shared: Arc<Shared>,
}

impl ForCall for Group {
    type Raw = sys::meron_group;

    fn for_call(&self) -> Result<sys::meron_group> {
        self.shared().require_open()?;
        Ok(self.as_raw())
    }
}

impl Group {
    pub(crate) fn new(handle: sys::meron_group, shared: &Arc<Shared>) -> Group {
        Group { handle: Owned::new(handle), shared: shared.clone() }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// `Ok` while the group is whole, else the error that broke it. Looks whether peers are alive; never
    /// blocks.
    pub fn status(&self) -> Result<()> {
        self.shared.require_open()?;
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        check(|err| unsafe { sys::meron_group_status(self.as_raw(), err) })
    }

    /// Breaks the group on every rank: waits under way end with an error of kind
    /// [`Aborted`](crate::ErrorKind::Aborted), which carries `reason` (at most 200 bytes of it).
    pub fn abort(&self, reason: &str) -> Result<()> {
        self.shared.require_open()?;
        let reason = c_string(reason, "the reason")?;
        // SAFETY: the text is only read, during the call.
        check(|err| unsafe { sys::meron_group_abort(self.as_raw(), reason.as_ptr(), err) })
    }

    /// Begins to send an array from rank `root` of the group to the others, which pass arrays of the same
    /// length; all get it back with the root's values.
    ///
    /// The operation owns the array: one that was borrowed could go while peers still read it.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for a root outside of the group; errors of the group.
    pub fn broadcast_begin<T: Plain>(&self, mut array: Vec<T>, root: i32) -> Result<Transfer<T>> {
        let handle = self.for_call()?;
        let data = array.as_mut_ptr() as *mut c_void;
        let bytes = array.len() * size_of::<T>();
        // SAFETY: the array is kept until the operation has ended (Transfer), and no other code
        // accesses it.
        let begun = begin(&self.shared, |out, err| unsafe {
            sys::meron_broadcast_begin(out, handle, data, bytes, root, err)
        })?;
        Ok(Transfer::new(begun, &self.shared, array))
    }

    /// Sends the root's values to all ranks, by way of a copy. Blocks as
    /// [`Operation::wait`](crate::Operation::wait); when that fails, the values are as before.
    pub fn broadcast<T: Plain>(&self, values: &mut [T], root: i32) -> Result<()> {
        values.copy_from_slice(&self.broadcast_begin(values.to_vec(), root)?.wait()?);
        Ok(())
    }

    /// Begins to combine arrays of all ranks, element by element, in rank order, so that every rank gets
    /// the same bits in every run. Sums of 16-bit elements are in f32; a sum of `i64` wraps around, and a
    /// mean of it is an [`Argument`](crate::ErrorKind::Argument) error. Made for small arrays (losses,
    /// metrics, counts).
    ///
    /// The operation owns the array, as with [`broadcast_begin`](Group::broadcast_begin).
    pub fn all_reduce_begin<T: Number>(
        &self,
        mut array: Vec<T>,
        op: ReduceOp,
    ) -> Result<Transfer<T>> {
        let handle = self.for_call()?;
        let data = array.as_mut_ptr() as *mut c_void;
        let (count, dtype) = (array.len(), T::CODE);
        // SAFETY: as in `broadcast_begin`.
        let begun = begin(&self.shared, |out, err| unsafe {
            sys::meron_all_reduce_begin(out, handle, data, count, dtype, op.code(), err)
        })?;
        Ok(Transfer::new(begun, &self.shared, array))
    }

    /// Combines values of all ranks in place, by way of a copy. Blocks as
    /// [`Operation::wait`](crate::Operation::wait); when that fails, the values are as before.
    pub fn all_reduce<T: Number>(&self, values: &mut [T], op: ReduceOp) -> Result<()> {
        values.copy_from_slice(&self.all_reduce_begin(values.to_vec(), op)?.wait()?);
        Ok(())
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_group {
        self.handle.raw()
    }

    /// Releases the group, as dropping it does. Params and operations keep it while they need it.
    pub fn release(self) -> Result<()> {
        self.handle.release()
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank(), self.size()) {
            (Ok(rank), Ok(size)) => write!(formatter, "Group(rank {rank} of {size})"),
            (Err(error), _) | (_, Err(error)) => write!(formatter, "Group({error})"),
        }
    }
}

/// A group where one is optional: null stands for the world.
pub(crate) fn raw_group(group: Option<&Group>) -> sys::meron_group {
    group.map_or(sys::meron_group::default(), Group::as_raw)
}

/// A table as the library takes it: null when it is empty.
pub(crate) fn table<T>(items: &[T]) -> *const T {
    if items.is_empty() {
        ptr::null()
    } else {
        items.as_ptr()
    }
}
