// SPDX-License-Identifier: Apache-2.0
#include "io/kill_point.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

namespace meron {
namespace {

struct KillPoint {
  std::string name;      // "*": any
  uint64_t passing = 0;  // 0: none
};

Result<KillPoint> parse_kill_point(std::string_view text) {
  KillPoint point;
  if (text.empty()) return point;
  const size_t colon = text.find(':');
  const std::string_view number = colon == text.npos ? "" : text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), point.passing);
  if (colon == 0 || error != std::errc{} || end != number.data() + number.size() ||
      point.passing == 0) {
    return Error(MERON_E_PARSE, fmt::format("the kill point \"{}\" is unclear", text),
                 "write for example rename:3")
        .on("MERON_KILL_POINT");
  }
  point.name = text.substr(0, colon);
  return point;
}

struct KillChoice {
  std::mutex mutex;  // guards what follows
  KillPoint point;
  uint64_t passed = 0;   // points in all
  uint64_t matched = 0;  // of them, those that `point` names

  KillChoice() {
    const char* const text = std::getenv("MERON_KILL_POINT");
    if (text == nullptr) return;
    auto parsed = parse_kill_point(text);
    if (parsed.ok()) point = std::move(parsed).value();
  }
};

KillChoice& kill_choice() {
  static KillChoice* const made = new KillChoice;  // never destroyed, as the fault plan
  return *made;
}

}  // namespace

Status set_kill_point(std::string_view choice) {
  if (!have_fault_points()) {
    return Error(MERON_E_UNSUPPORTED, "this build has no fault points",
                 "build with -DMERON_FAULT_POINTS=ON");
  }
  MERON_ASSIGN(KillPoint point, parse_kill_point(choice));
  const std::lock_guard lock(kill_choice().mutex);
  kill_choice().point = std::move(point);
  kill_choice().passed = kill_choice().matched = 0;
  return Ok{};
}

uint64_t kill_points_passed() {
  const std::lock_guard lock(kill_choice().mutex);
  return kill_choice().passed;
}

void pass_kill_point(std::string_view name) {
  const std::lock_guard lock(kill_choice().mutex);
  KillChoice& choice = kill_choice();
  ++choice.passed;
  if (choice.point.passing == 0 || (choice.point.name != "*" && choice.point.name != name)) return;
  if (++choice.matched == choice.point.passing) std::raise(SIGKILL);
}

}  // namespace meron
