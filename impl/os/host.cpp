// SPDX-License-Identifier: Apache-2.0
#include "os/host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "os/fd.h"
#include "os/file.h"
#include "os/system_error.h"

namespace meron {
namespace {

constexpr size_t kMaxCpuInfo = 16 << 20;

// The vector extensions that the kernels can be compiled for, x86 and Arm.
constexpr std::array<std::string_view, 20> kVectorFeatures = {
    "ssse3",    "sse4_2",   "avx",      "avx2",        "fma",         "f16c",     "avx512f",
    "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd",
    "asimdhp",  "asimdfhm", "sve",      "sve2",        "bf16",        "i8mm",
};

// The value of the first line "key : value" of /proc/cpuinfo.
std::string_view first_value(std::string_view text, std::string_view key) {
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    const std::string_view line = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
    size_t begin = key.size();
    while (begin < line.size() && (line[begin] == ' ' || line[begin] == '\t')) ++begin;
    if (begin >= line.size() || line[begin] != ':') continue;
    return line.substr(std::min(begin + 2, line.size()));
  }
  return {};
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || text[at - 1] == ' ') && (end == text.size() || text[end] == ' ')) return true;
  }
  return false;
}

}  // namespace

ShmSpace shm_space() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return {};
  return {.total = info.f_blocks * info.f_frsize, .available = info.f_bavail * info.f_frsize};
}

IoUringSupport io_uring_available() {
  io_uring_params params{};
  const UniqueFd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &params)));
  if (ring.valid()) return {.available = true, .reason = {}};
  const int error = errno;
  switch (error) {
    case ENOSYS:
      return {.available = false, .reason = "the kernel does not have it (ENOSYS)"};
    case EPERM:
    case EACCES:
      return {.available = false,
              .reason = fmt::format("forbidden by kernel.io_uring_disabled or the container's "
                                    "seccomp profile ({})",
                                    error == EPERM ? "EPERM" : "EACCES")};
    default:
      return {.available = false, .reason = errno_text(error)};
  }
}

CpuInfo cpu_info() {
  CpuInfo info;
  const auto text = read_file("/proc/cpuinfo", kMaxCpuInfo);
  if (text.ok()) {
    info.brand = first_value(*text, "model name");
    std::string_view flags = first_value(*text, "flags");
    if (flags.empty()) flags = first_value(*text, "Features");
    for (const std::string_view feature : kVectorFeatures) {
      if (has_word(flags, feature)) info.features.emplace_back(feature);
    }
  }
  if (info.brand.empty()) info.brand = "unknown CPU";
  return info;
}

std::string CpuInfo::text() const {
  if (features.empty()) return brand;
  return fmt::format("{}: {}", brand, fmt::join(features, " "));
}

uint64_t memlock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? kNoLimit : limit.rlim_cur;
}

std::string thp_shmem_mode() {
  // "always within_size advise [never] deny force": the one in brackets holds.
  const auto text = read_file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", 4096);
  if (!text.ok()) return "unknown";
  const size_t begin = text->find('[');
  const size_t end = text->find(']', begin);
  if (begin == std::string::npos || end == std::string::npos) return "unknown";
  return text->substr(begin + 1, end - begin - 1);
}

uint64_t page_size() {
  static const auto size = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::string host_name() {
  if (const char* name = std::getenv("MERON_HOST")) return name;
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string node_identity() {
  if (const char* name = std::getenv("MERON_NODE")) return name;
  constexpr size_t kMaxBootId = 64;
  const auto boot = read_file("/proc/sys/kernel/random/boot_id", kMaxBootId);
  struct stat network {};
  const bool known = stat("/proc/self/ns/net", &network) == 0;
  return fmt::format("{} {} {}", boot.ok() ? *boot : host_name(), known ? network.st_dev : 0,
                     known ? network.st_ino : 0);
}

}  // namespace meron
