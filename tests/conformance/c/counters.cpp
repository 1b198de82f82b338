// SPDX-License-Identifier: Apache-2.0
// Generated from capi/api.json by tools/generate/generate.py: do not edit.
#include "operations.h"

namespace conformance {

Counter counter_of(const std::string& name) {
  if (name == "gather_mapped_bytes") return {&meron_stats::gather_mapped_bytes, true};
  if (name == "gather_copied_bytes") return {&meron_stats::gather_copied_bytes, true};
  if (name == "reduce_bytes") return {&meron_stats::reduce_bytes, true};
  if (name == "collective_bytes") return {&meron_stats::collective_bytes, true};
  if (name == "operations") return {&meron_stats::operations, true};
  if (name == "wait_ns") return {&meron_stats::wait_ns, true};
  if (name == "param_bytes") return {&meron_stats::param_bytes, false};
  if (name == "gradient_bytes") return {&meron_stats::gradient_bytes, false};
  if (name == "optimizer_bytes") return {&meron_stats::optimizer_bytes, false};
  if (name == "staging_bytes") return {&meron_stats::staging_bytes, false};
  if (name == "control_bytes") return {&meron_stats::control_bytes, false};
  if (name == "peak_bytes") return {&meron_stats::peak_bytes, false};
  if (name == "arena_pages_bytes") return {&meron_stats::arena_pages_bytes, false};
  if (name == "inter_node_gather_bytes") return {&meron_stats::inter_node_gather_bytes, true};
  if (name == "inter_node_reduce_bytes") return {&meron_stats::inter_node_reduce_bytes, true};
  if (name == "nvme_read_bytes") return {&meron_stats::nvme_read_bytes, true};
  if (name == "nvme_written_bytes") return {&meron_stats::nvme_written_bytes, true};
  if (name == "nvme_bytes") return {&meron_stats::nvme_bytes, false};
  if (name == "device_up_bytes") return {&meron_stats::device_up_bytes, true};
  if (name == "device_down_bytes") return {&meron_stats::device_down_bytes, true};
  if (name == "device_bytes") return {&meron_stats::device_bytes, false};
  throw Malformed{"unknown counter '" + name + "'"};
}

}  // namespace conformance
