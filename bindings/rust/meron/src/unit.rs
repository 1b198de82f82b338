// SPDX-License-Identifier: Apache-2.0
//! Units: params that are gathered and reduced together.

use std::fmt;
use std::sync::Arc;

use meron_sys as sys;

use crate::borrow::{InUse, UnitState, Use};
use crate::call::{c_string, check, receive, sized};
use crate::context::Context;
use crate::error::Result;
use crate::group::table;
use crate::handle::Owned;
use crate::home::{ForCall, Shared};
use crate::param::Param;
use crate::values::{Activity, Codec};

/// Params that are gathered and reduced together, such as a layer's. Made by
/// [`Context::unit`](crate::Context::unit).
///
/// Dropping it releases the handle; the memory stays until the context is closed, because peers may
/// read it.
pub struct Unit(Arc<Inner>);

struct Inner {
    handle: Owned<sys::meron_unit>,
    shared: Arc<Shared>,
    state: Arc<UnitState>,
}

/// Information about a unit on this rank.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct UnitInfo {
    /// Current use of it.
    pub activity: Activity,
    /// Of the values; 0 until the first update.
    pub version: u64,
    /// Gathers and DLPack tensors that hold it.
    pub leases: u32,
    /// True if a reduced gradient waits for an optimizer's step.
    pub reduced: bool,
    /// Codec of values between replicas: the plan's, or bf16 if its error was above the plan's
    /// limit.
    pub param_codec: Codec,
    /// The same for gradients.
    pub gradient_codec: Codec,
    /// Relative error of this rank's last encoding of values: |x - decoded x| / |x| in the 2-norm.
    /// 0 before the first one, and without a codec; NaN or infinite if values were.
    pub param_error: f64,
    /// The same of the block that lost most.
    pub param_worst_block: f64,
    /// Relative error of this rank's last encoding of gradients, as `param_error`.
    pub gradient_error: f64,
    /// The same of the block that lost most.
    pub gradient_worst_block: f64,
}

impl ForCall for Unit {
    type Raw = sys::meron_unit;

    fn for_call(&self) -> Result<sys::meron_unit> {
        self.shared().require_open()?;
        Ok(self.as_raw())
    }
}

impl Unit {
    pub(crate) fn create(context: &Context, name: &str, params: &[&Param]) -> Result<Unit> {
        let c_name = c_string(name, "the name of a unit")?;
        let handles: Vec<_> = params.iter().map(|param| param.as_raw()).collect();
        // SAFETY: name and handles are only read, during the call.
        let handle = receive(sys::meron_unit::default(), |out, err| unsafe {
            let (first, count) = (table(&handles), handles.len());
            sys::meron_unit_create(out, context.as_raw(), c_name.as_ptr(), first, count, err)
        })?;
        let state = UnitState::new(name, handles.iter().map(|handle| handle.id).collect());
        context.shared().add_unit(&state);
        let shared = context.shared().clone();
        Ok(Unit(Arc::new(Inner { handle: Owned::new(handle), shared, state })))
    }

    /// The name, unique in the context.
    pub fn name(&self) -> &str {
        &self.0.state.name
    }

    /// Information about the unit on this rank. Never blocks.
    pub fn info(&self) -> Result<UnitInfo> {
        let raw = self.raw_info()?;
        Ok(UnitInfo {
            activity: Activity::of(raw.state),
            version: raw.version,
            leases: raw.leases,
            reduced: raw.reduced != 0,
            param_codec: Codec::of(raw.param_codec),
            gradient_codec: Codec::of(raw.gradient_codec),
            param_error: raw.param_error,
            param_worst_block: raw.param_worst_block,
            gradient_error: raw.gradient_error,
            gradient_worst_block: raw.gradient_worst_block,
        })
    }

    pub(crate) fn raw_info(&self) -> Result<sys::meron_unit_info> {
        self.shared().require_open()?;
        // SAFETY: `out` says its size, and is valid during the call.
        receive(sized!(meron_unit_info), |out, err| unsafe {
            sys::meron_unit_get_info(out, self.as_raw(), err)
        })
    }

    /// Releases the memory and the names of the unit and its params, whose handles become stale.
    /// Collective over their group; no rank creates units or groups meanwhile.
    ///
    /// Blocks until every rank has called it and no rank uses the unit, at most the deadline.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) where the unit is in use on this rank, or belongs to a schedule
    /// or an optimizer; [`Unsupported`](crate::ErrorKind::Unsupported) where it resides on devices that
    /// are joined.
    pub fn destroy(&self) -> Result<()> {
        let _use = InUse::begin(self.state(), Use::Gradient)?;
        self.shared().require_open()?;
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        check(|err| unsafe { sys::meron_unit_destroy(self.as_raw(), err) })
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn state(&self) -> &Arc<UnitState> {
        &self.0.state
    }

    /// The same unit, for its guards.
    pub(crate) fn share(&self) -> Unit {
        Unit(self.0.clone())
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    #[inline]
    pub fn as_raw(&self) -> sys::meron_unit {
        self.0.handle.raw()
    }

    /// Releases the handle, as dropping it does. [`Gradients`](crate::Gradients) and
    /// [`Reduced`](crate::Reduced) keep it as long as they live.
    pub fn release(self) -> Result<()> {
        Arc::try_unwrap(self.0).map_or(Ok(()), |inner| inner.handle.release())
    }
}

impl Context {
    /// Puts params of one group together into a unit, and reserves the memory that the plan gives it on
    /// this rank. Values are zero at version 0. Collective over the params' group; never blocks on peers.
    ///
    /// # Errors
    ///
    /// [`Duplicate`](crate::ErrorKind::Duplicate) (a param twice, or in a unit already, or the name),
    /// [`NoMemory`](crate::ErrorKind::NoMemory) with figures, [`Argument`](crate::ErrorKind::Argument).
    pub fn unit(&self, name: &str, params: &[&Param]) -> Result<Unit> {
        Unit::create(self, name, params)
    }
}

/// The handles of some units, as the library takes them.
pub(crate) fn raw_units(units: &[&Unit]) -> Vec<sys::meron_unit> {
    units.iter().map(|unit| unit.as_raw()).collect()
}

/// Shared state of the units' context, which owns the memory of their views. Returns None for an
/// empty list, and any of several contexts: the library then returns the error.
pub(crate) fn home_of<'u>(units: &[&'u Unit]) -> Option<&'u Arc<Shared>> {
    units.first().map(|unit| unit.shared())
}

impl fmt::Debug for Unit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Unit({:?}, {} params)", self.name(), self.state().params.len())
    }
}
