// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/schedule.h.

use meron_sys as sys;

use crate::device::Stream;
use crate::values::gather::Tier;

/// Options of a schedule: limits in elements, and the memory of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleOptions {
    /// Gathers are prefetched for the next uses within this many elements; 0: no prefetch.
    pub prefetch_elements: u64,
    /// Limit of prefetched and kept units, never of the unit in use; default 1e9.
    pub max_live_elements: u64,
    /// A unit stays full if its next recorded use is within this many elements of other units'
    /// uses; default 1e9.
    pub max_reuse_elements: u64,
    /// A unit of at most this many elements stays full from its first use until the schedule
    /// drops its units.
    pub persist_elements: u64,
    /// Limit for all such units together, in their order at the creation; by default no limit.
    pub persist_total_elements: u64,
    /// Memory of views.
    pub tier: Tier,
    /// For views on the device: this stream waits for an entered unit, and the unit's memory is
    /// released after the stream's queued work. It must live as long as the schedule.
    pub stream: Stream,
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        ScheduleOptions {
            prefetch_elements: 50000000,
            max_live_elements: 1000000000,
            max_reuse_elements: 1000000000,
            persist_elements: 100000,
            persist_total_elements: u64::MAX,
            tier: Tier::Host,
            stream: Stream::default(),
        }
    }
}

impl ScheduleOptions {
    /// Gathers are prefetched for the next uses within this many elements; 0: no prefetch.
    #[must_use]
    pub fn prefetch_elements(mut self, value: u64) -> ScheduleOptions {
        self.prefetch_elements = value;
        self
    }

    /// Limit of prefetched and kept units, never of the unit in use; default 1e9.
    #[must_use]
    pub fn max_live_elements(mut self, value: u64) -> ScheduleOptions {
        self.max_live_elements = value;
        self
    }

    /// A unit stays full if its next recorded use is within this many elements of other units'
    /// uses; default 1e9.
    #[must_use]
    pub fn max_reuse_elements(mut self, value: u64) -> ScheduleOptions {
        self.max_reuse_elements = value;
        self
    }

    /// A unit of at most this many elements stays full from its first use until the schedule
    /// drops its units.
    #[must_use]
    pub fn persist_elements(mut self, value: u64) -> ScheduleOptions {
        self.persist_elements = value;
        self
    }

    /// Limit for all such units together, in their order at the creation; by default no limit.
    #[must_use]
    pub fn persist_total_elements(mut self, value: u64) -> ScheduleOptions {
        self.persist_total_elements = value;
        self
    }

    /// Memory of views.
    #[must_use]
    pub fn tier(mut self, value: Tier) -> ScheduleOptions {
        self.tier = value;
        self
    }

    /// For views on the device: this stream waits for an entered unit, and the unit's memory is
    /// released after the stream's queued work. It must live as long as the schedule.
    #[must_use]
    pub fn stream(mut self, value: Stream) -> ScheduleOptions {
        self.stream = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_schedule_options {
        sys::meron_schedule_options {
            prefetch_elements: self.prefetch_elements,
            max_live_elements: self.max_live_elements,
            max_reuse_elements: self.max_reuse_elements,
            persist_elements: self.persist_elements,
            persist_total_elements: self.persist_total_elements,
            tier: self.tier.code(),
            stream: self.stream.as_raw(),
            ..sys::MERON_SCHEDULE_OPTIONS_INIT
        }
    }
}

/// Information about a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// Units that are entered now.
    pub entered: u32,
    /// Of the schedule.
    pub units: u64,
    /// Started so far.
    pub passes: u64,
    /// Units entered so far.
    pub uses: u64,
    /// Uses whose unit was full already.
    pub ready: u64,
    /// Uses with a prefetched gather.
    pub ahead: u64,
    /// Uses that differ from the recorded order.
    pub deviations: u64,
    /// Of the units that are full or gathering now.
    pub live_elements: u64,
    /// Maximum of live_elements.
    pub peak_live_elements: u64,
    /// Nanoseconds that uses have waited.
    pub wait_ns: u64,
}

impl ScheduleInfo {
    pub(crate) fn of(raw: &sys::meron_schedule_info) -> ScheduleInfo {
        ScheduleInfo {
            entered: raw.entered,
            units: raw.units,
            passes: raw.passes,
            uses: raw.uses,
            ready: raw.ready,
            ahead: raw.ahead,
            deviations: raw.deviations,
            live_elements: raw.live_elements,
            peak_live_elements: raw.peak_live_elements,
            wait_ns: raw.wait_ns,
        }
    }
}
