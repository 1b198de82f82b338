// SPDX-License-Identifier: Apache-2.0
//! Element types.

use std::fmt;

use meron_sys as sys;

use crate::error::{Error, Result};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// 32 bits: `f32`.
    F32,
    /// 16 bits, the upper half of an f32: [`Bf16`].
    Bf16,
    /// 16 bits, 5 of exponent and 10 of fraction: [`F16`].
    F16,
}

impl Dtype {
    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
        }
    }

    /// `"f32"`, `"bf16"` or `"f16"`.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
        }
    }

    pub(crate) fn code(self) -> sys::meron_dtype {
        match self {
            Dtype::F32 => sys::MERON_F32,
            Dtype::Bf16 => sys::MERON_BF16,
            Dtype::F16 => sys::MERON_F16,
        }
    }

    pub(crate) fn of(code: sys::meron_dtype) -> Result<Dtype> {
        match code {
            sys::MERON_F32 => Ok(Dtype::F32),
            sys::MERON_BF16 => Ok(Dtype::Bf16),
            sys::MERON_F16 => Ok(Dtype::F16),
            other => Err(Error::new(
                sys::MERON_E_UNSUPPORTED,
                "dtype",
                &format!("the library uses dtype {other}, which this crate does not know"),
                "use the crate of the library's version",
            )),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A bf16 number by its bits: the upper half of an f32.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bf16(pub u16);

/// An f16 number (IEEE 754 binary16) by its bits.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct F16(pub u16);

impl From<Bf16> for f32 {
    fn from(half: Bf16) -> f32 {
        f32::from_bits(u32::from(half.0) << 16)
    }
}

impl Bf16 {
    /// Rounds to nearest, ties to even.
    pub fn from_f32(value: f32) -> Bf16 {
        let bits = value.to_bits();
        if value.is_nan() {
            return Bf16((bits >> 16) as u16 | 0x40);
        }
        Bf16(((u64::from(bits) + 0x7FFF + u64::from(bits >> 16 & 1)) >> 16) as u16)
    }
}

impl From<F16> for f32 {
    /// Multiplying by 2^112 turns the exponent's bias of 15 into f32's 127, and gets subnormal
    /// numbers right by itself.
    fn from(half: F16) -> f32 {
        let sign = u32::from(half.0 & 0x8000) << 16;
        let rest = u32::from(half.0 & 0x7FFF) << 13;
        if rest >= 0x7C00 << 13 {
            return f32::from_bits(sign | 0x7F80_0000 | rest); // infinity, NaN
        }
        let scale = f32::from_bits((112 + 127) << 23);
        f32::from_bits(sign | (f32::from_bits(rest) * scale).to_bits())
    }
}

impl F16 {
    /// Rounds to nearest, ties to even; what is too great becomes infinity.
    pub fn from_f32(value: f32) -> F16 {
        let sign = (value.to_bits() >> 16) as u16 & 0x8000;
        let size = value.abs();
        if value.is_nan() {
            return F16(sign | 0x7E00);
        }
        if size >= 65520.0 {
            return F16(sign | 0x7C00); // halfway beyond the greatest
        }
        if size < 1.0 / 16384.0 {
            // Subnormal: adding 0.5 leaves units of 2^-24, rounded by the hardware.
            return F16(sign | ((size + 0.5).to_bits() - 0.5f32.to_bits()) as u16);
        }
        let bits = size.to_bits() - (112 << 23);
        F16(sign | ((bits + 0xFFF + (bits >> 13 & 1)) >> 13) as u16)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Numbers that may be sent to other ranks as they lie in memory: every pattern of bits is a value.
pub trait Plain: sealed::Sealed + Copy + Default + Send + Sync + Unpin + 'static {}

macro_rules! plain {
    ($($kind:ty),*) => {
        $(impl sealed::Sealed for $kind {}
        impl Plain for $kind {})*
    };
}

plain!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64, Bf16, F16);

/// A type that elements of tensors have in Rust: `f32`, [`Bf16`] or [`F16`].
///
/// Every pattern of bits is a value of it, and it holds nothing to drop; views of the library's
/// memory rely on that.
pub trait Element: Plain {
    /// Its dtype in the library.
    const DTYPE: Dtype;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;
}

impl Element for Bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
}

impl Element for F16 {
    const DTYPE: Dtype = Dtype::F16;
}

/// Numbers that [`Group::all_reduce`](crate::Group::all_reduce) combines: elements of tensors, `f64` and
/// `i64`.
pub trait Number: Plain {
    #[doc(hidden)]
    const CODE: i32;
}

macro_rules! number {
    ($($kind:ty = $code:expr),*) => {
        $(impl Number for $kind {
            const CODE: i32 = $code;
        })*
    };
}

number!(
    f32 = sys::MERON_F32,
    Bf16 = sys::MERON_BF16,
    F16 = sys::MERON_F16,
    f64 = sys::MERON_F64,
    i64 = sys::MERON_I64
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_round_trip() {
        for bits in 0..=u16::MAX {
            let bf16 = f32::from(Bf16(bits));
            let f16 = f32::from(F16(bits));
            if bf16.is_nan() {
                assert!(f32::from(Bf16::from_f32(bf16)).is_nan());
            } else {
                assert_eq!(Bf16::from_f32(bf16), Bf16(bits));
            }
            if f16.is_nan() {
                assert!(f32::from(F16::from_f32(f16)).is_nan());
            } else {
                assert_eq!(F16::from_f32(f16), F16(bits));
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        assert_eq!(Bf16::from_f32(f32::from_bits(0x3F80_8000)), Bf16(0x3F80));
        assert_eq!(Bf16::from_f32(f32::from_bits(0x3F81_8000)), Bf16(0x3F82));
        assert_eq!(F16::from_f32(1.0 + 1.0 / 2048.0), F16(0x3C00));
        assert_eq!(F16::from_f32(1.0 + 3.0 / 2048.0), F16(0x3C02));
        assert_eq!(F16::from_f32(65519.0), F16(0x7BFF));
        assert_eq!(F16::from_f32(65520.0), F16(0x7C00));
        assert_eq!(F16::from_f32(-1e-30), F16(0x8000));
    }
}
