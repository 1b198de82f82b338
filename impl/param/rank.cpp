// SPDX-License-Identifier: Apache-2.0
#include "param/rank.h"

#include <utility>

#include "param/unit.h"

namespace meron {

Rank::Rank(Transport& transport_in, Plan plan_in, int threads_in, int64_t timeout_in)
    : transport(transport_in),
      plan(std::move(plan_in)),
      threads(threads_in),
      timeout_ns(timeout_in) {
  arena().set_reclaim([this] {
    Unit* const unit = idle.oldest();
    if (unit != nullptr) unit->give_back_idle();
    return unit != nullptr;
  });
}

Rank::~Rank() {
  arena().set_reclaim(nullptr);
}

}  // namespace meron
