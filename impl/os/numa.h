// SPDX-License-Identifier: Apache-2.0
// Which CPUs are local to which memory. A thread that updates memory of another node pays for every
// byte of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meron {

// The host's NUMA nodes with the CPUs of each that this process may use, those without any left
// out. Empty if the host does not report it.
std::vector<std::vector<int>> numa_nodes(const std::string& folder = "/sys/devices/system/node");

// "0-3,8,10-11" as numbers; MERON_E_PARSE for anything else. As Linux lists CPUs.
Result<std::vector<int>> parse_cpu_list(std::string_view text);

// On which CPUs the helpers of a rank should run, where `ranks_here` share the host: those of one
// node, ranks being dealt over the nodes in blocks as launchers do. Empty: anywhere, because there
// is one node only, or the process is bound to one, or the ranks do not divide among them.
std::vector<int> near_cpus(const std::vector<std::vector<int>>& nodes, int rank_here,
                           int ranks_here);

// Runs the calling thread on these CPUs only.
Status pin_thread_to(const std::vector<int>& cpus);

}  // namespace meron
