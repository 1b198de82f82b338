// SPDX-License-Identifier: Apache-2.0
#include "io/fault_plan.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace meron {
namespace {

constexpr int kMaxErrno = 133;  // EHWPOISON, the last that Linux has

constexpr std::array<std::string_view, 7> kCalls = {"read", "write", "fsync", "rename",
                                                    "open", "mkdir", "reap"};
constexpr size_t kTransfers = 2;  // the first of them

constexpr size_t call_of(FileCall call) {
  return kTransfers + static_cast<size_t>(call);
}

struct Fault {
  size_t call = 0;               // of kCalls
  uint64_t first = 1, last = 1;  // of these calls, counted from 1
  int error = 0;                 // 0: a short transfer, or a hang
  bool hangs = false;
};

int errno_of(std::string_view name) {
  for (int error = 1; error <= kMaxErrno; ++error) {
    const char* const known = ::strerrorname_np(error);
    if (known != nullptr && name == known) return error;
  }
  return 0;
}

Error unclear(std::string_view entry, std::string_view why) {
  return Error(MERON_E_PARSE, fmt::format("the fault \"{}\" {}", entry, why),
               "write for example read:3:EIO,write:2+:ENOSPC,read:*:short")
      .on("MERON_IO_FAULTS");
}

Result<Fault> parse_fault(std::string_view entry) {
  const size_t first = entry.find(':');
  const size_t second = first == entry.npos ? entry.npos : entry.find(':', first + 1);
  if (second == entry.npos) return unclear(entry, "has not three parts");
  const std::string_view which = entry.substr(0, first), what = entry.substr(second + 1);
  std::string_view when = entry.substr(first + 1, second - first - 1);
  Fault fault;
  while (fault.call < kCalls.size() && which != kCalls[fault.call]) ++fault.call;
  if (fault.call == kCalls.size()) {
    return unclear(entry, "is of neither read, write, fsync, rename, open, mkdir nor reap");
  }
  if (when == "*") {
    fault.last = UINT64_MAX;
  } else {
    const bool onward = when.ends_with('+');
    if (onward) when.remove_suffix(1);
    const auto [end, error] = std::from_chars(when.data(), when.data() + when.size(), fault.first);
    if (error != std::errc{} || end != when.data() + when.size() || fault.first == 0) {
      return unclear(entry, "has no number from 1, number+ or * in the middle");
    }
    fault.last = onward ? UINT64_MAX : fault.first;
  }
  if (what == "eintr") {
    fault.error = EINTR;
  } else if (what == "eagain") {
    fault.error = EAGAIN;
  } else if (what == "hang") {
    fault.hangs = true;
  } else if (what == "short") {
    if (fault.call >= kTransfers) return unclear(entry, "is of no transfer, so it cannot be short");
  } else {
    fault.error = errno_of(what);
    if (fault.error == 0) return unclear(entry, "names no errno, short, eintr, eagain or hang");
  }
  return fault;
}

Result<std::vector<Fault>> parse_plan(std::string_view text) {
  std::vector<Fault> faults;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    MERON_ASSIGN(const Fault fault, parse_fault(text.substr(0, comma)));
    faults.push_back(fault);
    if (comma == text.npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) return unclear("", "follows the last comma");
  }
  return faults;
}

struct Plan {
  std::mutex mutex;  // guards what follows
  std::condition_variable replaced;
  uint64_t number = 0;  // of the plan
  std::vector<Fault> faults;
  std::array<uint64_t, kCalls.size()> count{};
  std::optional<Error> in_environment;  // what is wrong with it

  Plan() {
    const char* const text = std::getenv("MERON_IO_FAULTS");
    if (text == nullptr) return;
    auto parsed = parse_plan(text);
    if (parsed.ok()) {
      faults = std::move(parsed).value();
    } else {
      in_environment = std::move(parsed).error();
    }
  }

  // Counts a call; what is planned for it, or null. Valid until the mutex is released.
  const Fault* next(size_t call) {
    const uint64_t passed = ++count[call];
    for (const Fault& fault : faults) {
      if (fault.call == call && passed >= fault.first && passed <= fault.last) return &fault;
    }
    return nullptr;
  }

  void hang(std::unique_lock<std::mutex>& lock) {
    replaced.wait_for(lock, std::chrono::nanoseconds(kHangNs),
                      [this, now = number] { return number != now; });
  }
};

Plan& plan() {
  static Plan* const made = new Plan;  // never destroyed: threads may end after exit began
  return *made;
}

}  // namespace

Status check_io_faults() {
  if (!have_fault_points()) return Ok{};
  const std::lock_guard lock(plan().mutex);
  if (plan().in_environment) return *plan().in_environment;
  return Ok{};
}

Status set_io_faults(std::string_view text) {
  if (!have_fault_points()) {
    return Error(MERON_E_UNSUPPORTED, "this build has no fault points",
                 "build with -DMERON_FAULT_POINTS=ON");
  }
  MERON_ASSIGN(std::vector<Fault> faults, parse_plan(text));
  const std::lock_guard lock(plan().mutex);
  plan().faults = std::move(faults);
  plan().count = {};
  plan().in_environment.reset();
  ++plan().number;
  plan().replaced.notify_all();
  return Ok{};
}

int64_t planned_fault(bool write, uint64_t requested, int64_t result) {
  std::unique_lock lock(plan().mutex);
  const Fault* const fault = plan().next(write ? 1 : 0);
  if (fault == nullptr) return result;
  if (fault->error != 0) return -fault->error;
  if (fault->hangs) {
    plan().hang(lock);
    return result;
  }
  // A transfer of one byte cannot be short without being none.
  return result > 1 && static_cast<uint64_t>(result) == requested ? result / 2 : result;
}

int planned_file_fault(FileCall call) {
  std::unique_lock lock(plan().mutex);
  const Fault* const fault = plan().next(call_of(call));
  if (fault == nullptr) return 0;
  if (fault->hangs) {
    plan().hang(lock);
    return 0;
  }
  return fault->error;
}

}  // namespace meron
