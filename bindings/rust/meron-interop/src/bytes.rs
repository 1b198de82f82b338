// SPDX-License-Identifier: Apache-2.0
//! Views as bytes, and as slices of a program's own types.

use bytemuck::Pod;
use meron::{Bf16, Dtype, Result, View, F16};

/// The bytes of a view, in the host's order. Nothing is copied.
///
/// # Errors
///
/// None today: every dtype that a view may have is plain.
pub fn as_bytes<'a>(view: &View<'a>) -> Result<&'a [u8]> {
    Ok(match view.dtype() {
        Dtype::Bf16 => bytemuck::cast_slice(Bf16::slice_to_bits(view.as_slice()?)),
        Dtype::F16 => bytemuck::cast_slice(F16::slice_to_bits(view.as_slice()?)),
        _ => bytemuck::cast_slice(view.as_slice::<f32>()?),
    })
}

/// The elements of a view as values of a type of the program's own, of the elements' size. `None` if
/// the type has another size. Nothing is copied.
///
/// ```
/// # let context = meron::Context::open()?;
/// # let weight = context.param("weight", &[3])?;
/// # let unit = context.unit("layer", &[&weight])?;
/// let full = unit.gather()?;
/// let bits: &[u32] = meron_interop::as_pod(&full.view(&weight)?)?.unwrap();
/// assert_eq!(bits, [0; 3]);
/// # Ok::<(), meron::Error>(())
/// ```
///
/// # Errors
///
/// As of [`as_bytes`].
pub fn as_pod<'a, T: Pod>(view: &View<'a>) -> Result<Option<&'a [T]>> {
    let bytes = as_bytes(view)?;
    if std::mem::size_of::<T>() != view.dtype().size() {
        return Ok(None);
    }
    Ok(bytemuck::try_cast_slice(bytes).ok())
}
