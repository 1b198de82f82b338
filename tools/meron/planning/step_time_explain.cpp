// SPDX-License-Identifier: Apache-2.0
// A ranking in sentences.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/human_bytes.h"
#include "plan/quantity.h"
#include "plan/text.h"
#include "tools/meron/planning/step_time.h"

namespace meron::planning {
namespace {

constexpr double kAsGood = 0.005;  // of a step: a difference that means nothing
constexpr double kWorthSaying = 0.1;

// A phase of a step, and its bytes.
struct Phase {
  const char* what;
  double Estimate::*own_time = nullptr;
  LinkCost Estimate::*link = nullptr;
  uint64_t Estimate::*own_bytes = nullptr;

  double time(const Estimate& cost) const {
    return link != nullptr ? (cost.*link).seconds() : cost.*own_time;
  }
  uint64_t bytes(const Estimate& cost) const {
    if (link != nullptr) return (cost.*link).bytes;
    return own_bytes != nullptr ? cost.*own_bytes : 0;
  }
};

constexpr Phase kComputation = {.what = "the computation", .own_time = &Estimate::computing};
constexpr Phase kBetween = {.what = "a node's link to the others", .link = &Estimate::between};
constexpr Phase kInside = {.what = "a device's link inside its node", .link = &Estimate::inside};
constexpr Phase kCopies = {
    .what = "copying in memory", .own_time = &Estimate::copying, .own_bytes = &Estimate::copied};
constexpr Phase kUpdate = {
    .what = "the update", .own_time = &Estimate::updating, .own_bytes = &Estimate::updated};

std::string percent(double ratio) {
  return ratio < 1 ? fmt::format("{:.0f} %", ratio * 100) : fmt::format("{:.1f} times", 1 + ratio);
}

// "12 % longer", "2.3 times as long".
std::string longer(double time, double than) {
  const double ratio = time / than - 1;
  if (!std::isfinite(ratio)) return "longer";
  return ratio < 1 ? percent(ratio) + " longer" : percent(ratio) + " as long";
}

bool as_good(const Estimate& a, const Estimate& best) {
  return a.middle() <= best.middle() * (1 + kAsGood);
}

std::string first_sentence(const Estimate& first) {
  return fmt::format("{} is first: {} a step with perfect overlap, {} without.", first.plan.name,
                     human_seconds(first.with_overlap()), human_seconds(first.without_overlap()));
}

std::string limit_sentence(const Estimate& first) {
  constexpr std::array kAtTheSameTime = {kComputation, kBetween, kInside, kCopies};
  const Phase& slowest = *std::max_element(
      kAtTheSameTime.begin(), kAtTheSameTime.end(),
      [&](const Phase& a, const Phase& b) { return a.time(first) < b.time(first); });
  if (slowest.time(first) == 0 && kUpdate.time(first) == 0) return "Nothing takes any time.";
  const bool update_first = kUpdate.time(first) > slowest.time(first);
  const Phase& limit = update_first ? kUpdate : slowest;
  std::string out =
      fmt::format("Its limit is {}: {}", limit.what, human_seconds(limit.time(first)));
  if (limit.bytes(first) > 0) out += fmt::format(" for {}", human_bytes(limit.bytes(first)));
  if (limit.link != nullptr && (first.*limit.link).waiting > (first.*limit.link).transfer) {
    out += ", most of it waiting for messages: fewer, larger units would help";
  }
  const double rest = limit.time(first) - kComputation.time(first);
  if (!update_first && kComputation.time(first) > 0 && rest > 0) {
    out += fmt::format("; the computation can hide {}", human_seconds(kComputation.time(first)));
  }
  return out + ".";
}

// The phase in which `behind` loses most, if any is slower.
std::string reason(const Estimate& behind, const Estimate& first) {
  constexpr std::array kPhases = {kBetween, kInside, kCopies, kUpdate};
  const Phase& phase =
      *std::max_element(kPhases.begin(), kPhases.end(), [&](const Phase& a, const Phase& b) {
        return a.time(behind) - a.time(first) < b.time(behind) - b.time(first);
      });
  if (phase.time(behind) <= phase.time(first)) return {};
  std::string out =
      fmt::format(": {} takes {} instead of {}", phase.what, human_seconds(phase.time(behind)),
                  human_seconds(phase.time(first)));
  if (phase.bytes(behind) > phase.bytes(first)) {
    return out + fmt::format(", for {} instead of {}", human_bytes(phase.bytes(behind)),
                             human_bytes(phase.bytes(first)));
  }
  return out + ", for more messages";
}

std::string behind_sentence(const Estimate& behind, const Estimate& first) {
  return fmt::format("The runner-up, {}, takes {}{}.", behind.plan.name,
                     longer(behind.middle(), first.middle()), reason(behind, first));
}

// The runner-up, the equally good ones, and the best that is exact.
void add_others(const std::vector<const Estimate*>& fitting, std::vector<std::string>& out) {
  const Estimate& first = *fitting.front();
  std::string equals;
  const Estimate* runner_up = nullptr;
  const Estimate* exact = first.lossy ? nullptr : &first;
  for (const Estimate* cost : fitting) {
    if (exact == nullptr && !cost->lossy) exact = cost;
    if (cost == &first) continue;
    if (as_good(*cost, first)) {
      equals += (equals.empty() ? "" : "; ") + cost->plan.name;
    } else if (runner_up == nullptr) {
      runner_up = cost;
    }
  }
  if (!equals.empty()) out.push_back(fmt::format("As good, to half a percent: {}.", equals));
  if (runner_up != nullptr) out.push_back(behind_sentence(*runner_up, first));
  if (first.lossy && exact != nullptr) {
    out.push_back(
        fmt::format("{} rounds values between nodes. Of those that do not, "
                    "{} is the best: it takes {}{}.",
                    first.plan.name, exact->plan.name, longer(exact->middle(), first.middle()),
                    reason(*exact, first)));
  }
}

// With perfect overlap alone another may be first.
void add_other_order(const std::vector<const Estimate*>& fitting, std::vector<std::string>& out) {
  const Estimate& first = *fitting.front();
  const Estimate& best = **std::min_element(
      fitting.begin(), fitting.end(),
      [](const Estimate* a, const Estimate* b) { return a->with_overlap() < b->with_overlap(); });
  if (best.with_overlap() * (1 + kWorthSaying) >= first.with_overlap()) return;
  out.push_back(fmt::format("If everything overlaps, {} would be first with {}.", best.plan.name,
                            human_seconds(best.with_overlap())));
}

}  // namespace

std::vector<std::string> explain(const Ranking& ranking) {
  std::vector<std::string> out;
  std::vector<const Estimate*> fitting;
  for (const Estimate& cost : ranking.estimates) {
    if (cost.memory.fits()) fitting.push_back(&cost);
  }
  const size_t all = ranking.estimates.size();
  if (all == 0) return out;
  if (fitting.empty()) {
    const Estimate& nearest = ranking.estimates.front();
    out.push_back(
        fmt::format("None of the {} fits. {} is closest: it lacks {} of {} on each "
                    "device. Take more devices, or smaller units.",
                    all, nearest.plan.name, human_bytes(nearest.memory.lacking()),
                    human_bytes(nearest.memory.total())));
    return out;
  }
  out.push_back(first_sentence(*fitting.front()));
  out.push_back(limit_sentence(*fitting.front()));
  add_others(fitting, out);
  add_other_order(fitting, out);
  if (fitting.size() < all) {
    const Estimate& nearest = ranking.estimates[fitting.size()];
    out.push_back(fmt::format("{} of {} do not fit: {} lacks least, {} on each device.",
                              all - fitting.size(), all, nearest.plan.name,
                              human_bytes(nearest.memory.lacking())));
  }
  if (fitting.front()->computing == 0) {
    out.push_back("No computation is given: a step is only transfers and the update.");
  }
  return out;
}

}  // namespace meron::planning
