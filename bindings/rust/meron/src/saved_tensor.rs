// SPDX-License-Identifier: Apache-2.0
//! Tensors of the program's own that go into a checkpoint.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::CString;
use std::fmt;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr;
use std::sync::Arc;

use meron_sys as sys;

use crate::call::c_string;
use crate::dtype::{Bf16, Plain, F16};
use crate::error::Result;
use crate::group::table;

/// A type that elements of a checkpoint's tensors have in Rust.
pub trait SavedElement: Plain {
    /// Its name in safetensors.
    const NAME: &'static str;
}

macro_rules! saved {
    ($($kind:ty: $name:literal),* $(,)?) => {
        $(impl SavedElement for $kind {
            const NAME: &'static str = $name;
        })*
    };
}

saved! {
    f64: "F64", f32: "F32", F16: "F16", Bf16: "BF16",
    i64: "I64", i32: "I32", i16: "I16", i8: "I8",
    u64: "U64", u32: "U32", u16: "U16", u8: "U8",
}

/// A tensor of the program's own, or a part of one, for
/// [`Context::save`](crate::Context::save), [`write_checkpoint`](crate::write_checkpoint) and
/// [`Context::export`](crate::Context::export).
///
/// It owns its elements or borrows them. A save needs elements that live as long as it likes, because
/// it reads them in the background: owned ones, or `'static`.
///
/// ```
/// use meron::CheckpointTensor;
///
/// let seeds = CheckpointTensor::new("seeds", &[4], vec![1u64, 2, 3, 4]);
/// let half = CheckpointTensor::new("noise", &[2, 3], &[0.5f32, 1.0, 1.5][..]).part_from(3);
/// ```
#[derive(Clone)]
pub struct CheckpointTensor<'d> {
    name: String,
    kind: Option<String>,
    dtype: &'static str,
    shape: Vec<u64>,
    begin: u64,
    count: u64,
    data: *const c_void,
    owner: Option<Arc<dyn Any + Send + Sync>>,
    borrowed: PhantomData<&'d [u8]>,
}

// SAFETY: the elements are plain numbers without writers: a vector that it owns, or a slice that is
// borrowed for 'd.
unsafe impl Send for CheckpointTensor<'_> {}
// SAFETY: as above.
unsafe impl Sync for CheckpointTensor<'_> {}

impl<'d> CheckpointTensor<'d> {
    /// A tensor with this name (1 to 512 bytes) and shape (row-major; empty for a scalar). `data`
    /// has all of its elements, or the first ones.
    pub fn new<T: SavedElement>(
        name: &str,
        shape: &[u64],
        data: impl Into<Cow<'d, [T]>>,
    ) -> CheckpointTensor<'d> {
        let (first, count, owner): (*const T, usize, Option<Arc<dyn Any + Send + Sync>>) =
            match data.into() {
                Cow::Borrowed(slice) => (slice.as_ptr(), slice.len(), None),
                // The address of its elements does not change when the vector moves.
                Cow::Owned(vector) => (vector.as_ptr(), vector.len(), Some(Arc::new(vector))),
            };
        CheckpointTensor {
            name: name.to_string(),
            kind: None,
            dtype: T::NAME,
            shape: shape.to_vec(),
            begin: 0,
            count: count as u64,
            data: first as *const c_void,
            owner,
            borrowed: PhantomData,
        }
    }

    /// The elements are those from `begin` on, row-major: the ranks of a save have each element of a
    /// tensor once.
    pub fn part_from(mut self, begin: u64) -> CheckpointTensor<'d> {
        self.begin = begin;
        self
    }

    /// Its kind, instead of `"extra"`: `"values"` for a buffer of a model, `"exp_avg"` or `"state.KEY"`
    /// for a state of an optimizer (docs/checkpoint-format.md).
    pub fn kind(mut self, kind: &str) -> CheckpointTensor<'d> {
        self.kind = Some(kind.to_string());
        self
    }
}

impl fmt::Debug for CheckpointTensor<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, end) = (self.kind.as_deref().unwrap_or("extra"), self.begin + self.count);
        let (name, dtype, shape) = (&self.name, self.dtype, &self.shape);
        write!(formatter, "{kind}:{name}[{}:{end}] of {dtype} {shape:?}", self.begin)
    }
}

/// Tensors as the library takes them, which lives as long as the call.
pub(crate) struct RawTensors {
    raw: Vec<sys::meron_checkpoint_tensor>,
    // Targets of `raw`, beside the tensors' own.
    _texts: Vec<CString>,
}

impl RawTensors {
    pub(crate) fn new(tensors: &[CheckpointTensor<'_>]) -> Result<RawTensors> {
        let mut texts = Vec::new();
        let mut text = |value: &str, what: &str| -> Result<*const std::os::raw::c_char> {
            // The address of its bytes does not change when the CString moves.
            texts.push(c_string(value, what)?);
            Ok(texts[texts.len() - 1].as_ptr())
        };
        let mut raw = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            raw.push(sys::meron_checkpoint_tensor {
                // More dimensions than fit are too many for the library in any case.
                dims: u32::try_from(tensor.shape.len()).unwrap_or(u32::MAX),
                name: text(&tensor.name, "the name of a tensor")?,
                kind: match &tensor.kind {
                    Some(kind) => text(kind, "the kind of a tensor")?,
                    None => ptr::null(),
                },
                dtype: text(tensor.dtype, "dtype")?,
                shape: table(&tensor.shape),
                begin: tensor.begin,
                count: tensor.count,
                data: tensor.data,
                ..sys::MERON_CHECKPOINT_TENSOR_INIT
            });
        }
        Ok(RawTensors { raw, _texts: texts })
    }

    pub(crate) fn first(&self) -> *const sys::meron_checkpoint_tensor {
        table(&self.raw)
    }

    pub(crate) fn count(&self) -> u64 {
        self.raw.len() as u64
    }
}

/// Owners of the elements of tensors.
pub(crate) fn owners(tensors: &[CheckpointTensor<'static>]) -> Vec<Arc<dyn Any + Send + Sync>> {
    tensors.iter().filter_map(|tensor| tensor.owner.clone()).collect()
}
