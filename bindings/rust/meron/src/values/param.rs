// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/param.h.

use meron_sys as sys;

/// Encoding of numbers that are sent between replicas; docs/plan.md has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// None.
    None,
    /// Bf16.
    Bf16,
    /// Int8.
    Int8,
    /// Int4.
    Int4,
    /// Something that this version of the crate does not know.
    Other(i32),
}

#[allow(dead_code)]
impl Codec {
    pub(crate) fn code(self) -> sys::meron_codec {
        match self {
            Codec::None => sys::MERON_CODEC_NONE,
            Codec::Bf16 => sys::MERON_CODEC_BF16,
            Codec::Int8 => sys::MERON_CODEC_INT8,
            Codec::Int4 => sys::MERON_CODEC_INT4,
            Codec::Other(other) => other,
        }
    }

    pub(crate) fn of(code: sys::meron_codec) -> Codec {
        match code {
            sys::MERON_CODEC_NONE => Codec::None,
            sys::MERON_CODEC_BF16 => Codec::Bf16,
            sys::MERON_CODEC_INT8 => Codec::Int8,
            sys::MERON_CODEC_INT4 => Codec::Int4,
            other => Codec::Other(other),
        }
    }
}

/// State of a unit on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// This rank holds its shard only.
    Partitioned,
    /// A gather is pending.
    Gathering,
    /// Leased at least once.
    Available,
    /// Being written.
    Updating,
    /// Something that this version of the crate does not know.
    Other(i32),
}

#[allow(dead_code)]
impl Activity {
    pub(crate) fn code(self) -> sys::meron_unit_state {
        match self {
            Activity::Partitioned => sys::MERON_UNIT_STATE_PARTITIONED,
            Activity::Gathering => sys::MERON_UNIT_STATE_GATHERING,
            Activity::Available => sys::MERON_UNIT_STATE_AVAILABLE,
            Activity::Updating => sys::MERON_UNIT_STATE_UPDATING,
            Activity::Other(other) => other,
        }
    }

    pub(crate) fn of(code: sys::meron_unit_state) -> Activity {
        match code {
            sys::MERON_UNIT_STATE_PARTITIONED => Activity::Partitioned,
            sys::MERON_UNIT_STATE_GATHERING => Activity::Gathering,
            sys::MERON_UNIT_STATE_AVAILABLE => Activity::Available,
            sys::MERON_UNIT_STATE_UPDATING => Activity::Updating,
            other => Activity::Other(other),
        }
    }
}
