// SPDX-License-Identifier: Apache-2.0
// A gatherer without an engine and a clock without time: gathers take as long as their elements
// say, one after the other, and time passes when the trainer computes or waits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace meron::test {

class FakeGatherer final : public Gatherer {
 public:
  explicit FakeGatherer(size_t units, uint64_t ns_per_element, std::vector<uint64_t> elements)
      : elements_(std::move(elements)), ns_per_element_(ns_per_element), ready_at_(units, kNever) {}

  Status begin(size_t unit) override {
    if (refused == unit) return Error(MERON_E_STATE, "unit is being updated");
    EXPECT_EQ(kNever, ready_at_[unit]) << "unit " << unit << " is gathered twice";
    link_free_ = std::max(link_free_, now) + elements_[unit] * ns_per_element_;
    ready_at_[unit] = link_free_;
    log.append("+").append(name(unit));
    return Ok{};
  }
  Result<bool> full(size_t unit) override {
    EXPECT_NE(kNever, ready_at_[unit]) << "unit " << unit << " is not gathered";
    if (failed == unit) return Error(MERON_E_PEER_DEAD, "a peer died");
    return ready_at_[unit] <= now;
  }
  Status release(size_t unit) override {
    EXPECT_NE(kNever, ready_at_[unit]) << "unit " << unit << " is released twice";
    ready_at_[unit] = kNever;
    log.append("-").append(name(unit));
    return Ok{};
  }
  std::string name(size_t unit) const override {
    return std::string(1, static_cast<char>('a' + unit));
  }
  bool held(size_t unit) const { return ready_at_[unit] != kNever; }
  uint64_t ready_at(size_t unit) const { return ready_at_[unit]; }

  std::string log;  // "+a" begun, "-a" released
  uint64_t now = 0;
  size_t refused = SIZE_MAX;
  size_t failed = SIZE_MAX;

 private:
  static constexpr uint64_t kNever = UINT64_MAX;
  std::vector<uint64_t> elements_;
  uint64_t ns_per_element_;
  uint64_t link_free_ = 0;
  std::vector<uint64_t> ready_at_;
};

// Nothing ahead, nothing kept: what a test does not ask for does not happen.
inline ScheduleOptions plain() {
  ScheduleOptions options;
  options.prefetch_elements = 0;
  options.max_reuse_elements = 0;
  options.persist_elements = 0;
  return options;
}

struct Trainer {
  explicit Trainer(std::vector<uint64_t> elements, const ScheduleOptions& options = plain(),
                   uint64_t ns_per_element = 0)
      : gatherer(elements.size(), ns_per_element, elements),
        schedule(gatherer, std::move(elements), options) {}

  void enter(size_t unit) {
    auto full = schedule.enter(unit);
    ASSERT_TRUE(full.ok()) << full.error().info().what;
    if (*full) return;
    const uint64_t begun = gatherer.now;
    gatherer.now = std::max(gatherer.now, gatherer.ready_at(unit));
    schedule.waited(unit, true, gatherer.now - begun);
  }
  void leave(size_t unit) { ASSERT_TRUE(schedule.leave(unit).ok()); }
  // One use after the other; each computes for `compute` ns. Returns the log of begun and released
  // units.
  std::string use(const std::string& units, uint64_t compute = 0) {
    gatherer.log.clear();
    run(units, compute);
    return gatherer.log;
  }
  std::string pass(const std::string& units, size_t kind = 0, uint64_t compute = 0) {
    gatherer.log.clear();
    EXPECT_TRUE(schedule.start_pass(kind).ok());
    run(units, compute);
    return gatherer.log;
  }
  void run(const std::string& units, uint64_t compute) {
    for (const char name : units) {
      const auto unit = static_cast<size_t>(name - 'a');
      enter(unit);
      gatherer.now += compute;
      leave(unit);
    }
  }
  const ScheduleCounts& counts() const { return schedule.counts(); }

  FakeGatherer gatherer;
  Schedule schedule;
};

}  // namespace meron::test
