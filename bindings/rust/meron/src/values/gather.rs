// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/gather.h.

use meron_sys as sys;

/// Memory of a view, by its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// In the device's memory, if the context has a device; else the host's.
    Device,
    /// In the host's memory.
    Host,
}

#[allow(dead_code)]
impl Tier {
    pub(crate) fn code(self) -> sys::meron_tier {
        match self {
            Tier::Device => sys::MERON_TIER_DEVICE,
            Tier::Host => sys::MERON_TIER_HOST,
        }
    }

    pub(crate) fn of(code: sys::meron_tier) -> Tier {
        match code {
            sys::MERON_TIER_DEVICE => Tier::Device,
            _ => Tier::Host,
        }
    }
}
