// SPDX-License-Identifier: Apache-2.0
//! Tensors for, and from, other libraries, by DLPack 1.x.

use std::fmt;
use std::os::raw::c_void;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use meron_sys as sys;

use crate::borrow::InUse;
use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result};
use crate::failures::contained;
use crate::home::Open;

/// DLPack's `DLManagedTensorVersioned` (<https://dmlc.github.io/dlpack>).
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensor {
    /// Of the layout: 1 is known.
    pub major: u32,
    /// Of the layout; additions only.
    pub minor: u32,
    /// Its owner's.
    pub manager_ctx: *mut c_void,
    /// The last holder of the tensor calls it once; null if there is nothing to do.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
    /// Bit 0: read-only.
    pub flags: u64,
    /// The tensor.
    pub tensor: Tensor,
}

/// DLPack's `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// The memory.
    pub data: *mut c_void,
    /// 1: CPU.
    pub device_type: i32,
    /// Which one.
    pub device_id: i32,
    /// The number of dimensions.
    pub ndim: i32,
    /// 2: float, 4: bfloat.
    pub dtype_code: u8,
    /// Per element.
    pub dtype_bits: u8,
    /// Of a vector type; 1.
    pub dtype_lanes: u16,
    /// `ndim` sizes.
    pub shape: *mut i64,
    /// `ndim` steps in elements; null for row-major.
    pub strides: *mut i64,
    /// Where the first element is, from `data`.
    pub byte_offset: u64,
}

const READ_ONLY: u64 = 1;
const CPU: i32 = 1;

/// A DLPack tensor that this program owns: row-major, f32, bf16 or f16. CPU memory, but for one of
/// [`Gather::dlpack`](crate::Gather::dlpack) on a CUDA device.
///
/// One of [`Gather::dlpack`](crate::Gather::dlpack) holds a lease of its own, and keeps the memory mapped
/// even when the context is closed meanwhile. One of another library ([`from_raw`](DlpackTensor::from_raw))
/// may be the source of an [update](crate::Update::write) or of a [gradient](crate::Source::new), by its
/// slice.
pub struct DlpackTensor {
    raw: NonNull<ManagedTensor>,
    dtype: Dtype,
    /// Dropped after the tensor.
    open: Option<Arc<Open>>,
    /// Of a reduced gradient: nothing else of this program has it meanwhile.
    in_use: Option<Arc<InUse>>,
}

// SAFETY: a tensor is a slice that is only read, and its deleter may be called from any thread (DLPack's
// rule for CPU tensors, and ours).
unsafe impl Send for DlpackTensor {}
// SAFETY: as above.
unsafe impl Sync for DlpackTensor {}

impl DlpackTensor {
    /// # Safety
    ///
    /// The library has just returned `raw` for the context of `open`.
    pub(crate) unsafe fn of_context(
        raw: *mut sys::DLManagedTensorVersioned,
        open: Arc<Open>,
        in_use: Option<Arc<InUse>>,
    ) -> Result<DlpackTensor> {
        // SAFETY: as the caller promises.
        let mut tensor = unsafe { DlpackTensor::take(raw as *mut ManagedTensor, true)? };
        tensor.open = Some(open);
        tensor.in_use = in_use;
        Ok(tensor)
    }

    /// Takes a tensor over, from a library that exports `DLManagedTensorVersioned` (for Python objects: the
    /// pointer in the capsule that `__dlpack__(max_version=(1, 0))` gives).
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for null; [`Unsupported`](crate::ErrorKind::Unsupported) for
    /// another version than 1, another device than CPU, another type than f32, bf16 and f16, elements
    /// that are not aligned, and strides that are not row-major. The tensor's deleter is called then.
    ///
    /// # Safety
    ///
    /// `raw` is null or a valid tensor that no other code deletes; until its deleter is called its
    /// memory stays valid, and no code writes it.
    pub unsafe fn from_raw(raw: *mut ManagedTensor) -> Result<DlpackTensor> {
        // SAFETY: as the caller promises.
        unsafe { DlpackTensor::take(raw, false) }
    }

