// SPDX-License-Identifier: Apache-2.0
//! Reductions of gradients.

use std::os::raw::c_void;
use std::time::Duration;

use meron_sys as sys;

use crate::borrow::{InUse, Use};
use crate::call::{call, check, nanoseconds, receive, NO_TIMEOUT};
use crate::context::Context;
use crate::device::Memory;
use crate::dtype::{Dtype, Element};
use crate::error::Result;
use crate::group::table;
use crate::operation::{begin, Operation};
use crate::param::Param;
use crate::unit::{raw_units, Unit};
use crate::values::ReduceOptions;

/// A gradient in the program's memory, for [`Unit::reduce_from`].
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    raw: sys::meron_source,
    on_device: bool,
    lifetime: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> Source<'a> {
    /// The whole gradient of a param, row-major; converted to the plan's gradient dtype.
    pub fn new<T: Element>(param: &Param, values: &'a [T]) -> Source<'a> {
        let raw = sys::meron_source {
            param: param.as_raw(),
            data: values.as_ptr() as *const c_void,
            count: values.len() as u64,
            dtype: T::DTYPE.code(),
            reserved_0: 0,
        };
        Source { raw, on_device: false, lifetime: std::marker::PhantomData }
    }

    /// The whole gradient of a param in memory of the context's device: `count` elements from `data` on,
    /// row-major. It is read after what was asked of [`ReduceOptions::stream`] so far.
    ///
    /// # Safety
    ///
    /// From [`Unit::reduce_from`] or [`Unit::reduce_from_begin`] on until the reduction has ended (as
    /// its [`Operation`], or [`Context::wait_reductions`], says) the memory stays valid, and is not
    /// written: also after an error of a wait.
    pub unsafe fn on_device(
        param: &Param,
        data: *const c_void,
        count: u64,
        dtype: Dtype,
    ) -> Source<'static> {
        let raw = sys::meron_source {
            param: param.as_raw(),
            data,
            count,
            dtype: dtype.code(),
            reserved_0: 0,
        };
        Source { raw, on_device: true, lifetime: std::marker::PhantomData }
    }

    /// A copy of the elements, in memory that is aligned for all of them.
    fn copy(&self) -> Vec<u64> {
        let bytes = self.raw.count as usize * Dtype::of(self.raw.dtype).map_or(0, Dtype::size);
        let mut copy = vec![0_u64; (bytes + 7) / 8];
        // SAFETY: the source is a slice of so many bytes, and the copy has room for them.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.raw.data as *const u8,
                copy.as_mut_ptr() as *mut u8,
                bytes,
            );
        }
        copy
    }
}

