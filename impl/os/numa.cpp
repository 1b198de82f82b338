// SPDX-License-Identifier: Apache-2.0
#include "os/numa.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

#include "os/directory.h"
#include "os/file.h"
#include "os/process.h"
#include "os/system_error.h"

namespace meron {
namespace {

constexpr size_t kMaxList = 64 << 10;  // bytes
constexpr int kMaxCpu = 1 << 20;

}  // namespace

Result<std::vector<int>> parse_cpu_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<int> cpus;
  const auto wrong = [&] {
    return Error(MERON_E_PARSE, fmt::format("'{}' is no list of CPUs", text));
  };
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), range.size() + 1));
    int first = 0;
    const char* const end = range.data() + range.size();
    auto read = std::from_chars(range.data(), end, first);
    if (read.ec != std::errc{} || first < 0 || first > kMaxCpu) return wrong();
    int last = first;
    if (read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc{} || last < first || last > kMaxCpu) return wrong();
    }
    if (read.ptr != end) return wrong();
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::vector<int>> numa_nodes(const std::string& folder) {
  std::vector<std::vector<int>> nodes;
  const auto names = list_directory(folder);
  if (!names.ok()) return nodes;
  const std::vector<int> allowed = allowed_cpus();
  std::vector<int> numbers;
  for (const std::string& name : *names) {
    int number = 0;
    const char* const end = name.data() + name.size();
    if (!name.starts_with("node")) continue;
    const auto read = std::from_chars(name.data() + 4, end, number);
    if (read.ec == std::errc{} && read.ptr == end) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  for (const int number : numbers) {
    const auto text = read_file(fmt::format("{}/node{}/cpulist", folder, number), kMaxList);
    if (!text.ok()) continue;
    auto cpus = parse_cpu_list(*text);
    if (!cpus.ok()) continue;
    std::erase_if(*cpus, [&](int cpu) {
      return std::find(allowed.begin(), allowed.end(), cpu) == allowed.end();
    });
    if (!cpus->empty()) nodes.push_back(*std::move(cpus));
  }
  return nodes;
}

std::vector<int> near_cpus(const std::vector<std::vector<int>>& nodes, int rank_here,
                           int ranks_here) {
  const int count = static_cast<int>(nodes.size());
  if (count < 2 || rank_here < 0 || rank_here >= ranks_here) return {};
  // Fewer ranks than nodes: each has several of them.
  if (ranks_here < count || ranks_here % count != 0) return {};
  return nodes[static_cast<size_t>(rank_here / (ranks_here / count))];
}

Status pin_thread_to(const std::vector<int>& cpus) {
  if (cpus.empty()) return Error(MERON_E_ARGUMENT, "no CPU to pin the thread to");
  const int most = *std::max_element(cpus.begin(), cpus.end());
  const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
  const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(most + 1), free_set);
  if (set == nullptr) return system_error("cannot pin the thread", ENOMEM);
  const size_t bytes = CPU_ALLOC_SIZE(most + 1);
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set.get());
  if (::sched_setaffinity(0, bytes, set.get()) != 0) {
    return system_error("cannot pin the thread", errno);
  }
  return Ok{};
}

}  // namespace meron
