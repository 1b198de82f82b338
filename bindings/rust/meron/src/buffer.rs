// SPDX-License-Identifier: Apache-2.0
//! Arrays whose element type is known when the program runs.

use std::os::raw::c_void;

use crate::dtype::{Bf16, Dtype, Element, F16};
use crate::error::{Error, Result};

/// An array of a tensor's elements, of the type that the tensor has.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Buffer {
    /// Of `f32`.
    F32(Vec<f32>),
    /// Of bf16.
    Bf16(Vec<Bf16>),
    /// Of f16.
    F16(Vec<F16>),
}

impl Buffer {
    /// Zeros.
    pub fn zeros(dtype: Dtype, count: usize) -> Buffer {
        match dtype {
            Dtype::F32 => Buffer::F32(vec![0.0; count]),
            Dtype::Bf16 => Buffer::Bf16(vec![Bf16(0); count]),
            Dtype::F16 => Buffer::F16(vec![F16(0); count]),
        }
    }

    /// The elements' type.
    pub fn dtype(&self) -> Dtype {
        match self {
            Buffer::F32(_) => Dtype::F32,
            Buffer::Bf16(_) => Dtype::Bf16,
            Buffer::F16(_) => Dtype::F16,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Buffer::F32(values) => values.len(),
            Buffer::Bf16(values) => values.len(),
            Buffer::F16(values) => values.len(),
        }
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements. [`ErrorKind::Argument`](crate::ErrorKind::Argument) when they are of another type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.dtype() {
            return Err(Error::argument(
                "dtype",
                &format!("{} was asked for, the buffer holds {}", T::DTYPE, self.dtype()),
                "take the type that dtype() says",
            ));
        }
        let data = match self {
            Buffer::F32(values) => values.as_ptr() as *const T,
            Buffer::Bf16(values) => values.as_ptr() as *const T,
            Buffer::F16(values) => values.as_ptr() as *const T,
        };
        // SAFETY: T is the vector's own element type: the dtypes are equal, and each has one type.
        Ok(unsafe { std::slice::from_raw_parts(data, self.len()) })
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_void {
        match self {
            Buffer::F32(values) => values.as_mut_ptr() as *mut c_void,
            Buffer::Bf16(values) => values.as_mut_ptr() as *mut c_void,
            Buffer::F16(values) => values.as_mut_ptr() as *mut c_void,
        }
    }
}

impl From<Vec<f32>> for Buffer {
    fn from(values: Vec<f32>) -> Buffer {
        Buffer::F32(values)
    }
}

impl From<Vec<Bf16>> for Buffer {
    fn from(values: Vec<Bf16>) -> Buffer {
        Buffer::Bf16(values)
    }
}

impl From<Vec<F16>> for Buffer {
    fn from(values: Vec<F16>) -> Buffer {
        Buffer::F16(values)
    }
}
