// SPDX-License-Identifier: Apache-2.0
//! Elements of 16 bits as their bits, and the other way round, without a copy: the bridge to other
//! crates' types of 16 bits.

use std::mem::ManuallyDrop;
use std::slice;

use crate::dtype::{Bf16, F16};

macro_rules! bits {
    ($kind:ident) => {
        impl $kind {
            /// Elements by their bits. Nothing is copied.
            pub fn slice_from_bits(bits: &[u16]) -> &[$kind] {
                // SAFETY: the type is transparent over u16, and every pattern of bits is a value.
                unsafe { slice::from_raw_parts(bits.as_ptr() as *const $kind, bits.len()) }
            }

            /// Elements by their bits, to write. Nothing is copied.
            pub fn slice_from_bits_mut(bits: &mut [u16]) -> &mut [$kind] {
                let (first, count) = (bits.as_mut_ptr() as *mut $kind, bits.len());
                // SAFETY: as in `slice_from_bits`; the borrow is exclusive.
                unsafe { slice::from_raw_parts_mut(first, count) }
            }

            /// The bits of elements. Nothing is copied.
            pub fn slice_to_bits(values: &[$kind]) -> &[u16] {
                // SAFETY: as in `slice_from_bits`.
                unsafe { slice::from_raw_parts(values.as_ptr() as *const u16, values.len()) }
            }

            /// The bits of elements, to write. Nothing is copied.
            pub fn slice_to_bits_mut(values: &mut [$kind]) -> &mut [u16] {
                let (first, count) = (values.as_mut_ptr() as *mut u16, values.len());
                // SAFETY: as in `slice_from_bits_mut`.
                unsafe { slice::from_raw_parts_mut(first, count) }
            }

            /// A vector of elements by their bits, in the same memory.
            pub fn vec_from_bits(bits: Vec<u16>) -> Vec<$kind> {
                let mut bits = ManuallyDrop::new(bits);
                let (first, count) = (bits.as_mut_ptr() as *mut $kind, bits.len());
                // SAFETY: the vector's own memory, of elements of one size and alignment.
                unsafe { Vec::from_raw_parts(first, count, bits.capacity()) }
            }

            /// The bits of a vector of elements, in the same memory.
            pub fn vec_to_bits(values: Vec<$kind>) -> Vec<u16> {
                let mut values = ManuallyDrop::new(values);
                let (first, count) = (values.as_mut_ptr() as *mut u16, values.len());
                // SAFETY: as in `vec_from_bits`.
                unsafe { Vec::from_raw_parts(first, count, values.capacity()) }
            }
        }
    };
}

bits!(Bf16);
bits!(F16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_the_same_memory() {
        let mut bits = vec![0x3F80_u16, 0xC000];
        let first = bits.as_ptr();
        assert_eq!(Bf16::slice_from_bits(&bits), [Bf16(0x3F80), Bf16(0xC000)]);
        Bf16::slice_from_bits_mut(&mut bits)[0] = Bf16::from_f32(2.0);
        let mut values = Bf16::vec_from_bits(bits);
        Bf16::slice_to_bits_mut(&mut values)[1] = 0x3F80;
        assert_eq!(Bf16::slice_to_bits(&values), [0x4000, 0x3F80]);
        let bits = Bf16::vec_to_bits(values);
        assert_eq!(bits.as_ptr(), first);
    }
}
