// SPDX-License-Identifier: Apache-2.0
//! The elements of a view, and the values for them.

use std::ops::Range;

use meron::{Buffer, Dtype, View, ViewMut};

use crate::failure::{Done, Failure};
use crate::values::Values;

pub fn seen(view: &View<'_>) -> Result<Buffer, Failure> {
    Ok(match view.dtype() {
        Dtype::F32 => Buffer::F32(view.as_slice()?.to_vec()),
        Dtype::Bf16 => Buffer::Bf16(view.as_slice()?.to_vec()),
        _ => Buffer::F16(view.as_slice()?.to_vec()),
    })
}

pub fn part_of(flat: &Buffer, range: Range<usize>) -> Buffer {
    match flat {
        Buffer::F32(values) => Buffer::F32(values[range].to_vec()),
        Buffer::Bf16(values) => Buffer::Bf16(values[range].to_vec()),
        Buffer::F16(values) => Buffer::F16(values[range].to_vec()),
        _ => unreachable!("the table has no other dtype"),
    }
}

pub fn seen_mut(view: &ViewMut<'_>) -> Result<Buffer, Failure> {
    Ok(match view.dtype() {
        Dtype::F32 => Buffer::F32(view.as_slice()?.to_vec()),
        Dtype::Bf16 => Buffer::Bf16(view.as_slice()?.to_vec()),
        _ => Buffer::F16(view.as_slice()?.to_vec()),
    })
}

pub fn store(view: &mut ViewMut<'_>, values: &Buffer) -> Done {
    match values {
        Buffer::F32(values) => view.as_mut_slice()?.copy_from_slice(values),
        Buffer::Bf16(values) => view.as_mut_slice()?.copy_from_slice(values),
        Buffer::F16(values) => view.as_mut_slice()?.copy_from_slice(values),
        _ => unreachable!("the table has no other dtype"),
    }
    Ok(())
}

/// Values for what a view shows.
pub fn values_for(view: &ViewMut<'_>, values: &Values) -> Result<Buffer, Failure> {
    values.make(view.dtype(), view.offset(), view.len())
}