    /// # Safety
    ///
    /// As of `from_raw`.
    unsafe fn take(raw: *mut ManagedTensor, any_device: bool) -> Result<DlpackTensor> {
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::argument("tensor", "the tensor is NULL", "pass a valid one"))?;
        // From here on dropping it calls the deleter.
        let mut tensor = DlpackTensor { raw, dtype: Dtype::F32, open: None, in_use: None };
        // SAFETY: the tensor is valid, as the caller promises.
        let managed = unsafe { raw.as_ref() };
        if managed.major != 1 {
            return Err(unsupported(
                &format!("DLPack version {}", managed.major),
                "export version 1",
            ));
        }
        let inner = &managed.tensor;
        if inner.device_type != CPU && !any_device {
            let what = format!("a tensor of device type {}", inner.device_type);
            return Err(unsupported(&what, "copy it to the CPU first"));
        }
        tensor.dtype = match (inner.dtype_code, inner.dtype_bits, inner.dtype_lanes) {
            (2, 32, 1) => Dtype::F32,
            (4, 16, 1) => Dtype::Bf16,
            (2, 16, 1) => Dtype::F16,
            (code, bits, lanes) => {
                let what = format!("elements of type code {code}, {bits} bits, {lanes} lanes");
                return Err(unsupported(&what, "convert it to f32, bf16 or f16 first"));
            }
        };
        if !tensor.is_row_major() {
            return Err(unsupported("a tensor that is not row-major", "make it contiguous first"));
        }
        if tensor.address() % tensor.dtype.size() != 0 {
            return Err(unsupported(
                "a tensor that is not aligned to its elements",
                "copy it first",
            ));
        }
        Ok(tensor)
    }

    /// Gives the tensor to another library, which calls its deleter once. Where it shows memory of a
    /// context, that stays mapped until then.
    pub fn into_raw(self) -> *mut ManagedTensor {
        let mut this = std::mem::ManuallyDrop::new(self);
        let raw = this.raw;
        let open = match this.open.take() {
            None => return raw.as_ptr(),
            Some(open) => open,
        };
        // SAFETY: the tensor is ours until `delete_export` deletes it; shape and strides live as long.
        let managed = unsafe { raw.as_ref() };
        let export = Box::new(Export {
            managed: ManagedTensor {
                major: managed.major,
                minor: managed.minor,
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete_export),
                flags: managed.flags,
                tensor: managed.tensor,
            },
            inner: DlpackTensor {
                raw,
                dtype: Dtype::F32,
                open: Some(open),
                in_use: this.in_use.take(),
            },
        });
        // `managed` is the first member of a #[repr(C)] struct: both have one address.
        Box::into_raw(export) as *mut ManagedTensor
    }

    /// The elements' type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The sizes, row-major.
    pub fn shape(&self) -> &[i64] {
        let tensor = self.tensor();
        if tensor.ndim <= 0 {
            return &[];
        }
        // SAFETY: `ndim` sizes, which live as long as the tensor.
        unsafe { slice::from_raw_parts(tensor.shape, tensor.ndim as usize) }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape().iter().map(|&size| size as usize).product()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// DLPack's type and number of the device whose memory it is: (1, 0) for the CPU, (2, n) for CUDA.
    pub fn device(&self) -> (i32, i32) {
        (self.tensor().device_type, self.tensor().device_id)
    }

    /// True if consumers must not write it.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: the tensor is ours.
        unsafe { self.raw.as_ref() }.flags & READ_ONLY != 0
    }

    /// The elements. [`ErrorKind::Argument`](crate::ErrorKind::Argument) when they are of another type,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when they are not in CPU memory.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if self.tensor().device_type != CPU {
            let what = format!("a slice of a tensor of device type {}", self.tensor().device_type);
            return Err(unsupported(&what, "copy it to the CPU first"));
        }
        if T::DTYPE != self.dtype {
            return Err(Error::argument(
                "dtype",
                &format!("a slice of {} was asked for, the elements are {}", T::DTYPE, self.dtype),
                "take the type that dtype() says",
            ));
        }
        if self.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: contiguous, aligned (both were checked), and valid while we own it.
        Ok(unsafe { slice::from_raw_parts(self.address() as *const T, self.len()) })
    }

    fn tensor(&self) -> &Tensor {
        // SAFETY: the tensor is ours.
        unsafe { &self.raw.as_ref().tensor }
    }

    fn address(&self) -> usize {
        self.tensor().data as usize + self.tensor().byte_offset as usize
    }

    fn is_row_major(&self) -> bool {
        let tensor = self.tensor();
        let shape = self.shape();
        if tensor.strides.is_null() || shape.contains(&0) {
            return true;
        }
        // SAFETY: `ndim` strides, which live as long as the tensor.
        let strides = unsafe { slice::from_raw_parts(tensor.strides, shape.len()) };
        let mut step = 1;
        for (&size, &stride) in shape.iter().zip(strides).rev() {
            if size != 1 && stride != step {
                return false;
            }
            step *= size;
        }
        true
    }
}

fn unsupported(what: &str, advice: &str) -> Error {
    Error::new(sys::MERON_E_UNSUPPORTED, "tensor", &format!("{what} cannot be taken over"), advice)
}

#[repr(C)]
struct Export {
    managed: ManagedTensor,
    inner: DlpackTensor,
}

unsafe extern "C" fn delete_export(managed: *mut ManagedTensor) {
    if !managed.is_null() {
        // SAFETY: `into_raw` has made it, and its holder calls this once.
        let export = unsafe { Box::from_raw(managed as *mut Export) };
        // It may be the last of its context, whose closures are then dropped.
        let _ = contained(|| drop(export));
    }
}

impl Drop for DlpackTensor {
    fn drop(&mut self) {
        // SAFETY: the tensor is ours, and its deleter is called once: here.
        unsafe {
            if let Some(deleter) = self.raw.as_ref().deleter {
                deleter(self.raw.as_ptr());
            }
        }
    }
}

impl fmt::Debug for DlpackTensor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DlpackTensor({} {:?})", self.dtype, self.shape())
    }
}
