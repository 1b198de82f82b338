// SPDX-License-Identifier: Apache-2.0
//! Flats: the memory of those params of a unit that have one dtype.

use std::fmt;

use meron_sys as sys;

use crate::call::{receive, sized};
use crate::dtype::Dtype;
use crate::error::Result;
use crate::param::Param;
use crate::unit::Unit;

/// Params of a unit that have one dtype and are all trained or all frozen, one after another in
/// memory. [`Unit::flats`] lists them; [`Param::flat`] and [`Param::flat_range`] are the place of a
/// param.
///
/// A gather copies a flat into an array of the program's at once:
///
/// ```
/// # let context = meron::Context::open()?;
/// use meron::Buffer;
///
/// let (weight, bias) = (context.param("weight", &[4, 8])?, context.param("bias", &[8])?);
/// let unit = context.unit("layer", &[&weight, &bias])?;
/// let flats = unit.flats()?;
/// let array = Buffer::zeros(flats[0].dtype(), flats[0].count());
/// let arrays = unit.gather_into_begin(vec![(&flats[0], array)])?.wait()?;
/// assert_eq!(arrays[0].as_slice::<f32>()?[bias.flat_range()?], [0.0; 8]);
/// # Ok::<(), meron::Error>(())
/// ```
///
/// The layout depends only on the unit's params: it is the same on all ranks and under all plans.
#[derive(Clone)]
pub struct Flat {
    unit: sys::meron_unit,
    unit_name: String,
    index: usize,
    dtype: Dtype,
    count: usize,
    frozen: bool,
}

impl Flat {
    /// Its index in [`Unit::flats`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// The type of its values.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Elements, with the padding behind each param.
    pub fn count(&self) -> usize {
        self.count
    }

    /// True if its params are frozen.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    pub(crate) fn raw_unit(&self) -> sys::meron_unit {
        self.unit
    }

    pub(crate) fn unit_name(&self) -> &str {
        &self.unit_name
    }
}

impl Unit {
    /// The flats that its params are in, in the order of their first params. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::ErrorKind::Closed) after the context was closed.
    pub fn flats(&self) -> Result<Vec<Flat>> {
        (0..self.raw_info()?.flats as usize).map(|index| self.flat(index)).collect()
    }

    fn flat(&self, index: usize) -> Result<Flat> {
        // SAFETY: `out` says its size, and is valid during the call.
        let raw = receive(sized!(meron_flat_info), |out, err| unsafe {
            sys::meron_unit_flat(out, self.as_raw(), index as u64, err)
        })?;
        Ok(Flat {
            unit: self.as_raw(),
            unit_name: self.name().to_string(),
            index,
            dtype: Dtype::of(raw.dtype)?,
            count: raw.elements as usize,
            frozen: raw.frozen != 0,
        })
    }
}

/// A param or a flat, which a gather copies into one array of the program's.
#[derive(Clone, Copy, Debug)]
pub enum Gathered<'a> {
    /// The whole tensor of a param.
    Param(&'a Param),
    /// All params of a flat, each at its [`Param::flat_range`]. Padding gets values without a
    /// meaning.
    Flat(&'a Flat),
}

impl Gathered<'_> {
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Gathered::Param(param) => param.dtype(),
            Gathered::Flat(flat) => flat.dtype(),
        }
    }

    /// As errors name it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Gathered::Param(param) => format!("param '{}'", param.name()),
            Gathered::Flat(flat) => format!("flat {} of unit '{}'", flat.index(), flat.unit_name()),
        }
    }

    pub(crate) fn subject(&self) -> &str {
        match self {
            Gathered::Param(param) => param.name(),
            Gathered::Flat(flat) => flat.unit_name(),
        }
    }
}

impl<'a> From<&'a Param> for Gathered<'a> {
    fn from(param: &'a Param) -> Gathered<'a> {
        Gathered::Param(param)
    }
}

impl<'a> From<&'a Flat> for Gathered<'a> {
    fn from(flat: &'a Flat) -> Gathered<'a> {
        Gathered::Flat(flat)
    }
}

impl fmt::Debug for Flat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flat { unit_name, index, dtype, count, .. } = self;
        write!(formatter, "Flat({index} of {unit_name:?}: {count} {dtype:?})")
    }
}
