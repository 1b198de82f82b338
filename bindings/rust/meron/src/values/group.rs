// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/group.h.

use meron_sys as sys;

/// The operation that combines values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum ReduceOp {
    /// Their sum.
    Sum,
    /// Their sum, divided by the number of ranks.
    #[default]
    Mean,
    /// The largest of them, of an all-reduce alone.
    Max,
    /// The smallest of them, of an all-reduce alone.
    Min,
}

#[allow(dead_code)]
impl ReduceOp {
    pub(crate) fn code(self) -> sys::meron_reduce_op {
        match self {
            ReduceOp::Sum => sys::MERON_REDUCE_OP_SUM,
            ReduceOp::Mean => sys::MERON_REDUCE_OP_MEAN,
            ReduceOp::Max => sys::MERON_REDUCE_OP_MAX,
            ReduceOp::Min => sys::MERON_REDUCE_OP_MIN,
        }
    }

    pub(crate) fn of(code: sys::meron_reduce_op) -> ReduceOp {
        match code {
            sys::MERON_REDUCE_OP_SUM => ReduceOp::Sum,
            sys::MERON_REDUCE_OP_MEAN => ReduceOp::Mean,
            sys::MERON_REDUCE_OP_MAX => ReduceOp::Max,
            _ => ReduceOp::Min,
        }
    }
}
