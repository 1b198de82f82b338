// SPDX-License-Identifier: Apache-2.0
//! Views as arrays of `ndarray`.

use meron::{Element, Result, View, ViewMut};
use ndarray::{ArrayViewD, ArrayViewMutD, IxDyn};

fn sizes(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|&size| size as usize).collect()
}

/// The elements of a view as an array of the view's [`shape`](View::shape). Nothing is copied.
///
/// # Errors
///
/// [`Argument`](meron::ErrorKind::Argument) if they are of another type.
pub fn as_array<'a, T: Element>(view: &View<'a>) -> Result<ArrayViewD<'a, T>> {
    let (shape, values) = (sizes(view.shape()), view.as_slice::<T>()?);
    Ok(ArrayViewD::from_shape(IxDyn(&shape), values).expect("a view has the elements of its shape"))
}

/// The elements of a view to write, as an array of the view's [`shape`](ViewMut::shape). Nothing is
/// copied.
///
/// # Errors
///
/// [`Argument`](meron::ErrorKind::Argument) if they are of another type.
pub fn as_array_mut<'v, T: Element>(view: &'v mut ViewMut<'_>) -> Result<ArrayViewMutD<'v, T>> {
    let shape = sizes(view.shape());
    let values = view.as_mut_slice::<T>()?;
    let array = ArrayViewMutD::from_shape(IxDyn(&shape), values);
    Ok(array.expect("a view has the elements of its shape"))
}
