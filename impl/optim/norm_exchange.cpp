// SPDX-License-Identifier: Apache-2.0
#include "optim/norm_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "gradient/gradient.h"
#include "kernels/cpu/reduce.h"

namespace meron {
namespace {

// For a unit that was reduced before it had an optimizer.
Status take_squares(Unit& unit) {
  kernels::ExactSum squares;
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable || flat.part.size() == 0) continue;
    MERON_ASSIGN(float* const sum, unit.gradient().memory().show(f));
    const Recess recess(flat.part.size() >= kInlineElements);
    kernels::reduce(sum + (flat.part.begin - flat.summed.begin), true, nullptr, 0,
                    kernels::Type::f32, 1.0f, flat.part.size(), &squares);
  }
  unit.gradient().squares = squares;
  return Ok{};
}

}  // namespace

void NormExchange::publish(const kernels::ExactSum& squares, const NonFinitePlace& place) {
  static_assert(sizeof(kernels::ExactSum) + sizeof(NonFinitePlace) <= kNormBytes);
  MemberBlock& own = channel_.own();
  const uint64_t last = std::max(own.norm_step[0].load(std::memory_order_relaxed),
                                 own.norm_step[1].load(std::memory_order_relaxed));
  number_ = last + 1;
  std::byte* const shared = own.norm[number_ % 2].data();
  std::memcpy(shared, &squares, sizeof(squares));
  std::memcpy(shared + sizeof(squares), &place, sizeof(place));
  channel_.share(shared, sizeof(squares) + sizeof(place));
  channel_.announce(own.norm_step[number_ % 2], number_);
  channel_.transport().ring();
}

bool NormExchange::all_published() const {
  for (int m = 0; m < channel_.size(); ++m) {
    const auto& number = channel_.member(m).norm_step[number_ % 2];
    if (number.load(std::memory_order_seq_cst) < number_) return false;
  }
  return true;
}

std::vector<int> NormExchange::missing() const {
  return channel_.below(number_, [&](int m) {
    return channel_.member(m).norm_step[number_ % 2].load(std::memory_order_seq_cst);
  });
}

kernels::ExactSum NormExchange::total() const {
  kernels::ExactSum total;
  for (int m = 0; m < channel_.size(); ++m) {
    kernels::ExactSum squares;
    std::memcpy(&squares, channel_.member(m).norm[number_ % 2].data(), sizeof(squares));
    total.merge(squares);
  }
  return total;
}

NonFinitePlace NormExchange::place_of(int member) const {
  NonFinitePlace place;
  std::memcpy(&place, channel_.member(member).norm[number_ % 2].data() + sizeof(kernels::ExactSum),
              sizeof(place));
  return place;
}

// If a codec has encoded a place, only the rank that did knows the element: all others have the
// block that it made NaN.
std::string NormExchange::places(std::span<const std::shared_ptr<Unit>> units) const {
  std::vector<std::pair<NonFinitePlace, int>> shards, encoded;
  for (int m = 0; m < channel_.size(); ++m) {
    const NonFinitePlace place = place_of(m);
    if (place.unit == NonFinitePlace::kNone) continue;
    auto& list = place.kind == NonFinitePlace::Kind::encoded ? encoded : shards;
    list.emplace_back(place, channel_.members().world_rank(m));
  }
  const auto& found = encoded.empty() ? shards : encoded;
  if (found.empty()) return {};
  const size_t others = found.size() - 1;
  const std::string_view of = encoded.empty() ? "the shards" : "gradients";
  return text_of(found.front().first, units, found.front().second) +
         (others > 0 ? fmt::format(", and in {} of {} other ranks", of, others) : "");
}

Result<OwnSquares> own_squares(std::span<const std::shared_ptr<Unit>> units) {
  OwnSquares own;
  bool encoded = false;
  for (const auto& unit : units) {
    if (!unit->gradient().squares) MERON_TRY(take_squares(*unit));
    own.squares.merge(*unit->gradient().squares);
    encoded = encoded || unit->gradient().nonfinite.has_value();
  }
  if (encoded || own.squares.nonfinite()) own.place = find_nonfinite(units);
  return own;
}

Status check_reduced(const Unit& unit) {
  const GradientState state = unit.gradient().state();
  if (state == GradientState::ready) return Ok{};
  return Error(MERON_E_STATE,
               fmt::format("the gradient of unit '{}' is {}, not reduced", unit.name(),
                           kGradientStateNames[static_cast<size_t>(state)]),
               "reduce every unit at an accumulation boundary, and wait for it, first")
      .on(unit.name());
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

std::string nonfinite_text(double norm, const std::string& places) {
  return fmt::format("the global gradient norm is {}: {}", norm,
                     places.empty() ? "the sum of finite squares is too large"
                                    : "the gradient is not finite: " + places);
}

}  // namespace meron
