// SPDX-License-Identifier: Apache-2.0
//! Memory of the library as typed slices.

use std::fmt;
use std::marker::PhantomData;
use std::slice;

use meron_sys as sys;

use crate::dtype::{Bf16, Dtype, Element, F16};
use crate::error::{Error, Result};
use crate::param::Param;

/// Part of a tensor (or all of it) to read. It lives no longer than the object that it was asked
/// from, which holds the lease.
///
/// ```
/// # let context = meron::Context::open()?;
/// # let table = context.param("table", &[3, 4])?;
/// # let unit = context.unit("table", &[&table])?;
/// let full = unit.gather()?;
/// let view = full.view(&table)?;
/// assert_eq!((view.shape(), view.len()), (&[3, 4][..], 12));
/// let rows: Vec<&[f32]> = view.as_slice()?.chunks(4).collect();
/// # assert_eq!(rows.len(), 3);
/// # Ok::<(), meron::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct View<'a>(Elements, PhantomData<&'a [u8]>);

/// Part of a tensor (or all of it) to write. It lives no longer than the object that it was asked
/// from.
pub struct ViewMut<'a>(Elements, PhantomData<&'a mut [u8]>);

// SAFETY: a view is a slice of elements that are Send and Sync.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}
// SAFETY: as above.
unsafe impl Send for ViewMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for ViewMut<'_> {}

/// A view, to read or to write.
#[derive(Clone, Copy)]
struct Elements {
    raw: sys::meron_view,
    dtype: Dtype,
    dims: usize,
    /// The first `dims` count.
    shape: [i64; MAX_DIMS],
}

const MAX_DIMS: usize = sys::MERON_MAX_DIMS as usize;

impl Elements {
    fn of(raw: sys::meron_view, param: &Param) -> Result<Elements> {
        let part = [raw.count as i64];
        let sizes = if raw.count == param.count() { param.shape() } else { &part };
        let mut shape = [0; MAX_DIMS];
        shape[..sizes.len()].copy_from_slice(sizes);
        Ok(Elements { raw, dtype: Dtype::of(raw.dtype)?, dims: sizes.len(), shape })
    }

    fn len(&self) -> usize {
        self.raw.count as usize
    }

    fn shape(&self) -> &[i64] {
        &self.shape[..self.dims]
    }

    fn require<T: Element>(&self) -> Result<()> {
        if T::DTYPE == self.dtype {
            return Ok(());
        }
        let (asked, is) = (T::DTYPE, self.dtype);
        Err(Error::argument(
            "dtype",
            &format!("a view of {asked} was asked for, the elements are {is}"),
            "take the type that the view's dtype() says",
        ))
    }
}

fn require_host(raw: &sys::meron_view, param: &Param) -> Result<()> {
    if raw.device == sys::MERON_DEVICE_HOST {
        return Ok(());
    }
    Err(Error::new(
        sys::MERON_E_UNSUPPORTED,
        param.name(),
        &format!("the memory of '{}' is a device's, which the host must not read", param.name()),
        "take its device_pointer, or use Tier::Host",
    ))
}

impl<'a> View<'a> {
    /// An error for memory of a device.
    ///
    /// # Safety
    ///
    /// For `'a` the memory stays mapped and no code writes it.
    pub(crate) unsafe fn new(raw: sys::meron_view, param: &Param) -> Result<View<'a>> {
        require_host(&raw, param)?;
        Ok(View(Elements::of(raw, param)?, PhantomData))
    }

    /// # Safety
    ///
    /// As of `new`; memory of a device is the host's, and its work has ended.
    pub(crate) unsafe fn of_readable(raw: sys::meron_view, param: &Param) -> Result<View<'a>> {
        Ok(View(Elements::of(raw, param)?, PhantomData))
    }

    /// The elements' type.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sizes, row-major: the param's for a whole tensor, and the number of elements for a part
    /// of one, which may begin and end within a row.
    pub fn shape(&self) -> &[i64] {
        self.0.shape()
    }

    /// Where the first element stands in the whole tensor, row-major.
    pub fn offset(&self) -> u64 {
        self.0.raw.offset
    }

    /// The elements.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) if they are of another type.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        self.0.require::<T>()?;
        // SAFETY: `count` contiguous elements of T where they are aligned, never null (both by the C
        // interface), and not written for 'a, as `new` was promised.
        Ok(unsafe { slice::from_raw_parts(self.0.raw.data as *const T, self.len()) })
    }

    /// A copy of the elements as f32, widened if they have 16 bits.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.0.dtype {
            Dtype::F32 => self.as_slice::<f32>().map(<[f32]>::to_vec).unwrap_or_default(),
            Dtype::Bf16 => widened::<Bf16>(self.as_slice()),
            Dtype::F16 => widened::<F16>(self.as_slice()),
        }
    }
}

fn widened<T: Element + Into<f32>>(values: Result<&[T]>) -> Vec<f32> {
    values.map(|values| values.iter().map(|&value| value.into()).collect()).unwrap_or_default()
}

impl<'a> ViewMut<'a> {
    /// An error for memory of a device, and for read-only memory.
    ///
    /// # Safety
    ///
    /// For `'a` the memory stays mapped, and no other code of this process reads or writes it.
    pub(crate) unsafe fn new(raw: sys::meron_view, param: &Param) -> Result<ViewMut<'a>> {
        require_host(&raw, param)?;
        if raw.writable == 0 {
            return Err(Error::state(
                param.name(),
                &format!("this memory of '{}' is read-only: it is the param itself", param.name()),
                "write it through an update",
            ));
        }
        Ok(ViewMut(Elements::of(raw, param)?, PhantomData))
    }

    /// The elements' type.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sizes; as [`View::shape`].
    pub fn shape(&self) -> &[i64] {
        self.0.shape()
    }

    /// Where the first element stands in the whole tensor, row-major.
    pub fn offset(&self) -> u64 {
        self.0.raw.offset
    }

    /// The elements.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) if they are of another type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.0.require::<T>()?;
        // SAFETY: as in View::as_slice; `self` is borrowed, so no code writes through it meanwhile.
        Ok(unsafe { slice::from_raw_parts(self.0.raw.data as *const T, self.len()) })
    }

    /// The elements, to write. Errors as [`as_slice`](ViewMut::as_slice).
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.0.require::<T>()?;
        // SAFETY: as `new` was promised, and `self` is borrowed mutably.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.raw.data as *mut T, self.len()) })
    }

    /// The elements, to write for as long as the view would have lived. Errors as
    /// [`as_slice`](ViewMut::as_slice).
    pub fn into_mut_slice<T: Element>(self) -> Result<&'a mut [T]> {
        self.0.require::<T>()?;
        // SAFETY: as `new` was promised, and `self` is gone.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.raw.data as *mut T, self.len()) })
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "View({} {:?} from {})", self.dtype(), self.shape(), self.offset())
    }
}

impl fmt::Debug for ViewMut<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ViewMut({} {:?} from {})", self.dtype(), self.shape(), self.offset())
    }
}
