// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/reduce.h.

use meron_sys as sys;

use crate::device::Stream;
use crate::values::group::ReduceOp;

/// Options of a reduction.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReduceOptions {
    /// The operation that combines the values of the ranks.
    pub op: ReduceOp,
    /// True for the last micro-batch before the step.
    pub boundary: bool,
    /// Additional divisor of the sum, e.g. the number of micro-batches, times the loss scale. The
    /// complete sum is divided once, as the call with `boundary` 1 says; in each call all ranks
    /// pass the same. With a codec that has feedback, give the same one for each micro-batch of
    /// an accumulation: what was lost of the accumulation before is scaled by the change, so that
    /// it counts as much as it did.
    pub divisor: f64,
    /// Sources on the device are read after the queued work of this stream; by default the
    /// device's default stream.
    pub stream: Stream,
}

impl Default for ReduceOptions {
    fn default() -> ReduceOptions {
        ReduceOptions {
            op: ReduceOp::Mean,
            boundary: true,
            divisor: 1.0,
            stream: Stream::default(),
        }
    }
}

impl ReduceOptions {
    /// The operation that combines the values of the ranks.
    #[must_use]
    pub fn op(mut self, value: ReduceOp) -> ReduceOptions {
        self.op = value;
        self
    }

    /// True for the last micro-batch before the step.
    #[must_use]
    pub fn boundary(mut self, value: bool) -> ReduceOptions {
        self.boundary = value;
        self
    }

    /// Additional divisor of the sum, e.g. the number of micro-batches, times the loss scale. The
    /// complete sum is divided once, as the call with `boundary` 1 says; in each call all ranks
    /// pass the same. With a codec that has feedback, give the same one for each micro-batch of
    /// an accumulation: what was lost of the accumulation before is scaled by the change, so that
    /// it counts as much as it did.
    #[must_use]
    pub fn divisor(mut self, value: f64) -> ReduceOptions {
        self.divisor = value;
        self
    }

    /// Sources on the device are read after the queued work of this stream; by default the
    /// device's default stream.
    #[must_use]
    pub fn stream(mut self, value: Stream) -> ReduceOptions {
        self.stream = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_reduce_options {
        sys::meron_reduce_options {
            op: self.op.code(),
            boundary: u32::from(self.boundary),
            divisor: self.divisor,
            stream: self.stream.as_raw(),
            ..sys::MERON_REDUCE_OPTIONS_INIT
        }
    }
}
