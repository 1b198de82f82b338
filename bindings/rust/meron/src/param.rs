// SPDX-License-Identifier: Apache-2.0
//! Params: named tensors that ranks share.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use meron_sys as sys;

use crate::call::{c_string, receive, sized};
use crate::context::Context;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::group::{raw_group, table, Group};
use crate::handle::Owned;
use crate::home::{ForCall, Shared};

/// Description of a param, for [`Context::register`](crate::Context::register).
///
/// ```
/// # let context = meron::Context::open()?;
/// use meron::{Dtype, ParamDesc};
///
/// let weight = context.register(&ParamDesc::new("head.weight", &[256, 512]).dtype(Dtype::Bf16))?;
/// let scale = context.register(&ParamDesc::new("head.scale", &[]).frozen(true))?;
/// assert_eq!((weight.count(), scale.count()), (256 * 512, 1));
/// # Ok::<(), meron::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ParamDesc<'a> {
    name: &'a str,
    shape: &'a [i64],
    dtype: Dtype,
    frozen: bool,
    group: Option<&'a Group>,
}

impl<'a> ParamDesc<'a> {
    /// A tensor of f32 that is trained and that all ranks share.
    ///
    /// `name` is unique in the context, 1 to 512 bytes; `shape` is row-major, each size 0 or more; an
    /// empty one is a scalar.
    pub fn new(name: &'a str, shape: &'a [i64]) -> ParamDesc<'a> {
        ParamDesc { name, shape, dtype: Dtype::F32, frozen: false, group: None }
    }

    /// The type of the values that are gathered.
    pub fn dtype(mut self, dtype: Dtype) -> ParamDesc<'a> {
        self.dtype = dtype;
        self
    }

    /// Whether it has no gradient and no optimizer state.
    pub fn frozen(mut self, frozen: bool) -> ParamDesc<'a> {
        self.frozen = frozen;
        self
    }

    /// The ranks that share it.
    pub fn group(mut self, group: &'a Group) -> ParamDesc<'a> {
        self.group = Some(group);
        self
    }
}

/// A named tensor that the ranks of a group share. Made by [`Context::param`](crate::Context::param).
pub struct Param {
    handle: Owned<sys::meron_param>,
    shared: Arc<Shared>,
    name: String,
    shape: Vec<i64>,
    dtype: Dtype,
    count: u64,
    frozen: bool,
}

impl ForCall for Param {
    type Raw = sys::meron_param;

    fn for_call(&self) -> Result<sys::meron_param> {
        self.shared().require_open()?;
        Ok(self.as_raw())
    }
}

impl Param {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn register(context: &Context, desc: &ParamDesc<'_>) -> Result<Param> {
        let name = c_string(desc.name, "the name of a param")?;
        let dims = u32::try_from(desc.shape.len())
            .map_err(|_| Error::argument(desc.name, "the shape has too many dimensions", ""))?;
        let raw = sys::meron_param_desc {
            dtype: desc.dtype.code(),
            name: name.as_ptr(),
            shape: table(desc.shape),
            dims,
            frozen: u32::from(desc.frozen),
            group: raw_group(desc.group),
            ..sys::MERON_PARAM_DESC_INIT
        };
        // SAFETY: name and shape live during the call, which copies them.
        let handle = receive(sys::meron_param::default(), |out, err| unsafe {
            sys::meron_param_register(out, context.as_raw(), &raw, err)
        })?;
        let handle = Owned::new(handle);
        let info = read_info(handle.raw())?;
        Ok(Param {
            handle,
            shared: context.shared().clone(),
            name: desc.name.to_string(),
            shape: desc.shape.to_vec(),
            dtype: desc.dtype,
            count: info.count,
            frozen: desc.frozen,
        })
    }

    /// The name, unique in the context.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape of the whole tensor, row-major; empty for a scalar.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The type of the values that are gathered.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Elements of the whole tensor.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether it has no gradient and no optimizer state.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// The elements, row-major, that this rank updates; empty before the param is in a unit.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::ErrorKind::Closed) after the context was closed.
    pub fn shard_range(&self) -> Result<Range<u64>> {
        self.shared.require_open()?;
        let info = read_info(self.as_raw())?;
        Ok(info.shard_offset..info.shard_offset + info.shard_count)
    }

    /// The index in [`Unit::flats`](crate::Unit::flats) of the flat that has it; 0 before the param is
    /// in a unit. Errors as of [`shard_range`](Param::shard_range).
    pub fn flat(&self) -> Result<usize> {
        self.shared.require_open()?;
        Ok(read_info(self.as_raw())?.flat as usize)
    }

    /// The elements of its flat that are the param's, row-major. Errors as of
    /// [`shard_range`](Param::shard_range).
    pub fn flat_range(&self) -> Result<Range<usize>> {
        self.shared.require_open()?;
        let first = read_info(self.as_raw())?.flat_offset as usize;
        Ok(first..first + self.count as usize)
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_param {
        self.handle.raw()
    }

    /// Releases the param, as dropping it does. One that is in a unit lives as long as the unit.
    pub fn release(self) -> Result<()> {
        self.handle.release()
    }
}

impl Context {
    /// Registers a param of f32 that is trained and that all ranks share. Else as
    /// [`register`](Context::register).
    pub fn param(&self, name: &str, shape: &[i64]) -> Result<Param> {
        self.register(&ParamDesc::new(name, shape))
    }

    /// Registers a param. Collective over its group: all ranks register the same params in the same
    /// order. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (a negative or overflowing shape, a name with NUL),
    /// [`Duplicate`](crate::ErrorKind::Duplicate), [`Mismatch`](crate::ErrorKind::Mismatch).
    pub fn register(&self, desc: &ParamDesc<'_>) -> Result<Param> {
        Param::register(self, desc)
    }
}

fn read_info(param: sys::meron_param) -> Result<sys::meron_param_info> {
    // SAFETY: `out` says its size, and is valid during the call.
    receive(sized!(meron_param_info), |out, err| unsafe {
        sys::meron_param_get_info(out, param, err)
    })
}

impl fmt::Debug for Param {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Param({:?}: {} {:?})", self.name, self.dtype, self.shape)
    }
}
