// SPDX-License-Identifier: Apache-2.0
//! `half::bf16` and `half::f16` in the place of `meron::Bf16` and `meron::F16`.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::vec::{HalfBitsVecExt, HalfFloatVecExt};
use half::{bf16, f16};
use meron::{Bf16, Result, View, ViewMut, F16};

mod sealed {
    pub trait Sealed: Sized {
        type Own: meron::Element;
        fn of_own(values: &[Self::Own]) -> &[Self];
        fn of_own_mut(values: &mut [Self::Own]) -> &mut [Self];
        fn own(values: &[Self]) -> &[Self::Own];
        fn own_vec(values: Vec<Self>) -> Vec<Self::Own>;
        fn of_own_vec(values: Vec<Self::Own>) -> Vec<Self>;
    }
}

/// `half::bf16` or `half::f16`. Their elements in `meron` are [`Bf16`] and [`F16`].
pub trait Half: sealed::Sealed + Copy {}

macro_rules! half {
    ($theirs:ty = $own:ident) => {
        impl sealed::Sealed for $theirs {
            type Own = $own;

            fn of_own(values: &[$own]) -> &[$theirs] {
                $own::slice_to_bits(values).reinterpret_cast()
            }

            fn of_own_mut(values: &mut [$own]) -> &mut [$theirs] {
                $own::slice_to_bits_mut(values).reinterpret_cast_mut()
            }

            fn own(values: &[$theirs]) -> &[$own] {
                $own::slice_from_bits(values.reinterpret_cast())
            }

            fn own_vec(values: Vec<$theirs>) -> Vec<$own> {
                $own::vec_from_bits(values.reinterpret_into())
            }

            fn of_own_vec(values: Vec<$own>) -> Vec<$theirs> {
                $own::vec_to_bits(values).reinterpret_into()
            }
        }

        impl Half for $theirs {}
    };
}

half!(bf16 = Bf16);
half!(f16 = F16);

/// The elements of a view to read, without a copy.
pub trait AsHalf<'a> {
    /// # Errors
    ///
    /// [`Argument`](meron::ErrorKind::Argument) if the view is of another type.
    fn as_half<T: Half>(&self) -> Result<&'a [T]>;
}

impl<'a> AsHalf<'a> for View<'a> {
    fn as_half<T: Half>(&self) -> Result<&'a [T]> {
        self.as_slice::<T::Own>().map(T::of_own)
    }
}

/// The elements of a view to write, without a copy.
pub trait AsHalfMut {
    /// # Errors
    ///
    /// [`Argument`](meron::ErrorKind::Argument) if the view is of another type.
    fn as_half_mut<T: Half>(&mut self) -> Result<&mut [T]>;
}

impl AsHalfMut for ViewMut<'_> {
    fn as_half_mut<T: Half>(&mut self) -> Result<&mut [T]> {
        self.as_mut_slice::<T::Own>().map(T::of_own_mut)
    }
}

/// Values as `meron` takes them, for [`Update::write`](meron::Update::write),
/// [`Source::new`](meron::Source::new) and [`CheckpointTensor::new`](meron::CheckpointTensor::new).
/// Nothing is copied.
///
/// ```
/// # let context = meron::Context::open()?;
/// use half::bf16;
/// use meron::{Dtype, ParamDesc};
/// use meron_interop::{elements, AsHalf};
///
/// let weight = context.register(&ParamDesc::new("weight", &[2]).dtype(Dtype::Bf16))?;
/// let unit = context.unit("layer", &[&weight])?;
/// let mut update = context.update(&[&unit])?;
/// update.write(&weight, elements(&[bf16::from_f32(1.0), bf16::from_f32(2.0)]))?;
/// update.publish()?;
///
/// let full = unit.gather()?;
/// let values: &[bf16] = full.view(&weight)?.as_half()?;
/// assert_eq!(values[1].to_f32(), 2.0);
/// # Ok::<(), meron::Error>(())
/// ```
pub fn elements<T: Half>(values: &[T]) -> &[T::Own] {
    T::own(values)
}

/// A vector as `meron` takes it, for [`Buffer`](meron::Buffer) and
/// [`Group::all_reduce_begin`](meron::Group::all_reduce_begin), in the same memory.
pub fn elements_vec<T: Half>(values: Vec<T>) -> Vec<T::Own> {
    T::own_vec(values)
}

/// A vector of `meron` as one of `half`, in the same memory.
pub fn from_elements_vec<T: Half>(values: Vec<T::Own>) -> Vec<T> {
    T::of_own_vec(values)
}
