// SPDX-License-Identifier: Apache-2.0
//! Full tensors on demand.

use std::future::Future;
use std::os::raw::c_void;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use meron_sys as sys;

use crate::call::{nanoseconds, NO_TIMEOUT};
use crate::context::Context;
use crate::device::{Memory, Stream};
use crate::dlpack::DlpackTensor;
use crate::error::{Error, Result};
use crate::handle::debug_by_handle;
use crate::home::Shared;
use crate::lease::Lease;
use crate::operation::poll_state;
use crate::param::Param;
use crate::unit::{home_of, raw_units, Unit};
use crate::values::Tier;
use crate::view::View;
use crate::wake::Backoff;

/// Units on their way to full. It holds leases on them already: none of them can be updated on this rank
/// until it, or the [`Gather`] that becomes of it, is dropped.
///
/// It is also a [`std::future::Future`], which polls as [`Operation`](crate::Operation) does.
#[must_use = "a gather has to be waited for before its tensors can be viewed"]
pub struct PendingGather {
    lease: Option<Lease>,
    backoff: Backoff,
}

debug_by_handle! {
    [] PendingGather: "PendingGather",
    [] Gather: "Gather",
}

impl PendingGather {
    #[inline]
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        units: &[sys::meron_unit],
        tier: Tier,
    ) -> Result<PendingGather> {
        let lease = match tier {
            Tier::Device => Lease::begin(shared, units, ptr::null(), shared.memory),
            Tier::Host => {
                let options = sys::meron_gather_options {
                    tier: sys::MERON_TIER_HOST,
                    ..sys::MERON_GATHER_OPTIONS_INIT
                };
                Lease::begin(shared, units, &options, Memory::Host)
            }
        };
        lease.map(|lease| PendingGather { lease: Some(lease), backoff: Backoff::default() })
    }

    fn lease(&self) -> Result<&Lease> {
        self.lease.as_ref().ok_or_else(|| {
            Error::state("", "this gather has been awaited already", "use what it gave")
        })
    }

    /// Waits until the tensors are full.
    ///
    /// Blocks on peers, at most until the deadline. Every error releases the leases.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::wait`](crate::Operation::wait).
    #[inline]
    pub fn wait(mut self) -> Result<Gather> {
        self.lease()?.wait(NO_TIMEOUT)?;
        self.take()
    }

    /// Makes `stream` wait until the tensors are full on the device, without waiting for the device here:
    /// what is asked of the stream from now on sees them. For tensors on the host it waits.
    ///
    /// Blocks on peers, at most until the deadline. Every error releases the leases.
    ///
    /// # Errors
    ///
    /// Those of [`wait`](PendingGather::wait); [`Argument`](crate::ErrorKind::Argument) when the context has
    /// no device, or the stream is another one's; [`State`](crate::ErrorKind::State) when the stream is
    /// being captured into a graph; [`NoMemory`](crate::ErrorKind::NoMemory) when the device has no room;
    /// [`Device`](crate::ErrorKind::Device).
    pub fn wait_stream(mut self, stream: Stream) -> Result<Gather> {
        self.lease()?.wait_stream(stream)?;
        self.take()
    }

    /// The handle of the C interface, for calls of `meron-sys`; null when it has been awaited.
    pub fn as_raw(&self) -> sys::meron_future {
        self.lease.as_ref().map_or(sys::meron_future::default(), Lease::as_raw)
    }

    /// Waits at most `timeout`. Returns `false` after the timeout, and `true` when the tensors are
    /// full; then [`wait`](PendingGather::wait) returns at once. The gather continues after an
    /// error of kind [`Cancelled`](crate::ErrorKind::Cancelled).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.lease()?.wait(nanoseconds(timeout))
    }

    /// True if the tensors are full; never blocks on peers.
    pub fn is_done(&self) -> Result<bool> {
        self.lease()?.poll()
    }

    #[inline]
    fn take(&mut self) -> Result<Gather> {
        match self.lease.take() {
            Some(lease) => Ok(Gather(lease)),
            None => Err(Error::state("", "this gather has been awaited already", "")),
        }
    }
}

impl Future for PendingGather {
    type Output = Result<Gather>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Result<Gather>> {
        let full = self.is_done().and_then(|done| match done {
            true => self.take().map(Some),
            false => Ok(None),
        });
        poll_state(full, &mut self.backoff, task)
    }
}

