// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/context.h.

use meron_sys as sys;

/// Levels of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LogLevel {
    /// Error.
    Error,
    /// Warning.
    Warning,
    /// Info.
    Info,
}

#[allow(dead_code)]
impl LogLevel {
    pub(crate) fn code(self) -> sys::meron_log_level {
        match self {
            LogLevel::Error => sys::MERON_LOG_ERROR,
            LogLevel::Warning => sys::MERON_LOG_WARNING,
            LogLevel::Info => sys::MERON_LOG_INFO,
        }
    }

    pub(crate) fn of(code: sys::meron_log_level) -> LogLevel {
        match code {
            sys::MERON_LOG_ERROR => LogLevel::Error,
            sys::MERON_LOG_WARNING => LogLevel::Warning,
            _ => LogLevel::Info,
        }
    }
}

/// Counters since the context was opened, and the memory in use now, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Shards of peers read in place, or fetched by devices.
    pub gather_mapped_bytes: u64,
    /// Parts of peers copied.
    pub gather_copied_bytes: u64,
    /// Gradients read from peers.
    pub reduce_bytes: u64,
    /// Read from peers by broadcast and all-reduce.
    pub collective_bytes: u64,
    /// Collectives begun.
    pub operations: u64,
    /// Nanoseconds spent waiting for peers.
    pub wait_ns: u64,
    /// Of values, held now.
    pub param_bytes: u64,
    /// Of gradients, counted from the creation of a unit on.
    pub gradient_bytes: u64,
    /// Of optimizer states, held now.
    pub optimizer_bytes: u64,
    /// Of staging buffers, held now.
    pub staging_bytes: u64,
    /// Of the control data that keeps the ranks in step, held now.
    pub control_bytes: u64,
    /// Maximum of param + gradient + optimizer + staging.
    pub peak_bytes: u64,
    /// Bytes of pages in this rank's arena.
    pub arena_pages_bytes: u64,
    /// Gathered from ranks that share no memory, as on the wire.
    pub inter_node_gather_bytes: u64,
    /// Reduced from such ranks, likewise.
    pub inter_node_reduce_bytes: u64,
    /// Read from this rank's file on tier nvme.
    pub nvme_read_bytes: u64,
    /// Written to it.
    pub nvme_written_bytes: u64,
    /// Of that file, in use now.
    pub nvme_bytes: u64,
    /// Copied from the host to this rank's device.
    pub device_up_bytes: u64,
    /// Copied from it to the host.
    pub device_down_bytes: u64,
    /// On the device at all times: entries of tier device.
    pub device_bytes: u64,
}

impl Stats {
    pub(crate) fn of(raw: &sys::meron_stats) -> Stats {
        Stats {
            gather_mapped_bytes: raw.gather_mapped_bytes,
            gather_copied_bytes: raw.gather_copied_bytes,
            reduce_bytes: raw.reduce_bytes,
            collective_bytes: raw.collective_bytes,
            operations: raw.operations,
            wait_ns: raw.wait_ns,
            param_bytes: raw.param_bytes,
            gradient_bytes: raw.gradient_bytes,
            optimizer_bytes: raw.optimizer_bytes,
            staging_bytes: raw.staging_bytes,
            control_bytes: raw.control_bytes,
            peak_bytes: raw.peak_bytes,
            arena_pages_bytes: raw.arena_pages_bytes,
            inter_node_gather_bytes: raw.inter_node_gather_bytes,
            inter_node_reduce_bytes: raw.inter_node_reduce_bytes,
            nvme_read_bytes: raw.nvme_read_bytes,
            nvme_written_bytes: raw.nvme_written_bytes,
            nvme_bytes: raw.nvme_bytes,
            device_up_bytes: raw.device_up_bytes,
            device_down_bytes: raw.device_down_bytes,
            device_bytes: raw.device_bytes,
        }
    }
}

/// The plan's predictions for this rank and its current units, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prediction {
    /// Of values, held.
    pub param_bytes: u64,
    /// Of gradients, held.
    pub gradient_bytes: u64,
    /// Of optimizer states, held.
    pub optimizer_bytes: u64,
    /// Maximum held at once on this rank.
    pub peak_bytes: u64,
    /// As in meron_stats, per optimizer step; so are those below.
    pub gather_mapped_bytes: u64,
    /// Parts of peers copied.
    pub gather_copied_bytes: u64,
    /// Gradients read from peers.
    pub reduce_bytes: u64,
    /// Of values, from the first gather to the update (of frozen ones permanently): in addition
    /// to param_bytes, within the peak.
    pub secondary_partition_bytes: u64,
    /// Gathered from ranks that share no memory, as on the wire.
    pub inter_node_gather_bytes: u64,
    /// Reduced from such ranks, likewise.
    pub inter_node_reduce_bytes: u64,
    /// Read from this rank's file on tier nvme.
    pub nvme_read_bytes: u64,
    /// Written to it.
    pub nvme_written_bytes: u64,
    /// In use there, at all times.
    pub nvme_bytes: u64,
    /// On the device at all times, if ranks exchange on their devices.
    pub device_bytes: u64,
}

impl Prediction {
    pub(crate) fn of(raw: &sys::meron_prediction) -> Prediction {
        Prediction {
            param_bytes: raw.param_bytes,
            gradient_bytes: raw.gradient_bytes,
            optimizer_bytes: raw.optimizer_bytes,
            peak_bytes: raw.peak_bytes,
            gather_mapped_bytes: raw.gather_mapped_bytes,
            gather_copied_bytes: raw.gather_copied_bytes,
            reduce_bytes: raw.reduce_bytes,
            secondary_partition_bytes: raw.secondary_partition_bytes,
            inter_node_gather_bytes: raw.inter_node_gather_bytes,
            inter_node_reduce_bytes: raw.inter_node_reduce_bytes,
            nvme_read_bytes: raw.nvme_read_bytes,
            nvme_written_bytes: raw.nvme_written_bytes,
            nvme_bytes: raw.nvme_bytes,
            device_bytes: raw.device_bytes,
        }
    }
}
