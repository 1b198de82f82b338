// SPDX-License-Identifier: Apache-2.0
// What the context does beside a save: calls that wait for it, and its end.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/context.h"
#include "engine/save_thread.h"
#include "gradient/gradient.h"

namespace meron {
namespace {

constexpr int64_t kCopyLookNs = kNanosPerMilli;

}  // namespace

// The groups' numbers end before it.
Result<std::unique_ptr<Channel>> Context::make_save_channel() {
  const int ranks = transport_->world_size();
  MERON_ASSIGN(const uint64_t control, reserve_group(ranks));
  return std::make_unique<Channel>(*transport_, rank_->counters,
                                   Members::world(ranks, transport_->rank()), control,
                                   kMaxGroups * 3, &world());
}

Result<Turn> Context::turn_between_saves() {
  while (true) {
    std::shared_ptr<Operation> save;
    {
      MERON_ASSIGN(Turn turn, this->turn());
      auto held = lock();
      if (!threads_.saves || !threads_.saves->under_way()) return turn;
      save = threads_.saves->last();
    }
    const Result<bool> ended = wait(save, -1);
    // How it ended is another's.
    auto held = lock();
    if (!save->ended() && !ended.ok()) return ended.error();
  }
}

Result<Turn> Context::turn_when_copied() {
  while (true) {
    MERON_ASSIGN(const bool copied, wait_copied(-1));
    MERON_ASSIGN(Turn turn, this->turn());
    auto held = lock();
    const bool begun_since =
        threads_.saves && threads_.saves->last() && !threads_.saves->last()->copied();
    if (copied && !begun_since) return turn;
  }
}

Result<bool> Context::wait_copied(int64_t timeout_ns) {
  const Deadline deadline = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  auto held = lock();
  MERON_TRY(check_open());
  const std::shared_ptr<SaveOperation> save = threads_.saves ? threads_.saves->last() : nullptr;
  while (save && !save->copied()) {
    progress(held);
    if (deadline.passed()) return false;
    MERON_TRY(rest(held, std::min(deadline.remaining(), kCopyLookNs)));
  }
  return true;
}

Status Context::cancel_save() {
  auto held = lock();
  MERON_TRY(check_open());
  if (threads_.saves) threads_.saves->cancel();
  return Ok{};
}

// A reduction on the device changes what its codec has lost, and none may begin on some ranks only:
// their streams would wait for the others until the deadline.
Status Context::wait_feedback_copied(Held& held, const Unit& unit) {
  while (unit.held_for_save() || (threads_.saves && threads_.saves->some_rank_copies(now_ns()))) {
    MERON_TRY(check_open());
    MERON_TRY(unit.channel().status());
    progress(held);
    MERON_TRY(rest(held, kCopyLookNs));
  }
  return Ok{};
}

Status Context::wait_feedback_settled(Held& held, const SavedObjects& what) {
  const auto changes = [&](const std::shared_ptr<Unit>& unit) {
    return what.concerns(unit) && unit->trainable() && unit->gradient().keeps_feedback() &&
           unit->gradient().state() == GradientState::reducing;
  };
  while (std::any_of(units_.begin(), units_.end(), changes)) {
    MERON_TRY(check_open());
    MERON_TRY(world().status());
    progress(held);
    MERON_TRY(rest(held, kCopyLookNs));
  }
  return Ok{};
}

std::shared_ptr<const SaveWatch> Context::save_watch(bool* under_way) {
  auto held = lock();
  *under_way = threads_.saves && threads_.saves->under_way();
  if (!threads_.saves || !threads_.saves->last()) return nullptr;
  return threads_.saves->last()->options.watch;
}

// A save under way ends first: what was begun is there then. One that should_stop does not wait for
// is abandoned.
void Context::end_saves() {
  static thread_local bool ending = false;  // should_stop may close the context
  std::shared_ptr<Operation> save;
  {
    auto held = lock();
    if (threads_.saves && !closed()) save = threads_.saves->last();
  }
  if (!save || std::exchange(ending, true)) return;
  const Result<bool> ended = wait(save, -1);
  ending = false;
  if (ended.ok()) return;
  {
    auto held = lock();
    const bool cancelled = save->error() && save->error()->code() == MERON_E_CANCELLED;
    if (save->delivered() || cancelled) return;
    save->set_delivered();
  }
  const ErrorInfo& info = ended.error().info();
  options_.log(LogLevel::error,
               fmt::format("the context is closed, and its last save has failed: {}: {}{}{}",
                           info.subject, info.what, info.advice.empty() ? "" : "; ", info.advice));
}

}  // namespace meron
