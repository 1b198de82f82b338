// SPDX-License-Identifier: Apache-2.0
// Free memory of the host, and of the memory cgroups that this process is in.
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "os/file.h"
#include "os/host.h"

namespace meron {
namespace {

constexpr size_t kMaxProcFile = 4 << 20;

std::string content_of(const std::string& path) {
  auto content = read_file(path, kMaxProcFile);
  return content.ok() ? std::move(content).value() : std::string();
}

std::optional<uint64_t> number_at(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t")));
  uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return {};
  return value;
}

// Calls visit(line) for each line of `text`.
template <class Visit>
void for_lines(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// The number behind `key` at the beginning of a line; 0 when there is none.
uint64_t field(std::string_view text, std::string_view key) {
  uint64_t value = 0;
  for_lines(text, [&](std::string_view line) {
    if (line.starts_with(key)) value = number_at(line.substr(key.size())).value_or(0);
  });
  return value;
}

bool list_has(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == item) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

std::string_view next_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

struct Hierarchy {
  std::string mount;  // where the tree is seen
  std::string leaf;   // this process' directory in it, within `mount`
  bool v2 = false;
};

// The path of this process in the tree: lines are "id:controllers:path", with id 0 for version 2.
std::optional<std::string> cgroup_path(std::string_view self, bool v2) {
  std::optional<std::string> path;
  for_lines(self, [&](std::string_view line) {
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool match = v2 ? line.starts_with("0::") : list_has(controllers, "memory");
    if (match) path = std::string(line.substr(second + 1));
  });
  return path;
}

// A container may see only a part of the tree: `root` is the subtree at the mount point.
std::string leaf_directory(const std::string& mount, std::string_view root, std::string_view path) {
  if (root == "/") root = "";
  if (!path.starts_with(root) || path.find("..") != std::string_view::npos) return mount;
  path.remove_prefix(root.size());
  if (path == "/" || path.empty()) return mount;
  return path.front() == '/' ? mount + std::string(path) : mount;
}

std::vector<Hierarchy> memory_hierarchies() {
  std::vector<Hierarchy> found;
  const std::string self = content_of("/proc/self/cgroup");
  const std::string mounts = content_of("/proc/self/mountinfo");
  for_lines(mounts, [&](std::string_view line) {
    // "id parent major:minor root mount-point options [tags] - type source super-options"
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) return;
    std::string_view tail = line.substr(dash + 3);
    const std::string_view type = next_word(tail);
    next_word(tail);
    const bool v2 = type == "cgroup2";
    if (!v2 && !(type == "cgroup" && list_has(tail, "memory"))) return;
    for (int skipped = 0; skipped < 3; ++skipped) next_word(line);
    const std::string_view root = next_word(line);
    const std::string mount(next_word(line));
    if (const auto path = cgroup_path(self, v2)) {
      found.push_back({.mount = mount, .leaf = leaf_directory(mount, root, *path), .v2 = v2});
    }
  });
  return found;
}

struct CgroupMemory {
  uint64_t limit = kNoLimit;
  uint64_t used = 0;
};

CgroupMemory read_cgroup(const std::string& directory, bool v2) {
  CgroupMemory memory;
  const auto limit_in = [&](const char* file) {
    // "max" is not a number; version 1 has a number close to 2^63.
    const uint64_t limit = number_at(content_of(directory + file)).value_or(kNoLimit);
    return limit >= 1ull << 62 ? kNoLimit : limit;
  };
  if (v2) {
    // Past memory.high nothing is killed, but everything is slowed down without end: shared memory
    // cannot be reclaimed.
    memory.limit = std::min(limit_in("/memory.max"), limit_in("/memory.high"));
  } else {
    memory.limit = limit_in("/memory.limit_in_bytes");
  }
  if (memory.limit == kNoLimit) return memory;
  const char* usage = v2 ? "/memory.current" : "/memory.usage_in_bytes";
  memory.used = number_at(content_of(directory + usage)).value_or(0);
  const std::string stat = content_of(directory + "/memory.stat");
  const uint64_t cache =
      v2 ? field(stat, "inactive_file ") + field(stat, "active_file ")
         : field(stat, "total_inactive_file ") + field(stat, "total_active_file ");
  memory.used -= std::min(memory.used, cache);
  return memory;
}

}  // namespace

HostMemory host_memory() {
  HostMemory result;
  const std::string meminfo = content_of("/proc/meminfo");
  result.total = field(meminfo, "MemTotal:") * 1024;
  result.available = field(meminfo, "MemAvailable:") * 1024;
  for (const Hierarchy& tree : memory_hierarchies()) {
    for (std::string directory = tree.leaf;; directory.resize(directory.rfind('/'))) {
      const CgroupMemory memory = read_cgroup(directory, tree.v2);
      const uint64_t left = memory.limit - std::min(memory.limit, memory.used);
      if (memory.limit != kNoLimit && left < result.cgroup_available()) {
        result.cgroup_limit = memory.limit;
        result.cgroup_used = memory.used;
        result.cgroup = directory;
      }
      if (directory.size() <= tree.mount.size()) break;
    }
  }
  return result;
}

}  // namespace meron
