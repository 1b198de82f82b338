// SPDX-License-Identifier: Apache-2.0
// The step against the distance between its arrays. Some CPUs predict the L1 way of an access from
// a few address bits: arrays whose distance is a large power of two then evict each other.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/layout.h"
#include "bench/memory.h"
#include "measure.h"

namespace meron::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Layout of the four arrays of a step.
struct Placement {
  size_t spacing;  // nominal bytes of a buffer
  bool as_arena;   // else exactly `spacing` apart
  std::vector<double> rates = {};
};

struct Group {
  float *p, *g, *m, *v;
};

// The step's traffic in GB/s, in memory made for this one call: which physical pages a buffer
// happens to get has an influence of its own, of up to a tenth, that is not to be charged to the
// spacing. Of each buffer the first `window` bytes at most are used and have memory. Small buffers
// come in several groups, so that every placement visits as much memory and none profits from the
// caches.
double measure(Workers& workers, const Placement& placement, size_t window) {
  const size_t used = std::min(placement.spacing, window);
  const size_t distance = placement.as_arena ? footprint(placement.spacing) : placement.spacing;
  const bool stagger = placement.as_arena && placement.spacing >= kColorThreshold;
  const size_t buffers = 4 * (window / used);
  Region region(buffers * distance);
  const auto start = [&](size_t k) {
    return k * distance + (stagger ? k % kColors * kColorStep : 0);
  };
  workers.run([&](size_t thread) {
    const Slice slice = Slice::of(used, thread, workers.count(), 4096);
    for (size_t k = 0; k < buffers; ++k) {
      region.populate(start(k) + slice.begin, slice.end - slice.begin);
    }
  });
  std::vector<Group> groups;
  for (size_t k = 0; k < buffers; k += 4) {
    const auto array = [&](size_t i) {
      return reinterpret_cast<float*>(region.data() + start(k + i));
    };
    groups.push_back({array(0), array(1), array(2), array(3)});
  }
  const kernels::AdamW step = example_step();
  const auto work = [&](size_t thread) {
    const Slice slice = Slice::of(used / sizeof(float), thread, workers.count());
    for (const Group& group : groups) {
      kernels::adamw(step, group.p + slice.begin, group.g + slice.begin, kernels::Type::f32,
                     group.m + slice.begin, group.v + slice.begin, nullptr, kernels::Type::f32,
                     slice.end - slice.begin);
    }
  };
  workers.run(work);
  const double seconds = median({workers.run(work), workers.run(work), workers.run(work)});
  return kStepBytes * static_cast<double>(window / sizeof(float)) / seconds / 1e9;
}

// Of the medians of each placement's rate relative to the mean of its turn, so that a slow turn
// counts for none.
double worst_over_best(const std::vector<Placement>& all, bool as_arena) {
  double worst = 1e300, best = 0;
  for (const Placement& placement : all) {
    if (placement.as_arena != as_arena) continue;
    std::vector<double> relative;
    for (size_t r = 0; r < placement.rates.size(); ++r) {
      double sum = 0;
      for (const Placement& other : all) {
        if (other.as_arena == as_arena) sum += other.rates[r];
      }
      relative.push_back(placement.rates[r] / sum);
    }
    worst = std::min(worst, median(relative));
    best = std::max(best, median(relative));
  }
  return worst / best;
}

}  // namespace

void measure_spacing(Workers& workers, const Options& options, Report& report) {
  std::vector<Placement> all;  // pairs: as the arena places them, and not
  for (size_t spacing = 16 * kMiB; spacing <= 1024 * kMiB; spacing *= 2) {
    all.push_back({spacing, true});
    all.push_back({spacing, false});
  }
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  for (size_t turn = 0; turn < options.repeats; ++turn) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t k : order) all[k].rates.push_back(measure(workers, all[k], options.window));
  }

  fmt::print("Spacing of p, g, m, v, as the arena places them and without its stagger, GB/s\n\n");
  fmt::print("{:>10}{:>12}{:>16}\n", "MiB", "arena", "no stagger");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t k = 0; k < all.size(); k += 2) {
    const size_t mib = all[k].spacing / kMiB;
    const double staggered = median(all[k].rates), plain = median(all[k + 1].rates);
    fmt::print("{:>10}{:>12.1f}{:>16.1f}\n", mib, staggered, plain);
    rows.push_back(
        {{"mib", mib}, {"arena_gb_per_second", staggered}, {"no_stagger_gb_per_second", plain}});
  }
  const double staggered = worst_over_best(all, true), plain = worst_over_best(all, false);
  fmt::print("{:>10}{:>12.2f}{:>16.2f}\n\n", "worst/best", staggered, plain);
  report.json["spacing"] = {{"window_bytes", options.window},
                            {"turns", options.repeats},
                            {"rows", rows},
                            {"arena_worst_over_best", staggered},
                            {"no_stagger_worst_over_best", plain}};
  report.goals.push_back({"spacing_worst_over_best", staggered, 0.9});
}

}  // namespace meron::bench
