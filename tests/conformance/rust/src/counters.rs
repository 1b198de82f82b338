// SPDX-License-Identifier: Apache-2.0
// Generated from capi/api.json by tools/generate/generate.py: do not edit.
//! Figures by their names.

use meron::Stats;

/// A figure, and true if it is a counter that only grows.
pub fn counter(stats: &Stats, name: &str) -> Option<(u64, bool)> {
    Some(match name {
        "gather_mapped_bytes" => (stats.gather_mapped_bytes, true),
        "gather_copied_bytes" => (stats.gather_copied_bytes, true),
        "reduce_bytes" => (stats.reduce_bytes, true),
        "collective_bytes" => (stats.collective_bytes, true),
        "operations" => (stats.operations, true),
        "wait_ns" => (stats.wait_ns, true),
        "param_bytes" => (stats.param_bytes, false),
        "gradient_bytes" => (stats.gradient_bytes, false),
        "optimizer_bytes" => (stats.optimizer_bytes, false),
        "staging_bytes" => (stats.staging_bytes, false),
        "control_bytes" => (stats.control_bytes, false),
        "peak_bytes" => (stats.peak_bytes, false),
        "arena_pages_bytes" => (stats.arena_pages_bytes, false),
        "inter_node_gather_bytes" => (stats.inter_node_gather_bytes, true),
        "inter_node_reduce_bytes" => (stats.inter_node_reduce_bytes, true),
        "nvme_read_bytes" => (stats.nvme_read_bytes, true),
        "nvme_written_bytes" => (stats.nvme_written_bytes, true),
        "nvme_bytes" => (stats.nvme_bytes, false),
        "device_up_bytes" => (stats.device_up_bytes, true),
        "device_down_bytes" => (stats.device_down_bytes, true),
        "device_bytes" => (stats.device_bytes, false),
        _ => return None,
    })
}