/// Whole tensors to read, leased until it is dropped.
///
/// Views live no longer than the gather:
///
/// ```compile_fail,E0505
/// # let context = meron::Context::open()?;
/// # let table = context.param("table", &[8])?;
/// # let unit = context.unit("table", &[&table])?;
/// let full = unit.gather()?;
/// let values = full.view(&table)?.as_slice::<f32>()?;
/// drop(full); // error: `full` is borrowed by `values`
/// println!("{}", values[0]);
/// # Ok::<(), meron::Error>(())
/// ```
pub struct Gather(Lease);

impl Gather {
    /// The whole tensor of a param. Other ranks read the same memory.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) when the param is not in this gather;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) when it is in a device's memory, which the host
    /// cannot read: see [`device_pointer`](Gather::device_pointer) and [`Tier::Host`]. That of the
    /// emulated device it can, and waits here until it is written.
    pub fn view(&self, param: &Param) -> Result<View<'_>> {
        if self.0.memory == Memory::Readable {
            self.0.wait(NO_TIMEOUT)?;
        }
        let raw = self.0.view(param)?;
        // SAFETY: `self` keeps the mapping and the lease, which prevents writes of the values. The
        // emulated device has written its memory, which is the host's.
        unsafe {
            match self.0.memory {
                Memory::Readable => View::of_readable(raw, param),
                _ => View::new(raw, param),
            }
        }
    }

    /// Address of the full tensor of a param, row-major. If the gather is on the device, the
    /// address is one of the device: read it by work of a stream that [waits](Gather::wait_stream)
    /// for it. No code may write it, and it is valid until this gather is dropped or released.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) when the param is not in this gather.
    pub fn device_pointer(&self, param: &Param) -> Result<*const c_void> {
        Ok(self.0.view(param)?.data as *const c_void)
    }

    /// Makes another stream wait for the tensors; as [`PendingGather::wait_stream`].
    pub fn wait_stream(&self, stream: Stream) -> Result<()> {
        self.0.wait_stream(stream).map(drop)
    }

    /// The same for other libraries, with a lease of its own that outlives this gather; also of a device's
    /// memory, to be read by what is asked of a stream that [waits](Gather::wait_stream) for this gather.
    pub fn dlpack(&self, param: &Param) -> Result<DlpackTensor> {
        if self.0.memory == Memory::Readable {
            self.0.wait(NO_TIMEOUT)?;
        }
        self.0.dlpack(param)
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_future {
        self.0.as_raw()
    }

    /// Gives the leases back, as dropping it does, and says how that went.
    #[inline]
    pub fn release(self) -> Result<()> {
        self.0.release()
    }

    /// As [`release`](Gather::release), where work that was asked of `stream` so far still uses the tensors:
    /// their memory on the device goes back when that is done. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument), [`State`](crate::ErrorKind::State) and
    /// [`Device`](crate::ErrorKind::Device) as [`wait_stream`](PendingGather::wait_stream). Such an
    /// error releases the leases like dropping it, even if the stream still uses the memory.
    pub fn release_on_stream(self, stream: Stream) -> Result<()> {
        self.0.release_on_stream(stream)
    }
}

impl Unit {
    /// The unit's whole tensors to read, in place where the plan allows it: begins and waits.
    /// Collective over the unit's group; whether ranks view or copy may differ.
    ///
    /// Blocks on peers until every owner has published, at most until the deadline.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when the unit is being updated on this rank; those of
    /// [`Operation::wait`](crate::Operation::wait).
    #[inline]
    pub fn gather(&self) -> Result<Gather> {
        self.gather_begin()?.wait()
    }

    /// Begins a gather and returns at once (unless this rank is 1,024 operations ahead of a peer).
    #[inline]
    pub fn gather_begin(&self) -> Result<PendingGather> {
        self.gather_begin_at(Tier::Device)
    }

    /// Begins a gather whose views are in `tier`. Else as [`gather_begin`](Unit::gather_begin).
    #[inline]
    pub fn gather_begin_at(&self, tier: Tier) -> Result<PendingGather> {
        PendingGather::begin(self.shared(), &[self.as_raw()], tier)
    }
}

impl Context {
    /// Begins to gather several units as one operation. Else as
    /// [`Unit::gather_begin`](Unit::gather_begin).
    pub fn gather_begin(&self, units: &[&Unit]) -> Result<PendingGather> {
        self.gather_begin_at(units, Tier::Device)
    }

    /// Begins to gather several units as one operation, with views that are in `tier`. Else as
    /// [`Unit::gather_begin`](Unit::gather_begin).
    pub fn gather_begin_at(&self, units: &[&Unit], tier: Tier) -> Result<PendingGather> {
        let shared = home_of(units).unwrap_or_else(|| self.shared());
        PendingGather::begin(shared, &raw_units(units), tier)
    }
}
