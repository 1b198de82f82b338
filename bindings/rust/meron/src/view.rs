// SPDX-License-Identifier: Apache-2.0
//! Memory of the library as typed slices.

use std::marker::PhantomData;
use std::slice;

use meron_sys as sys;

use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result};

/// Part of a tensor (or all of it) to read. It lives no longer than the object that it was asked
/// from, which holds the lease.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    raw: sys::meron_view,
    dtype: Dtype,
    lease: PhantomData<&'a [u8]>,
}

/// Part of a tensor (or all of it) to write. It lives no longer than the object that it was asked
/// from.
#[derive(Debug)]
pub struct ViewMut<'a> {
    raw: sys::meron_view,
    dtype: Dtype,
    lease: PhantomData<&'a mut [u8]>,
}

// SAFETY: a view is a slice of elements that are Send and Sync.
unsafe impl Send for View<'_> {}
unsafe impl Sync for View<'_> {}
unsafe impl Send for ViewMut<'_> {}
unsafe impl Sync for ViewMut<'_> {}

fn wrong_dtype(asked: Dtype, is: Dtype) -> Error {
    Error::argument(
        "dtype",
        &format!("a view of {asked} was asked for, the elements are {is}"),
        "take the type that the view's dtype() says",
    )
}

impl<'a> View<'a> {
    /// # Safety
    ///
    /// For `'a` the memory stays mapped and no code writes it.
    pub(crate) unsafe fn new(raw: sys::meron_view) -> Result<View<'a>> {
        Ok(View { raw, dtype: Dtype::of(raw.dtype)?, lease: PhantomData })
    }

    /// The elements' type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.raw.count as usize
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.raw.count == 0
    }

    /// Where the first element stands in the whole tensor, row-major.
    pub fn offset(&self) -> u64 {
        self.raw.offset
    }

    /// The elements. [`ErrorKind::Argument`](crate::ErrorKind::Argument) when they are of another
    /// type.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        if T::DTYPE != self.dtype {
            return Err(wrong_dtype(T::DTYPE, self.dtype));
        }
        // SAFETY: `count` contiguous elements of T where they are aligned, never null (both by the C
        // interface), and not written for 'a, as `new` was promised.
        Ok(unsafe { slice::from_raw_parts(self.raw.data as *const T, self.raw.count as usize) })
    }

    /// The elements as f32, widened where they have 16 bits.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.dtype {
            Dtype::F32 => self.as_slice::<f32>().map(<[f32]>::to_vec).unwrap_or_default(),
            Dtype::Bf16 => widened::<crate::Bf16>(self.as_slice()),
            Dtype::F16 => widened::<crate::F16>(self.as_slice()),
        }
    }
}

fn widened<T: Element + Into<f32>>(values: Result<&[T]>) -> Vec<f32> {
    values.map(|values| values.iter().map(|&value| value.into()).collect()).unwrap_or_default()
}

impl<'a> ViewMut<'a> {
    /// # Safety
    ///
    /// For `'a` the memory stays mapped, and no other code of this process reads or writes it.
    pub(crate) unsafe fn new(raw: sys::meron_view) -> Result<ViewMut<'a>> {
        if raw.writable == 0 {
            return Err(Error::state(
                "",
                "this memory is read-only: it is the param itself",
                "write it through an update",
            ));
        }
        Ok(ViewMut { raw, dtype: Dtype::of(raw.dtype)?, lease: PhantomData })
    }

    /// The elements' type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.raw.count as usize
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.raw.count == 0
    }

    /// Where the first element stands in the whole tensor, row-major.
    pub fn offset(&self) -> u64 {
        self.raw.offset
    }

    /// The elements. [`ErrorKind::Argument`](crate::ErrorKind::Argument) when they are of another
    /// type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.dtype {
            return Err(wrong_dtype(T::DTYPE, self.dtype));
        }
        // SAFETY: as in View::as_slice; `self` is borrowed, so no code writes through it meanwhile.
        Ok(unsafe { slice::from_raw_parts(self.raw.data as *const T, self.raw.count as usize) })
    }

    /// The elements, to write.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        if T::DTYPE != self.dtype {
            return Err(wrong_dtype(T::DTYPE, self.dtype));
        }
        // SAFETY: as `new` was promised, and `self` is borrowed mutably.
        Ok(unsafe { slice::from_raw_parts_mut(self.raw.data as *mut T, self.raw.count as usize) })
    }

    /// The elements, to write for as long as the view would have lived.
    pub fn into_mut_slice<T: Element>(self) -> Result<&'a mut [T]> {
        if T::DTYPE != self.dtype {
            return Err(wrong_dtype(T::DTYPE, self.dtype));
        }
        // SAFETY: as `new` was promised, and `self` is gone.
        Ok(unsafe { slice::from_raw_parts_mut(self.raw.data as *mut T, self.raw.count as usize) })
    }
}