impl Unit {
    /// Reduces gradients that are the program's arrays: begins as
    /// [`reduce_from_begin`](Unit::reduce_from_begin) does, and waits for the end. Collective over the
    /// unit's group.
    ///
    /// Blocks on peers, at most until the deadline. If `should_stop` ends the wait, the reduction
    /// continues, and [`Context::wait_reductions`] waits for it again.
    ///
    /// # Errors
    ///
    /// Those of [`reduce_from_begin`](Unit::reduce_from_begin) and [`Operation::wait`].
    pub fn reduce_from(&self, sources: &[Source<'_>], options: &ReduceOptions) -> Result<()> {
        self.reduce_from_begin(sources, options)?.wait()
    }

    /// Begins the reduction of gradients that are the program's arrays. They are read during the call;
    /// params without one count as zero. Collective over the unit's group.
    ///
    /// Blocks on peers that still read the bucket's last contents, at most until the deadline.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (a wrong count, a param of another unit),
    /// [`Duplicate`](crate::ErrorKind::Duplicate), [`State`](crate::ErrorKind::State) (reduced already
    /// and not used, in use, or all params frozen).
    pub fn reduce_from_begin(
        &self,
        sources: &[Source<'_>],
        options: &ReduceOptions,
    ) -> Result<Operation> {
        let _use = InUse::begin(self.state(), Use::Gradient)?;
        let mut raw: Vec<_> = sources.iter().map(|source| source.raw).collect();
        // A slice may be of the emulated device's memory, which is read for longer than the call.
        let mut copies = Vec::new();
        if self.shared().memory == Memory::Readable {
            for (entry, source) in raw.iter_mut().zip(sources).filter(|(_, from)| !from.on_device) {
                copies.push(source.copy());
                entry.data =
                    copies.last().map_or(entry.data, |copy| copy.as_ptr() as *const c_void);
            }
        }
        self.begin_reduction(&raw, options)
    }

    pub(crate) fn begin_reduction(
        &self,
        sources: &[sys::meron_source],
        options: &ReduceOptions,
    ) -> Result<Operation> {
        self.shared().require_open()?;
        let options = options.raw();
        let (first, count) = (table(sources), sources.len());
        // SAFETY: the arrays behind `sources` live as long as their borrows. They are only read,
        // during the call. Memory of the device is read for longer, as the contract of
        // `Source::on_device` requires.
        begin(self.shared(), |out, err| unsafe {
            sys::meron_reduce_begin(out, self.as_raw(), first, count, &options, err)
        })
    }

    /// Ends an accumulation: begins as [`reduce_finish_begin`](Unit::reduce_finish_begin) does, and waits
    /// for the end. Collective over the unit's group.
    ///
    /// Blocks on peers, at most until the deadline. If `should_stop` ends the wait, the reduction
    /// continues, and [`Context::wait_reductions`] waits for it again.
    ///
    /// # Errors
    ///
    /// Those of [`reduce_finish_begin`](Unit::reduce_finish_begin) and [`Operation::wait`].
    pub fn reduce_finish(&self, options: &ReduceOptions) -> Result<()> {
        self.reduce_finish_begin(options)?.wait()
    }

    /// Begins the end of an accumulation whose micro-batches were all reduced with `boundary` false: the
    /// result has the same bits as if the last one had been the boundary. A rank without a gradient takes
    /// part with zeros. Collective over the unit's group.
    ///
    /// Blocks, under a plan that keeps whole gradients, on peers that still read the bucket's last
    /// contents.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) (a gradient was written and not reduced, reduced already and not
    /// used, in use, or all params frozen), [`Argument`](crate::ErrorKind::Argument) for options that are
    /// not of a boundary.
    pub fn reduce_finish_begin(&self, options: &ReduceOptions) -> Result<Operation> {
        let _use = InUse::begin(self.state(), Use::Gradient)?;
        self.shared().require_open()?;
        let options = options.raw();
        // SAFETY: `out` and options are valid during the call.
        begin(self.shared(), |out, err| unsafe {
            sys::meron_reduce_finish_begin(out, self.as_raw(), &options, err)
        })
    }

    /// Throws the reduced gradient away, with the codec's feedback; or the accumulation, before its boundary,
    /// as all ranks then must. After a step of your own optimizer, call `consume` instead.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when there is none, or it is in use.
    pub fn discard_reduced(&self) -> Result<()> {
        let _use = InUse::begin(self.state(), Use::Gradient)?;
        self.discard()
    }

    pub(crate) fn discard(&self) -> Result<()> {
        self.shared().require_open()?;
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        check(|err| unsafe { sys::meron_reduce_discard(self.as_raw(), err) })
    }
}

impl Context {
    /// Returns the exact global 2-norm of the units' reduced gradients, and scales these to a norm of at
    /// most `max_norm`; 0 only measures. For an optimizer of the program's own: norm and gradients have the
    /// bits with which an [`Optimizer`](crate::Optimizer) with `max_norm` works. Collective over the units'
    /// group.
    ///
    /// Blocks until every rank has called it, at most the deadline.
    ///
    /// # Errors
    ///
    /// [`NonFinite`](crate::ErrorKind::NonFinite) on all ranks if a gradient is NaN or infinite, with its
    /// param, element and rank: no gradient was changed. [`State`](crate::ErrorKind::State) for a unit that
    /// is not reduced or in use, [`Argument`](crate::ErrorKind::Argument) for no unit or a `max_norm` that
    /// is negative or infinite.
    pub fn clip_gradients(&self, units: &[&Unit], max_norm: f64) -> Result<f64> {
        let states: Vec<_> = units.iter().map(|unit| unit.state().clone()).collect();
        let _uses = InUse::begin_all(&states, Use::Gradient)?;
        let handles = raw_units(units);
        let (first, count) = (table(&handles), handles.len());
        // SAFETY: the handles are only read, during the call; no other code has the gradients.
        receive(0.0, |out, err| unsafe {
            sys::meron_gradient_clip(out, first, count, max_norm, err)
        })
    }

    /// Waits until the last reduction and the last end of an accumulation of each of these units
    /// have ended, also if their [`Operation`](crate::Operation)s were dropped. One call for many
    /// units, also of several groups; a unit with no reduction counts as done.
    ///
    /// Blocks on peers, at most until each operation's deadline.
    ///
    /// # Errors
    ///
    /// Those of [`Operation::wait`](crate::Operation::wait); [`Argument`](crate::ErrorKind::Argument) for
    /// no unit, [`Handle`](crate::ErrorKind::Handle) for units of several contexts.
    pub fn wait_reductions(&self, units: &[&Unit]) -> Result<()> {
        self.wait_reductions_ns(units, NO_TIMEOUT).map(drop)
    }

    /// Waits at most `timeout` for all of them. Returns `false` after the timeout; all continue.
    /// Else as [`wait_reductions`](Context::wait_reductions).
    pub fn wait_reductions_timeout(&self, units: &[&Unit], timeout: Duration) -> Result<bool> {
        self.wait_reductions_ns(units, nanoseconds(timeout))
    }

    fn wait_reductions_ns(&self, units: &[&Unit], timeout: i64) -> Result<bool> {
        let handles = raw_units(units);
        let (first, count) = (table(&handles), handles.len());
        // SAFETY: the handles are only read, during the call; what is borrowed keeps the closures alive
        // that waiting may call.
        call(|err| unsafe { sys::meron_reduce_wait(first, count, timeout, err) })
    }
}
