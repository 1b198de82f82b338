// SPDX-License-Identifier: Apache-2.0
// One rank that trains bf16 units with random gradients: only its optimizer steps are timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/meron_rank.h"

namespace meron::bench {

struct Model {
  size_t units = 16;
  size_t elements = size_t{4} << 20;  // of each
  size_t all() const { return units * elements; }
};

class Trainer {
 public:
  // `plan` is JSON. Info from the library is shown where `verbose`.
  Trainer(const std::string& plan, const Model& model, uint32_t threads);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Gives every unit a gradient: not timed.
  void reduce();
  // After that: the seconds that a step takes.
  double step();
  meron_stats stats() const;
  // Of all values, so that runs can be compared.
  uint64_t checksum();

 private:
  Model model_;
  uint64_t random_ = 1;
  meron_context context_ = {0};
  std::vector<meron_param> params_;
  std::vector<meron_unit> units_;
  meron_optimizer optimizer_ = {0};
};

}  // namespace meron::bench
